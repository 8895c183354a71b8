"""How a product of axes is cut into blocks: every block is one contiguous run of rows in C order."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hwspecs.errors import InputError

MAX_POINTS = 10**10
# Measured on a decode sweep: every block starts some 200 small loops, 0.05 to 0.1 ms, so blocks are as large as leaves
# the results of three in the processor's cache, in which the next block's are written over them. Half as many bytes are
# as quick on a quiet machine, and a fifth slower where others use that cache.
_CACHED_BYTES = 2**23
_USUAL_BLOCK = 2**17
_SMALLEST_BLOCK = 2**15
_BLOCK_BYTES = 2**24


@dataclass(frozen=True)
class Block:
    """One block: rows `start`..`stop` of the flattened product, which are `slices` of its axes."""

    index: int
    start: int
    stop: int
    slices: tuple[slice, ...]

    @property
    def points(self) -> int:
        return self.stop - self.start

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(piece.stop - piece.start for piece in self.slices)


@dataclass(frozen=True)
class Plan:
    """Blocks of one shape over a product of axes.

    Axes before `split` advance one value at a time, axis `split` advances by `chunk`, later axes are whole. So blocks
    in order are consecutive rows, and results can be written without ever being transposed.
    """

    sizes: tuple[int, ...]
    split: int
    chunk: int

    @property
    def points(self) -> int:
        return math.prod(self.sizes)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The one shape that is compiled; the last block along `split` may cover less of it."""
        return (1,) * self.split + (self.chunk,) + self.sizes[self.split + 1 :]

    @property
    def block_points(self) -> int:
        return math.prod(self.block_shape)

    @property
    def blocks(self) -> int:
        return math.prod(self.sizes[: self.split]) * self._pieces

    @property
    def _pieces(self) -> int:
        return -(-self.sizes[self.split] // self.chunk)

    def block(self, index: int) -> Block:
        """Block number `index`, counted from 0."""
        outer, piece = divmod(index, self._pieces)
        first = piece * self.chunk
        last = min(first + self.chunk, self.sizes[self.split])
        inner = math.prod(self.sizes[self.split + 1 :])
        row = outer * self.sizes[self.split]
        leading = []
        for size in reversed(self.sizes[: self.split]):
            outer, position = divmod(outer, size)
            leading.append(slice(position, position + 1))
        slices = (*reversed(leading), slice(first, last), *(slice(0, size) for size in self.sizes[self.split + 1 :]))
        return Block(index, (row + first) * inner, (row + last) * inner, slices)

    def iterate(self, skip: Collection[int] = frozenset()) -> Iterator[Block]:
        """The blocks in order, without those numbered in `skip`."""
        return (self.block(index) for index in range(self.blocks) if index not in skip)


def check_size(sizes: Mapping[str, int], max_points: int = MAX_POINTS) -> None:
    """Refuse a product that is too large, before anything is allocated.

    **Raises:** `InputError` naming the size of each axis.
    """
    points = math.prod(sizes.values())
    if points > max_points:
        shown = " x ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise InputError(
            f"This sweep has {points:,} points ({shown}), above the limit of {max_points:,}: shorten an axis."
        )


def default_block_points(bytes_per_point: int) -> int:
    """Points per block so that dispatch is negligible and a block's metrics need little memory."""
    width = max(1, bytes_per_point)
    return max(_SMALLEST_BLOCK, min(max(_USUAL_BLOCK, _CACHED_BYTES // width), _BLOCK_BYTES // width))


def make_plan(sizes: tuple[int, ...], points_per_block: int) -> Plan:
    """The plan with at most `points_per_block` points a block: leading axes shrink first.

    **Arguments:** `sizes`: length of each axis, all >= 1. `points_per_block`: the budget; a block is never empty.

    **Raises:** `InputError` if `points_per_block` is below one.
    """
    if points_per_block < 1:
        raise InputError(f"points_per_block must be at least one, not {points_per_block}.")
    inner = 1
    for split in reversed(range(len(sizes))):
        if inner * sizes[split] > points_per_block:
            most = max(1, points_per_block // inner)
            pieces = -(-sizes[split] // most)
            return Plan(sizes, split, -(-sizes[split] // pieces))  # equal pieces: little of the last one is padding
        inner *= sizes[split]
    return Plan(sizes, 0, sizes[0])
