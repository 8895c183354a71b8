"""Rows of a table that share everything but their shape, gathered: what they share is computed once a group."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Column, as_text, repeated

IDENTITY = ("device", "framework", "version", "kernel", "dtype", "cache")
BLOCKS = (256, 16, 1)  # rows of one group side by side; the fewer, the more groups a chunk holds
# Rows computed at once. A program costs the same to start for many rows as for few, and the hidden layers of the larger
# chunk still fit a processor's last cache.
CHUNKS = (2**15, 2**13)
BLOCK_WASTE, CHUNK_WASTE = 1.5, 1.1  # how many times longer a table may get by what fills its blocks and its chunks
FEW_ROWS = 2**17  # `jaxperf kernels` on so many products without a cache: 7.2 s, compiled 9.7; again 2.4 and 1.0
DENSE = 4  # codes up to so many times the rows are numbered by a table, beyond that by sorting


@dataclass(frozen=True)
class Groups:
    """`which` [R]: the group of each row; `first` [G]: a row of each group."""

    which: np.ndarray
    first: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    @functools.cached_property
    def order(self) -> np.ndarray:
        """The rows, group after group [R]; small integers are sorted by counting."""
        small = self.which.astype(np.uint16) if len(self) < 2**16 else self.which
        return np.argsort(small, kind="stable")

    @property
    def few(self) -> bool:
        """Whether the rows are computed sooner on the host than what computes them is compiled."""
        return len(self.which) <= FEW_ROWS

    def chunks(self, wanted: np.ndarray | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """The rows in blocks of one group each, and the blocks in chunks: groups [C] and rows [C, B].

        A block is filled up by its last row again. So is the last chunk by its last block, where a compiled program
        wants all chunks of one size.

        **Arguments:** `wanted` [G]: of these groups (default: of all).
        """
        count = np.bincount(self.which, minlength=len(self))
        start = np.r_[0, np.cumsum(count)][:-1]
        if wanted is not None:
            count = np.where(wanted, count, 0)
        size = _largest(BLOCKS, count, BLOCK_WASTE)
        blocks = -(-count // size)
        group = np.repeat(np.arange(len(self)), blocks)
        before = np.arange(len(group)) - np.repeat(np.r_[0, np.cumsum(blocks)][:-1], blocks)
        place = before[:, None] * size + np.arange(size)
        rows = self.order[start[group, None] + np.minimum(place, count[group, None] - 1)]
        each = _largest(CHUNKS, size * blocks.sum(), CHUNK_WASTE) // size
        blocks = (
            np.arange(len(group)) if self.few else np.arange(-(-len(group) // each) * each).clip(max=len(group) - 1)
        )
        chunks = [blocks[start : start + each] for start in range(0, len(blocks), each)]
        return [(group[chunk], rows[chunk]) for chunk in chunks]


def group(table: KernelTable) -> Groups:
    """The groups of a table: rows alike in device, software, formats, operation and routing."""
    absent = repeated("", len(table))
    columns: list[Column] = [getattr(table, name) for name in IDENTITY]
    return grouped([*columns, table.text.get("op", absent), table.text.get("distribution", absent)])


def grouped(columns: Sequence[Column]) -> Groups:
    """Groups of rows that have the same text in every column."""
    which, total = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        text = as_text(column).distinct()
        if len(text.values) > 1:
            if total * len(text.values) > _most_dense(len(which)):
                which, total = _numbered(which, total)
            which, total = which * len(text.values) + text.codes, total * len(text.values)
    which, total = _numbered(which, total)
    first = np.empty(total, np.int64)
    first[which[::-1]] = np.arange(len(which))[::-1]
    return Groups(which, first)


def _most_dense(rows: int) -> int:
    return DENSE * rows + CHUNKS[-1]


def _numbered(codes: np.ndarray, limit: int) -> tuple[np.ndarray, int]:
    """Codes below `limit` renumbered without gaps, and how many there are."""
    if limit > _most_dense(len(codes)):
        distinct, which = np.unique(codes, return_inverse=True)
        return which, len(distinct)
    present = np.zeros(limit, bool)
    present[codes] = True
    number = np.cumsum(present) - 1
    return number[codes], int(number[-1]) + 1


def _largest(sizes: Sequence[int], count: np.ndarray, waste: float) -> int:
    """The first size, the largest first, that fills up `count` rows a group to at most `waste` times as many in all."""
    return next((size for size in sizes if (-(-count // size) * size).sum() <= waste * count.sum()), sizes[-1])
