"""Checks of the sizes, flags and texts of a model description; each raises `InputError` with one sentence."""

from __future__ import annotations

import json
from typing import Any

from hwspecs.errors import InputError

LARGEST_COUNT = 2**40  # a size above this is a mistake; every published size is far below
MOST_LAYERS = 10_000  # layers are stored one by one, so their number has a tighter limit


def show(value: Any) -> str:
    """How a value from a file is quoted in a message: JSON spelling, containers and long texts shortened."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):  # not a JSON type, or an integer with more digits than Python prints
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def check_count(label: str, value: Any, smallest: int = 1, largest: int = LARGEST_COUNT) -> int:
    """`value` itself when it is an integer in range; a boolean is not an integer here. Raises `InputError`."""
    if type(value) is not int or not smallest <= value <= largest:
        raise InputError(f"{label} is {show(value)}; it must be an integer from {smallest} to {largest}.")
    return value


def check_flag(label: str, value: Any) -> bool:
    """`value` itself when it is true or false. Raises `InputError`."""
    if type(value) is not bool:
        raise InputError(f"{label} is {show(value)}; it must be true or false.")
    return value


def check_text(label: str, value: Any) -> str:
    """`value` itself when it is a text that is not blank. Raises `InputError`."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{label} is {show(value)}; it must be a text that is not blank.")
    return value


def check_counts(owner: object, *names: str, smallest: int = 1) -> None:
    """The named fields of `owner` are integers from `smallest`."""
    for name in names:
        check_count(f"{type(owner).__name__}.{name}", getattr(owner, name), smallest)


def check_optional_counts(owner: object, *names: str) -> None:
    """The named fields of `owner` are `None` or integers from 1."""
    check_counts(owner, *(name for name in names if getattr(owner, name) is not None))


def check_flags(owner: object, *names: str) -> None:
    """The named fields of `owner` are true or false."""
    for name in names:
        check_flag(f"{type(owner).__name__}.{name}", getattr(owner, name))


def check_kind(owner: object, name: str, kinds: Any, allowed: str) -> None:
    """The named field of `owner` is an instance of `kinds`; `allowed` says in words what that is."""
    value = getattr(owner, name)
    if not isinstance(value, kinds):
        raise InputError(f"{type(owner).__name__}.{name} is {show(value)}; it must be {allowed}.")


def check_tuple(owner: object, name: str, kind: type, allowed: str) -> None:
    """The named field of `owner` is a tuple of `kind`."""
    value = getattr(owner, name)
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        raise InputError(f"{type(owner).__name__}.{name} is {show(value)}; it must be a tuple of {allowed}.")
