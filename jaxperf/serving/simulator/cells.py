"""Single values of a settings file, checked: counts, numbers, names, choices. All raise `InputError` in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show

LARGEST = 2**30  # of counts and of tokens in the cache: sums of them stay inside 32 bits
UTILIZATION = 0.9  # of the memory, vLLM's default


def count_of(data: Mapping[str, Any], key: str, where: str, smallest: int = 1, largest: int = LARGEST) -> int | None:
    """A whole number, also written 7424.0; None where the file has none, `InputError` for anything else."""
    value = data.get(key)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not smallest <= value <= largest or value != int(value):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a whole number from {smallest} to {largest:,}.")
    return int(value)


def positive_of(data: Mapping[str, Any], key: str, where: str) -> float | None:
    """A number above zero; None where the file has none, `InputError` for anything else."""
    value = data.get(key)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < value < float("inf"):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a number above zero.")
    return float(value)


def share_of(data: Mapping[str, Any], key: str, default: float, where: str) -> float:
    """A number from 0 to below 1; the default where the file has none, `InputError` for anything else."""
    value = data.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise InputError(f"{where}: {key} is {show(value)}; it must be a number from 0 to below 1.")
    return value


def utilization_of(data: Mapping[str, Any], where: str) -> float:
    """`gpu_memory_utilization`, above 0 and at most 1 as in vLLM; its default where the file has none, `InputError` for
    anything else."""
    key = "gpu_memory_utilization"
    value = UTILIZATION if data.get(key) is None else data[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise InputError(f"{where}: {key} is {show(value)}; it must be a number above 0, at most 1.")
    return float(value)


def choice_of(data: Mapping[str, Any], key: str, allowed: Sequence[str], where: str) -> str:
    """One of a few words; the first where the file has none, `InputError` for anything else."""
    value = data.get(key)
    if value is None:
        return allowed[0]
    if not isinstance(value, str) or value not in allowed:
        hint = did_you_mean(str(value), allowed)
        raise InputError(f"{where}: {key} is {show(value)}; it is {' or '.join(allowed)}.{hint}")
    return value


def text_of(data: Mapping[str, Any], key: str, where: str) -> str | None:
    """A name; None where the file has none, `InputError` for anything else."""
    value = data.get(key)
    if value is not None and not (isinstance(value, str) and value):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a name.")
    return value
