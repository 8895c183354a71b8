"""The blocks of a sweep evaluated: compiled once for all of them, or on the host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxperf.core.compiler_options import JOINTLY, STRAIGHT, UNOPTIMIZED, WIDE_VECTORS
from jaxperf.sweeps.axes import Axis
from jaxperf.sweeps.host import evaluate_on_host
from jaxperf.sweeps.plan import Block, Plan
from jaxperf.sweeps.point import TracedPoint
from jaxperf.sweeps.program import Program
from jaxperf.sweeps.staged import evaluate, hidden_ones

# Up to so many points nothing is compiled. Of a decode step of 2,000 operations a million points take 0.5 s on the host
# and 0.1 s compiled, after 2.5 s of compilation; benchmarks/million.yaml, 1.5 million points with their intervals, is
# done in 11.4 s with all else, for 15.6 s.
FEW_POINTS = 2**22
ROOMS = 3  # sets of result buffers: one being computed, one being read, and the one read before it
NONE: frozenset[int] = frozenset()

Evaluated = tuple[Block, Sequence[np.ndarray]]  # a block and its metrics, which may be longer than it at their end


Blocks = Callable[[Collection[int]], Iterator[Evaluated]]  # of the numbers of blocks that are left out


def make_blocks(point: TracedPoint, axes: Sequence[Axis], plan: Plan, points: int) -> Blocks:
    """The way in which so many points are computed soonest, in blocks of the plan; the compiler takes a loop better."""
    if points <= FEW_POINTS and point.program.plain:
        return HostBlocks(point, axes, plan)
    return CompiledBlocks(point, axes, plan, points)


class HostBlocks:
    """Evaluates blocks with NumPy (`jaxperf.sweeps.host`)."""

    def __init__(self, point: TracedPoint, axes: Sequence[Axis], plan: Plan) -> None:
        self.point = point
        self.plan = plan
        self.along, self.leaves = _feed(axes)

    def __call__(self, skip: Collection[int]) -> Iterator[Evaluated]:
        constants = list(self.point.constants)
        held = [NONE] * len(constants) + [NONE if at is None else frozenset({at}) for at in self.along]
        for block in self.plan.iterate(skip):
            pieces = [
                leaf if at is None else leaf[block.slices[at]] for leaf, at in zip(self.leaves, self.along, strict=True)
            ]
            yield (
                block,
                evaluate_on_host(self.point.program, [*constants, *pieces], held, dict(enumerate(block.shape))),
            )


class CompiledBlocks:
    """Evaluates blocks by one compiled function, each while the one before is read; at most two are in memory.

    **Arguments:** `points`: how many will be evaluated in all; the compiler takes more time for more.
    """

    def __init__(self, point: TracedPoint, axes: Sequence[Axis], plan: Plan, points: int) -> None:
        self.plan = plan
        self.dtypes = list(point.metrics.values())
        along, leaves = _feed(axes)
        padded = [_padded(leaf, plan, at) for leaf, at in zip(leaves, along, strict=True)]
        self.fixed = jax.device_put((list(point.constants), padded))
        self.call = _compile(point, along, plan, points)
        self.rooms: list[list[Array]] = []

    def __call__(self, skip: Collection[int]) -> Iterator[Evaluated]:
        ones = hidden_ones(str(jnp.result_type(float)))
        rooms = [self.rooms.pop() if self.rooms else self._new_room() for _ in range(ROOMS)]
        running: tuple[Block, list[Array]] | None = None
        ahead: tuple[Block, list[Array]] | None = None
        try:
            for block in self.plan.iterate(skip):
                starts = np.array([piece.start for piece in block.slices], np.int32)
                # Results go into the room of a block that was read, which spares the page faults of fresh memory.
                ahead = block, self.call(rooms.pop(0), *self.fixed, starts, ones)
                if running is not None:
                    yield running[0], list(map(np.asarray, running[1]))
                    rooms.append(running[1])
                running = ahead
            if running is not None:
                yield running[0], list(map(np.asarray, running[1]))
                rooms.append(running[1])
            self.rooms += rooms
        finally:
            if ahead is not None:
                jax.block_until_ready(ahead[1])  # who was stopped must not end while a thread writes there

    def _new_room(self) -> list[Array]:
        """Empty room for the results of one block."""
        shape = [length for length in self.plan.block_shape if length > 1]
        return [jax.device_put(np.zeros(shape, dtype), may_alias=False) for dtype in self.dtypes]


def _feed(axes: Sequence[Axis]) -> tuple[list[int | None], list[np.ndarray]]:
    """Along which axis each leaf of the arguments varies, and the leaves.

    A leaf with the same value all along its axis is a constant: what depends on it alone is computed once.
    """
    along: list[int | None] = []
    leaves: list[np.ndarray] = []
    for position, one in enumerate(axes):
        for leaf in jax.tree.leaves(dict(one.arguments)):
            leaf = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
            uniform = bool((leaf == leaf[:1]).all())
            along.append(None if uniform else position)
            leaves.append(leaf[0] if uniform else leaf)
    return along, leaves


def _padded(leaf: np.ndarray, plan: Plan, position: int | None) -> np.ndarray:
    """`leaf` with its last row repeated, so that the last block along the split axis has the shape of the others."""
    if position != plan.split:
        return leaf
    missing = -len(leaf) % plan.chunk
    return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])


def _compile(point: TracedPoint, along: Sequence[int | None], plan: Plan, points: int) -> Callable[..., list[Array]]:
    """The jitted block function. A second trace would be a bug in the engine (a changed shape), so it raises."""
    lengths = dict(enumerate(plan.block_shape))
    grid = {position: length for position, length in lengths.items() if length > 1}
    inside = [frozenset({position} & grid.keys()) if position is not None else NONE for position in along]
    depends = [NONE] * len(point.constants) + inside

    def block(
        room: list[Array], constants: Sequence[Array], leaves: Sequence[Array], starts: Array, ones: Array
    ) -> list[Array]:
        del room  # donated: the results are written into it
        pieces = [
            leaf if position is None else _piece(leaf, starts[position], lengths[position])
            for leaf, position in zip(leaves, along, strict=True)
        ]
        return evaluate(point.program, [*constants, *pieces], depends, grid, ones)

    once = eqx.debug.assert_max_traces(block, max_traces=1)
    return jax.jit(once, donate_argnums=0, keep_unused=True, compiler_options=_options(point.program, points))


def _options(program: Program, points: int) -> dict[str, Any]:
    """What the compiler is told of so many points of a program."""
    if points <= FEW_POINTS:
        return UNOPTIMIZED | STRAIGHT
    return WIDE_VECTORS | (JOINTLY if program.plain else {})


def _piece(leaf: Array, start: Array, length: int) -> Array:
    """The rows of a block: one row without its dimension, all rows, or a slice."""
    if length == 1:
        return jax.lax.dynamic_index_in_dim(leaf, start, keepdims=False)
    return leaf if length == leaf.shape[0] else jax.lax.dynamic_slice_in_dim(leaf, start, length)
