"""Checked access to the fields of Timeloop's files; every function raises `InputError` naming file and field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hwspecs.errors import InputError, did_you_mean, nearest
from jaxperf.core.cells import float_or_nan
from jaxperf.models.checks import show

LARGEST = 2.0**53  # a count beyond it is no exact integer in a double
ALIKE = 0.75  # of 1; files hold many keys that are not used here, so only what is hardly another word is refused
MOST = 1e30  # beyond it products of amounts overflow


def object_of(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    _present(data, key, where)
    if not isinstance(data[key], Mapping):
        raise InputError(f"{where}: {key} is {show(data[key])}; it must be an object.")
    return data[key]


def list_of(data: Mapping[str, Any], key: str, where: str) -> list[Any]:
    _present(data, key, where)
    if not isinstance(data[key], list):
        raise InputError(f"{where}: {key} is {show(data[key])}; it must be a list.")
    return data[key]


def text_of(data: Mapping[str, Any], key: str, where: str) -> str:
    _present(data, key, where)
    if not isinstance(data[key], str) or not data[key].strip():
        raise InputError(f"{where}: {key} is {show(data[key])}; it must be a text that is not blank.")
    return data[key].strip()


def count(value: Any, where: str) -> float:
    """A positive integer, which Timeloop also writes as a text or as 3.0."""
    number = float_or_nan(value)
    if not (1.0 <= number < LARGEST and number == int(number)):
        raise InputError(f"{where} is {show(value)}; it must be an integer from 1 to below {LARGEST:g}.")
    return number


def amount(value: Any, where: str) -> float:
    """A number from zero to `MOST`."""
    number = float_or_nan(value)
    if not 0.0 <= number <= MOST:
        raise InputError(f"{where} is {show(value)}; it must be a number from 0 to {MOST:g}.")
    return number


def flag(value: Any, where: str) -> bool:
    """True or false, which Timeloop also writes as a text."""
    text = str(value).casefold()
    if text not in ("true", "false"):
        raise InputError(f"{where} is {show(value)}; it must be true or false.")
    return text == "true"


def check_spelling(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raises `InputError` for a key that is spelled nearly as a known one that is not there, which it was meant to be.

    Other keys are not looked at: Timeloop's files hold many that this program has no use for.
    """
    known = tuple(known)
    absent = [key for key in known if key not in data]
    for key in map(str, data):
        meant = [] if key in known else nearest(key, absent, count=1, cutoff=ALIKE)
        if meant:
            raise InputError(f"{where}: '{key}' is not a field. Did you mean {meant[0]}?")


def check_known(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raises `InputError` for a key of a small object that is not one of all that it may have."""
    known = tuple(known)
    for key in map(str, data):
        if key not in known:
            raise InputError(f"{where}: {key} is not one of {', '.join(known)}.{did_you_mean(key, known)}")


def check_said_otherwise(data: Mapping[str, Any], how: Mapping[str, str], where: str) -> None:
    """Raises `InputError` for a key of other tools that has a meaning here under another name or in another place.

    **Arguments:** `how`: by key, in small letters, how it is said.
    """
    for key in map(str, data):
        if key.casefold() in how:
            raise InputError(f"{where}: '{key}' is not a field; {how[key.casefold()]}.")


def check_distinct(names: Iterable[str], what: str, where: str) -> None:
    """Raises `InputError` for a name that stands twice."""
    names = list(names)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{where}: {what} {name} is named twice; give each a name of its own.")


def underscored_keys(data: Mapping[Any, Any]) -> dict[str, Any]:
    """The keys as texts, with the underscores that older files spell as hyphens."""
    return {str(key).replace("-", "_"): value for key, value in data.items()}


def object_if_any(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """An object that may be left out, or left empty."""
    return {} if data.get(key) is None else object_of(data, key, where)


def words_if_any(data: Mapping[str, Any], key: str, where: str) -> list[str]:
    """A list, the keys of an object, or a text of words between blanks or commas; empty where it is left out."""
    value = data.get(key)
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if value is not None and not isinstance(value, list | Mapping):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a list.")
    return [str(each) for each in value or ()]


def _present(data: Any, key: str, where: str) -> None:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} holds {show(data)}; it must be an object with {key}.")
    if key not in data:
        raise InputError(f"{where}: {key} is missing.{did_you_mean(key, map(str, data))}")
