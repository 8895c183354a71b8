"""The parameters of a question about one model: which there are, what each may be, and plain values checked."""

from __future__ import annotations

from typing import Any

from hwspecs.errors import InputError
from jaxperf.core.formats import CACHE_FORMATS, FORMATS, format_name
from jaxperf.core.numerics import plain_number
from jaxperf.models.config import show
from jaxperf.sweeps.named import entries_of
from jaxperf.sweeps.values import Generated

COUNTS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "batch")
LENGTHS = {"context": 2048, "prompt": 2048, "output": 256}  # tokens, where the user gives none
MEDIA = "media_tokens"  # tokens of each prompt that encoders make from images or sound; not given: they stay idle
LARGEST = {**dict.fromkeys((*LENGTHS, MEDIA), 2**27), "batch": 2**20, "max_batch": 2**20}
LARGEST_GROUP = 2**17  # ranks of one parallel axis
LARGEST_SKEW = 1e4


def checked_values(name: str, value: Any) -> list[Any]:
    """One value or a sequence of them as a list: canonical format names, numbers in range, of which generated ones are
    rounded where whole ones are meant.

    **Raises:** `InputError` naming the parameter, the value and what is allowed.
    """
    entries = entries_of(name, value)
    if name == "device":
        return entries
    if name in ("weights", "kv_cache"):
        return [_checked_format(name, entry) for entry in entries]
    if isinstance(value, Generated) and name != "routing_skew":
        return [round(in_range(name, entry)) for entry in entries]
    return [checked_number(name, entry) for entry in entries]


def checked_value(name: str, value: Any) -> Any:
    """The one value of a question about a point, as `checked_values`. Raises `InputError` for several."""
    found = checked_values(name, value)
    if len(found) > 1:
        raise InputError(f"'{name}' has {len(found)} values where one is asked about; jaxperf.sweep takes several.")
    return found[0]


def _checked_format(name: str, entry: Any) -> str:
    if not isinstance(entry, str):
        raise InputError(f"'{name}' is {show(entry)}; it must be the name of a number format, such as bf16.")
    return format_name(entry, FORMATS if name == "weights" else CACHE_FORMATS)


def checked_number(name: str, value: Any) -> int | float:
    """A number in range, a whole one for counts and lengths.

    **Raises:** `InputError` naming the parameter, the value and what is allowed.
    """
    number = in_range(name, value)
    if name == "routing_skew":
        return number
    if number != int(number):
        raise InputError(f"'{name}' is {show(number)}; it must be a whole number from 1 to {_largest(name):,}.")
    return int(number)


def in_range(name: str, value: Any) -> int | float:
    """A number from 1 to the largest of its parameter, whole or not.

    **Raises:** `InputError` naming the parameter, the value and what is allowed.
    """
    value = plain_number(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 1 <= value <= _largest(name):
        raise InputError(f"'{name}' is {show(value)}; it must be a number from 1 to {_largest(name):,.0f}.")
    return value


def _largest(name: str) -> int | float:
    return LARGEST_SKEW if name == "routing_skew" else LARGEST.get(name, LARGEST_GROUP)
