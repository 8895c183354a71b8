"""NAS-Bench-201 (Dong and Yang, ICLR 2020): one cell of six edges, fifteen of it in a network for 32 x 32 images.

A network is three stages of five cells, the channels doubled and the picture halved between them by a residual block.
Every stage costs the same: twice the channels on half the height and width are as many multiplications.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from hwspecs.errors import InputError, did_you_mean

EXAMPLE = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|"
OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NONE, SKIP, CONV_1, CONV_3, POOL = range(len(OPERATIONS))
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # from node to node of a cell, as the string lists them
LAST = 3  # the cell's output node
CELLS = 15
CHANNELS, PIXELS = 16, 32 * 32  # of the first stage
CLASSES = 10


class Frame(NamedTuple):
    """What stands beside the cells: a stem, two residual blocks of three convolutions, pooling and a classifier."""

    macs: int
    values: int
    kernels: int


# A block halves the height and width and doubles the channels: 3 x 3 with stride 2, 3 x 3, and 1 x 1 as a shortcut.
_BLOCK_MACS = PIXELS // 4 * CHANNELS * 2 * (9 * CHANNELS + 9 * CHANNELS * 2 + CHANNELS)  # of either
_BLOCK_VALUES = CHANNELS * PIXELS * 4  # of the first: it reads twice a whole picture and passes half of one four times
FRAME = Frame(
    macs=9 * 3 * CHANNELS * PIXELS + 2 * _BLOCK_MACS + (4 * CHANNELS + 1) * CLASSES,
    values=(3 + CHANNELS) * PIXELS + _BLOCK_VALUES * 3 // 2 + CHANNELS * PIXELS // 4,
    kernels=1 + 2 * 3 + 2,
)


def parse(text: str) -> tuple[int, ...]:
    """The operation of each of `EDGES`, as a place in `OPERATIONS`.

    **Raises:** `InputError` for a string that is no cell.
    """
    nodes = [re.findall(r"([^|~]+)~(\d+)", node) for node in text.strip().split("+")]
    found = [(int(start), end + 1, name) for end, node in enumerate(nodes) for name, start in node]
    if tuple(edge[:2] for edge in found) != EDGES:
        raise InputError(f"'{text}' is no cell of NAS-Bench-201; one is written {EXAMPLE}.")
    for *_, name in found:
        if name not in OPERATIONS:
            raise InputError(f"'{name}' is no operation of NAS-Bench-201.{did_you_mean(name, OPERATIONS)}")
    return tuple(OPERATIONS.index(name) for *_, name in found)


def features(cells: np.ndarray) -> np.ndarray:
    """What the latency of networks is linear in [N, F]: how often each operation stands in the cell, how often where it
    is used, how many edges are, how long the longest chain of operations is, and what stands on which edge.

    Engines that compile a network drop what no output depends on; others run it. The devices' coefficients tell.

    **Arguments:** `cells` [N, 6]: as `parse` gives them.
    """
    there = np.eye(len(OPERATIONS))[cells]  # [N, edge, operation]
    used = _used(cells)
    live = there * used[:, :, None]
    counts = (each[:, :, SKIP:].sum(1) for each in (live, there))
    return np.column_stack([*counts, used.sum(1), _longest(cells), there[:, :, SKIP:].reshape(len(cells), -1)])


def work(cells: np.ndarray) -> np.ndarray:
    """Multiply-accumulates, values read and written, and kernels of the networks [N, 3], on unused edges too: what the
    latency goes with where a device is bound by its arithmetic, its memory, or the start of each kernel."""
    convolutions = CHANNELS**2 * PIXELS * ((cells == CONV_1) + 9.0 * (cells == CONV_3)).sum(1)
    passed = CELLS * CHANNELS * PIXELS * (1.0 + 1.0 / 2.0 + 1.0 / 4.0) / 3.0  # one edge of all cells; stages halve it
    kernels = CELLS * (cells > SKIP).sum(1)
    edges = 2.0 * passed * (cells != NONE).sum(1)
    return np.column_stack([FRAME.macs + CELLS * convolutions, FRAME.values + edges, FRAME.kernels + kernels])


def _used(cells: np.ndarray) -> np.ndarray:
    """Whether an edge lies on a way from the cell's input to its output [N, 6]."""
    from_input = np.zeros((len(cells), LAST + 1), bool)
    to_output = np.zeros_like(from_input)
    from_input[:, 0] = to_output[:, LAST] = True
    for edge, (start, end) in enumerate(EDGES):
        from_input[:, end] |= from_input[:, start] & (cells[:, edge] != NONE)
    for edge, (start, end) in reversed(tuple(enumerate(EDGES))):
        to_output[:, start] |= to_output[:, end] & (cells[:, edge] != NONE)
    starts, ends = np.array(EDGES).T
    return from_input[:, starts] & to_output[:, ends] & (cells != NONE)


def _longest(cells: np.ndarray) -> np.ndarray:
    """Operations that wait for one another on the longest way through the cell [N]; a skip is none."""
    depth = np.full((len(cells), LAST + 1), -np.inf)
    depth[:, 0] = 0.0
    takes = cells > SKIP
    for edge, (start, end) in enumerate(EDGES):
        along = np.where(cells[:, edge] == NONE, -np.inf, depth[:, start] + takes[:, edge])
        depth[:, end] = np.maximum(depth[:, end], along)
    return np.maximum(depth[:, LAST], 0.0)
