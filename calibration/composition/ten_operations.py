"""The ten operations that somebody with an hour on a device would measure: the heaviest of the iterations asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from calibration.composition.kernel_times import kernel_times
from calibration.composition.rows import Row
from calibration.datasets.schema import KernelTable, Read
from calibration.kernels.parameters import Parameters
from jaxperf.models.graph import Op
from jaxperf.models.graph_steps import Laid

COUNT = 10
FAMILIES = ("gemm", "bmm", "elementwise", "softmax", "norm")
LEAST = {"gemm": 4, "bmm": 2, "softmax": 1, "elementwise": 1, "norm": 1}  # of each family, if there are any


def ten_operations(
    reads: Sequence[Read], device: str, rows: Sequence[Row], laid: Mapping[tuple, Laid], parameters: Parameters
) -> Read | None:
    """The measured rows of a device nearest to the heaviest kernels of some iterations; `None` where it has none.

    The weights are predicted times, so that nothing measured on the device chooses them.
    """
    weights: dict[tuple, float] = {}
    ops: dict[tuple, Op] = {}
    for row in rows:
        graph = laid[row.configuration]
        time = kernel_times(graph.ops, [device], parameters).predicted[0]
        for op, each in zip(graph.ops, time, strict=True):
            if op.family in FAMILIES:
                ops[op.key] = op
                weights[op.key] = max(weights.get(op.key, 0.0), float(np.nan_to_num(each)))
    ranked = sorted(ops.values(), key=lambda op: -weights[op.key])
    chosen = _chosen(ranked)
    tables = []
    for read in reads:
        for table in read.tables:
            wanted = [op for op in chosen if op.family == table.family]
            own = np.flatnonzero((table.device == device) & (table.flag == 0) & np.isfinite(table.measured))
            if wanted and len(own):
                tables.append(table.take(own[_nearest(table.take(own), wanted)]))
    return dataclasses.replace(reads[0], tables=tuple(tables), problems=()) if tables else None


def _chosen(ranked: Sequence[Op]) -> list[Op]:
    """Ten of the ranked operations: the heaviest of each family first, then the heaviest of all."""
    first = [op for family, least in LEAST.items() for op in [op for op in ranked if op.family == family][:least]]
    rest = [op for op in ranked if op not in first]
    return (first + rest)[:COUNT]


def _nearest(table: KernelTable, wanted: Sequence[Op]) -> np.ndarray:
    """Positions of the measured rows nearest in the logarithms of their shapes, of the same operation if there is one;
    each at most once."""
    names = [name for name in table.shape if name in wanted[0].shape]
    shapes = np.log(np.stack([np.maximum(table.shape[name], 1.0) for name in names], axis=1))
    kinds = table.text.get("op", np.full(len(table), "")).astype(str)
    taken: list[int] = []
    for op in wanted:
        target = np.log([max(op.shape[name], 1.0) for name in names])
        distance = np.abs(shapes - target).sum(axis=1) + 10.0 * (kinds != op.note)
        distance[taken] = np.inf
        taken.append(int(np.argmin(distance)))
    return np.unique(taken)
