"""Checked access to the keys of Calculon's files; every function raises `InputError` naming file and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import check_count, check_flag, show


def object_of(data: Mapping[str, Any], key: str, source: str) -> Mapping[str, Any]:
    if not isinstance(data.get(key), Mapping):
        raise InputError(f"{source}: {key} is {show(data.get(key))}; it must be an object.")
    return data[key]


def number_of(data: Mapping[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < 1e30:
        raise InputError(f"{where}: {key} is {show(value)}; it must be a number above zero.")
    return float(value)


def count_of(data: Mapping[str, Any], key: str, source: str) -> int:
    if key not in data:
        raise InputError(f"{source}: the key {key} is missing.{did_you_mean(key, data)}")
    return check_count(f"{source}: {key}", data[key])


def flag_of(data: Mapping[str, Any], key: str, source: str, default: bool = False) -> bool:
    return check_flag(f"{source}: {key}", data.get(key, default))


def word_of(data: Mapping[str, Any], key: str, allowed: Sequence[str], source: str, default: str | None = None) -> str:
    """One of `allowed`; `default` is what Calculon meant before it had the key."""
    value = data.get(key, default)
    if value not in allowed:
        raise InputError(f"{source}: {key} is {show(value)}; it must be one of {', '.join(allowed)}.")
    return value
