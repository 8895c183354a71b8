"""A collective over several nodes is no faster than the same in one of them.

In one node the links may have been measured slower than the law has them (eight L40S over two sockets: a tenth of its
rate). Where nothing alike was measured between nodes, the law alone would be faster over nine ranks than over eight. A
ring or a tree over more ranks moves as much over every link of a node, and takes more steps; of an all-to-all a rank
sends to its own node what the node is of all ranks.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from calibration.collectives.laws import OPS
from calibration.collectives.points import Points
from calibration.datasets.schema import KernelTable

_LEAST_RANKS = 2.0
_ALL_TO_ALL = OPS.index("all_to_all")
_ALIKE = [OPS.index(op) for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")]


def spanning(points: Points, node: np.ndarray) -> np.ndarray:
    """Places of the rows that run over several nodes what one `node` of theirs, of so many ranks [R], could run."""
    op = points.numbers["op"]
    several = (points.numbers["nodes"] > 1.0) & (node >= _LEAST_RANKS) & (points.problem == 0)
    return np.flatnonzero(several & np.isin(op, [*_ALIKE, _ALL_TO_ALL]))


def in_one_node(table: KernelTable, points: Points, rows: np.ndarray, node: np.ndarray) -> KernelTable:
    """The collectives of some rows in the first of their nodes, of `node` ranks [R] of the whole table."""
    few, ranks = table.take(rows), node[rows]
    apart = points.numbers["op"][rows] == _ALL_TO_ALL
    part = np.where(apart, ranks / points.numbers["ranks"][rows], 1.0)
    shape = {**few.shape, "num_gpus": ranks, "gpus_per_node": ranks, "bytes": few.shape["bytes"] * part}
    return dataclasses.replace(few, shape=shape)
