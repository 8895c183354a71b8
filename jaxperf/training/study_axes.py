"""The parameters of a training sweep: which field of a `Layout` each is, what it may be, and its axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.formats import format_name
from jaxperf.models.config import show
from jaxperf.sweeps import Axis, axis, stack
from jaxperf.sweeps.named import entries_of
from jaxperf.training.layout import CONTEXT_METHODS, RECOMPUTE, SCHEDULES, format_fields

TASK = "train"
LARGEST_GROUP = 2**20  # ranks of one parallel axis


class Number(NamedTuple):
    """A whole number from `least` to `most`, and the `field` of a `Layout` that it is."""

    field: str
    default: int
    most: int = LARGEST_GROUP
    least: int = 1


class Name(NamedTuple):
    """One of `allowed`, and the `field` of a `Layout` that holds its place there."""

    field: str
    default: str
    allowed: tuple[str, ...]


FIELDS = {
    "tensor_parallel": Number("tensor", 1),
    "pipeline_parallel": Number("pipeline", 1),
    "context_parallel": Number("context", 1),
    "expert_parallel": Number("expert", 1),
    "data_parallel": Number("data", 1),
    "microbatch": Number("microbatch", 1),
    "global_batch": Number("global_batch", 1024, 2**27),
    "sequence": Number("sequence", 4096, 2**27),
    "interleave": Number("interleave", 1, 1024),
    "zero": Number("zero", 1, 3, 0),
    "shard_group": Number("shard_group", 0, least=0),
    "sequence_parallel": Number("sequence_parallel", 1, 1, 0),
}
NAMES = {
    "schedule": Name("schedule", "1f1b", SCHEDULES),
    "recompute": Name("recompute", "none", RECOMPUTE),
    "context_method": Name("context_method", "ring", CONTEXT_METHODS),
}
WORLD = Number("devices", 0)
DEFAULTS = {**{name: each.default for name, each in (FIELDS | NAMES).items()}, "dtype": "bf16"}


def checked_values(name: str, value: Any) -> list[Any]:
    """One value or a sequence of them as a list: whole numbers in range, or names as spelled here.

    **Raises:** `InputError` naming the parameter, the value and what is allowed.
    """
    entries = entries_of(name, value)
    if name == "device":
        return entries
    if name == "dtype" or name in NAMES:
        return [_checked_name(name, entry) for entry in entries]
    facts = WORLD if name == "world_size" else FIELDS[name]
    return [_checked_number(name, entry, facts) for entry in entries]


def _checked_name(name: str, entry: Any) -> str:
    if not isinstance(entry, str):
        kind = "number format, such as bf16" if name == "dtype" else name.replace("_", " ")
        raise InputError(f"'{name}' is {show(entry)}; it must be the name of a {kind}.")
    if name == "dtype":
        return format_name(entry)
    key, allowed = entry.strip().lower().replace("_", "-"), NAMES[name].allowed
    if key not in allowed:
        raise InputError(f"'{name}' is {show(entry)}; allowed: {', '.join(allowed)}.{did_you_mean(key, allowed)}")
    return key


def _checked_number(name: str, entry: Any, facts: Number) -> int:
    entry = entry.item() if isinstance(entry, np.generic) else entry
    number = isinstance(entry, int | float) and not isinstance(entry, bool)
    if not number or not facts.least <= entry <= facts.most or entry != int(entry):
        raise InputError(f"'{name}' is {show(entry)}; it must be a whole number from {facts.least} to {facts.most:,}.")
    return int(entry)


def names_axis(name: str, names: Sequence[str]) -> Axis:
    """An axis of the places of names among those allowed, labeled by them."""
    return axis(name, [float(NAMES[name].allowed.index(each)) for each in names], names)


def format_axis(names: Sequence[str]) -> Axis:
    """Number formats: the fields of a `Layout` that follow from each, and its place among those that differ, since a
    zip axis may repeat one."""
    fields = stack("dtype", [{key: np.asarray(each) for key, each in format_fields(name).items()} for name in names])
    distinct = list(dict.fromkeys(names))
    places = np.array([distinct.index(name) for name in names], np.int32)
    return Axis("dtype", {"formats": fields, "place": places}, {"dtype": np.array(names)})
