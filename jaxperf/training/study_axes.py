"""The parameters of a training sweep: which field of a `Layout` each is, what it may be, and its axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.formats import format_name
from jaxperf.models.config import show
from jaxperf.sweeps import Axis, axis, stack
from jaxperf.sweeps.named import entries_of
from jaxperf.training.layout import CONTEXT_METHODS, MODULES, RECOMPUTE, SCHEDULES, format_fields, module_fields

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
# Where nothing is said, that of a `Layout`: shares from 0 to 1, a size, and modules of selective recomputation.
SHARES = {
    "recomputed_share": "recomputed_share",
    "offload_activations": "offload",
    "offload_optimizer": "offload_optimizer",
}
HOST, RECOMPUTED = "host_memory", "recompute_modules"
FIELD_OF = {**{name: each.field for name, each in (FIELDS | NAMES).items()}, **SHARES, HOST: "host_memory"}
WORLD = Number("devices", 0)
DEFAULTS = {**{name: each.default for name, each in (FIELDS | NAMES).items()}, "dtype": "bf16"}
OFFLOADS = ("offload_activations", "offload_optimizer")


def checked_values(name: str, value: Any) -> list[Any]:
    """One value or a sequence of them as a list: numbers in range, sizes in bytes, or names as spelled here.

    **Raises:** `InputError` naming the parameter, the value and what is allowed.
    """
    entries = entries_of(name, value)
    if name == "device":
        return entries
    if name == "dtype" or name in NAMES:
        return [_checked_name(name, entry) for entry in entries]
    if name == RECOMPUTED:
        return [_checked_modules(entry) for entry in entries]
    if name == HOST:
        return [_checked_size(name, entry) for entry in entries]
    if name in SHARES:
        return [_checked_share(name, entry) for entry in entries]
    facts = WORLD if name == "world_size" else FIELDS[name]
    return [_checked_number(name, entry, facts) for entry in entries]


def check_effects(given: Mapping[str, Any]) -> None:
    """Raises `InputError` for a parameter that changes nothing beside the others, of `given` values."""
    unsaid = "selective" if RECOMPUTED in given else DEFAULTS["recompute"]
    recomputes = set(checked_values("recompute", given.get("recompute", unsaid)))
    if RECOMPUTED in given and "selective" not in recomputes:
        raise InputError(f"'{RECOMPUTED}' are of selective recomputation; add 'recompute: selective'.")
    if "recomputed_share" in given and recomputes == {"none"}:
        raise InputError("'recomputed_share' is of what recomputes, and nothing does; add 'recompute: full'.")
    if HOST in given and not any(max(checked_values(name, given.get(name, 0.0))) > 0.0 for name in OFFLOADS):
        raise InputError(f"'{HOST}' is of what is offloaded; add one of {', '.join(OFFLOADS)}, or leave it out.")


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


def _checked_modules(entry: Any) -> str:
    """Modules of selective recomputation, one entry "moe_act mla_up_proj", each once and in their order."""
    names = [name for name in re.split(r"[\s,;+]+", entry) if name] if isinstance(entry, str) else []
    if not names:
        example = "it must be names of modules, such as 'moe_act mla_up_proj'"
        raise InputError(f"'{RECOMPUTED}' is {show(entry)}; {example}.")
    chosen = module_fields(names)
    return " ".join(name for name in MODULES if chosen[f"recompute_{name}"])


def _checked_size(name: str, entry: Any) -> float:
    entry = entry.item() if isinstance(entry, np.generic) else entry
    try:
        size = hwspecs.parse_quantity(entry, "byte") if isinstance(entry, str) else entry
    except InputError as error:
        raise InputError(f"'{name}': {error}") from None
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0.0 < size < float("inf"):
        raise InputError(f"'{name}' is {show(entry)}; it must be a size, such as 250 GB.")
    return float(size)


def _checked_share(name: str, entry: Any) -> float:
    entry = entry.item() if isinstance(entry, np.generic) else entry
    if isinstance(entry, bool) or not isinstance(entry, int | float) or not 0.0 <= entry <= 1.0:
        raise InputError(f"'{name}' is {show(entry)}; it must be a number from 0 to 1.")
    return float(entry)


def _checked_number(name: str, entry: Any, facts: Number) -> int:
    entry = entry.item() if isinstance(entry, np.generic) else entry
    number = isinstance(entry, int | float) and not isinstance(entry, bool)
    if not number or not facts.least <= entry <= facts.most or entry != int(entry):
        raise InputError(f"'{name}' is {show(entry)}; it must be a whole number from {facts.least} to {facts.most:,}.")
    return int(entry)


def names_axis(name: str, names: Sequence[str]) -> Axis:
    """An axis of the places of names among those allowed, labeled by them."""
    return axis(name, [float(NAMES[name].allowed.index(each)) for each in names], names)


def modules_axis(entries: Sequence[str]) -> Axis:
    """What selective recomputation computes again: the fields of a `Layout` that follow from each entry."""
    points = [{key: np.asarray(on) for key, on in module_fields(each.split()).items()} for each in entries]
    return Axis(RECOMPUTED, {"modules": stack(RECOMPUTED, points)}, {RECOMPUTED: np.array(entries)})


def format_axis(names: Sequence[str]) -> Axis:
    """Number formats: the fields of a `Layout` that follow from each, and its place among those that differ, since a
    zip axis may repeat one."""
    fields = stack("dtype", [{key: np.asarray(each) for key, each in format_fields(name).items()} for name in names])
    distinct = list(dict.fromkeys(names))
    places = np.array([distinct.index(name) for name in names], np.int32)
    return Axis("dtype", {"formats": fields, "place": places}, {"dtype": np.array(names)})
