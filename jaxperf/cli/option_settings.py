"""Options that hold several settings: `k=4,acceptance=.8,.7` is a key, its values, the next key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.cells import float_or_nan

HOST_BANDWIDTH = "50 GB/s"  # about what PCIe 5 x16 reaches; host=... where it is another
Settings = Mapping[str, Sequence[str]]


def settings_of(option: str, text: str, allowed: Sequence[str]) -> dict[str, list[str]]:
    """`k=4,acceptance=.8,.7` as key -> its values, in order.

    **Raises:** `InputError` naming the option for an unknown key, one given twice or without a value.
    """
    found: dict[str, list[str]] = {}
    key = ""
    for piece in (piece.strip() for piece in text.split(",")):
        name, sign, value = (part.strip() for part in piece.partition("="))
        if not sign and key and name:
            found[key].append(name)
            continue
        key = name
        if not key:
            raise InputError(f"{option}: '{text}' has a setting without a name; allowed: {', '.join(allowed)}.")
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise InputError(f"{option}: unknown key '{key}'; allowed: {', '.join(allowed)}.{hint}")
        if not value:
            raise InputError(f"{option}: '{piece}' has no value; write {key}=...")
        if key in found:
            raise InputError(f"{option}: {key} is given twice; give it once.")
        found[key] = [value]
    return found


def host_bandwidth(option: str, given: Settings) -> float:
    """The host's link, `host=50GB/s` [byte/s]. Raises `InputError`."""
    import hwspecs

    try:
        return hwspecs.parse_quantity(_only(option, given, "host", HOST_BANDWIDTH), "byte/s")
    except InputError as error:
        raise InputError(f"{option}: host: {error}") from None


def numbers_of(
    option: str, given: Settings, name: str, count: int, least: float, most: float, whole: bool = False
) -> list[float]:
    """One number for all positions, or one for each. Raises `InputError` naming option, key and range."""
    values = [_parse(option, name, text, least, most, whole) for text in given[name]]
    if len(values) not in (1, count):
        raise InputError(f"{option}: {name} has {len(values)} values for {count} positions; give one, or one for each.")
    return values * count if len(values) == 1 else values


def number_of(
    option: str, given: Settings, name: str, default: str, least: float, most: float, whole: bool = False
) -> float:
    """One number, or the default. Raises `InputError` naming option, key and range."""
    return _parse(option, name, _only(option, given, name, default), least, most, whole)


def word_of(option: str, given: Settings, name: str, allowed: Sequence[str]) -> str:
    """One of the allowed words, the first where none is given. Raises `InputError` naming option, key and words."""
    word = _only(option, given, name, allowed[0])
    if word not in allowed:
        raise InputError(f"{option}: {name} is '{word}'; allowed: {', '.join(allowed)}.{did_you_mean(word, allowed)}")
    return word


def _only(option: str, given: Settings, name: str, default: str) -> str:
    texts = given.get(name, [default])
    if len(texts) > 1:
        raise InputError(f"{option}: {name} has {len(texts)} values; give it one.")
    return texts[0]


def _parse(option: str, name: str, text: str, least: float, most: float, whole: bool) -> float:
    value = float_or_nan(text)
    if not least <= value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise InputError(f"{option}: {name} is '{text}'; it must be {kind} from {least:g} to {most:g}.")
    return value
