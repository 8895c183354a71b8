"""Every layout of a number of devices: who shares what, and how the rest is chosen, as columns of `Layout` fields.

Two tables multiplied: "splits" say how devices are divided among the parallel axes, "variants" how memory is saved and
the pipeline scheduled. Variants that a split cannot tell apart (a schedule without a pipeline, a shard of one) are left
out, so that no layout comes twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from jaxperf.training.layout import CONTEXT_METHODS, RECOMPUTE, SCHEDULES

Columns = dict[str, Float[np.ndarray, " rows"]]

SPLIT_FIELDS = ("tensor", "context", "pipeline", "data", "expert", "microbatch")
GROUP_FIELDS = SPLIT_FIELDS[:5]  # what makes two layouts different to a reader
VARIANT_FIELDS = (
    "zero", "shard_group", "recompute", "sequence_parallel", "context_method", "schedule", "interleave",
)  # fmt: skip


@dataclass(frozen=True)
class Space:
    """What is tried: `microbatches` [sequences]; `interleaves`: chunks a stage of the interleaved schedule;
    `least_tokens` a context-parallel rank keeps of a sequence; `schedules`, `recomputes`: their names."""

    microbatches: tuple[int, ...] = (1, 2, 4, 8)
    interleaves: tuple[int, ...] = (2, 4)
    least_tokens: int = 1024
    schedules: tuple[str, ...] = SCHEDULES
    recomputes: tuple[str, ...] = RECOMPUTE


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    low = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*low, *(number // each for each in low)})


def splits(devices: int, experts: int, sequence: int, space: Space) -> Columns:
    """Every ordered factorization tensor x context x pipeline x data = `devices`, with every expert group that divides
    the `experts` and every micro-batch; one row each."""
    groups = [
        (tensor, context, pipeline, devices // (tensor * context * pipeline))
        for tensor in divisors(devices)
        for context in divisors(devices // tensor)
        if context == 1 or sequence >= context * space.least_tokens
        for pipeline in divisors(devices // (tensor * context))
    ]
    rows = [
        (*group, expert, microbatch)
        for group in groups
        for expert in divisors(max(experts, 1))
        if (group[0] * group[1] * group[3]) % expert == 0
        for microbatch in space.microbatches
    ]
    return dict(zip(SPLIT_FIELDS, np.array(rows, float).T, strict=True))


def frugal() -> Columns:
    """The variants one of which needs least memory, whatever the split: 1F1B and sequence parallelism always help,
    sharding and recomputation only where there is something to share or to drop."""
    schedule = SCHEDULES.index("1f1b")
    rows = [(zero, 0, recompute, 1, 0, schedule, 1) for zero in range(4) for recompute in range(len(RECOMPUTE))]
    return dict(zip(VARIANT_FIELDS, np.array(rows, float).T, strict=True))


def variants(split: Mapping[str, bool], node: int, space: Space) -> Columns:
    """How a split of this kind can be run, one row each.

    **Arguments:** `split`: whether there are several "tensor", "context" and "pipeline" ranks, ranks to "shard" over,
    and whole "nodes" of them; `node`: devices of one, and data-parallel ranks of a shard (HSDP) [1].
    """
    groups = [(3, node)] if split["nodes"] else []

    stages = (1, 3) if split["pipeline"] else (1, 2, 3)  # with a pipeline ZeRO-2 is ZeRO-1 (`Layout.split_gradients`)

    def sharding(schedule: int) -> list[tuple[int, int]]:
        shared = split["shard"] or schedule == SCHEDULES.index("dualpipe")  # whose other end has copies
        return [(0, 0), *((stage, 0) for stage in stages if shared), *groups]

    rows = [
        (*shard, recompute, sequence_parallel, method, *schedule)
        for recompute in map(RECOMPUTE.index, space.recomputes)
        for sequence_parallel in ((0, 1) if split["tensor"] else (0,))
        for method in (range(len(CONTEXT_METHODS)) if split["context"] else (0,))
        for schedule in (_schedules(space) if split["pipeline"] else [(SCHEDULES.index("1f1b"), 1)])
        for shard in sharding(schedule[0])
    ]
    return dict(zip(VARIANT_FIELDS, np.array(rows, float).T, strict=True))


def kinds(table: Columns, node: int, sparse: bool) -> Iterator[tuple[dict[str, bool], np.ndarray]]:
    """(what `variants` asks about a split, the rows of the splits of that kind).

    **Arguments:** `sparse`: whether the model has experts, copies of which lie on tensor-parallel ranks too.
    """
    several = {name: table[name] > 1.0 for name in ("tensor", "context", "pipeline")}
    copies = table["tensor"] * table["data"] * table["context"] / table["expert"] if sparse else 0.0
    several["shard"] = (table["data"] * table["context"] > 1.0) | (copies > 1.0)
    several["nodes"] = (table["data"] > node) & (table["data"] % node == 0.0) & (node > 1)
    codes = sum(flags.astype(int) << place for place, flags in enumerate(several.values()))
    for flags in itertools.product((False, True), repeat=len(several)):
        rows = np.flatnonzero(codes == sum(flag << place for place, flag in enumerate(flags)))
        if len(rows):
            yield dict(zip(several, flags, strict=True)), rows


def crossed(table: Columns, rows: np.ndarray, others: Columns) -> Columns:
    """These rows of a table, each with every row of another: the other runs fastest."""
    count = len(next(iter(others.values())))
    repeated = {name: np.repeat(values[rows], count) for name, values in table.items()}
    return repeated | {name: np.tile(values, len(rows)) for name, values in others.items()}


def _schedules(space: Space) -> list[tuple[int, int]]:
    """(code, chunks a stage): several only where the schedule has them, two in the V of ZB-V."""
    chunks = {"interleaved": space.interleaves, "zb-v": (2,)}
    return [(SCHEDULES.index(name), each) for name in space.schedules for each in chunks.get(name, (1,))]
