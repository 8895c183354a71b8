"""Run a point function over a product of axes: one compile, bounded blocks, results block by block or whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from hwspecs.errors import InputError
from jaxperf.core.compiler_options import JOINTLY, STRAIGHT, UNOPTIMIZED, WIDE_VECTORS, for_few_points
from jaxperf.sweeps.axes import Axis, check_axes
from jaxperf.sweeps.columns import Column, codes_of_rows, label_columns
from jaxperf.sweeps.plan import MAX_POINTS, Block, Plan, check_size, default_block_points, make_plan
from jaxperf.sweeps.point import PointFunction, TracedPoint, trace_point
from jaxperf.sweeps.program import Program
from jaxperf.sweeps.reduce import Selection
from jaxperf.sweeps.results import Results
from jaxperf.sweeps.rows import evaluate_rows
from jaxperf.sweeps.staged import evaluate, hidden_ones

# Up to so many points a sweep is computed in rows: 131,000 of a serving step take 0.6 s so and 0.04 in stages, but
# those take 13 s of CPU to compile, rows 3.
FEW_POINTS = 2**17
# And up to so many in stages that compile sooner: 0.3 us a point, which 2 to 2.5 s of compilation outweigh.
MANY_POINTS = 2**22
ROOMS = 3  # sets of result buffers: one being computed, one being read, and the one read before it
# A dense result above this size is refused with advice rather than left to the system's memory killer.
MAX_DENSE_BYTES = 2**34


@runtime_checkable
class Progress(Protocol):
    """Called after each block; raising from it (or Ctrl-C) stops the sweep."""

    def __call__(self, done_points: int, total_points: int, /) -> None: ...


@dataclass(frozen=True)
class BlockResult:
    """The metrics of one block, as read-only arrays of the block's shape.

    They may share memory with the device: use them before asking for the block after next, or copy them.
    """

    block: Block
    metrics: Mapping[str, Shaped[np.ndarray, "*block"]]

    @property
    def index(self) -> int:
        return self.block.index

    @property
    def slices(self) -> tuple[slice, ...]:
        return self.block.slices

    @property
    def columns(self) -> dict[str, Shaped[np.ndarray, " points"]]:
        """The metrics as flat columns, in row order."""
        return {name: values.reshape(-1) for name, values in self.metrics.items()}


class Sweep:
    """A point function over the product of named axes, traced once and compiled once.

    **Arguments:**

    - `fn`: `fn(**arguments) -> metrics`, a pure JAX function of one point. `metrics` is a mapping (or any pytree) of
        scalars; nested names are joined by dots.
    - `axes`: the axes in order; the last one varies fastest in results.
    - `points_per_block`: at most this many points are evaluated at once; chosen by measurement if `None`.
    - `max_points`: a larger product is refused.
    - `runs`: how often all of it will be evaluated: the compiler takes more time for what runs longer.

    Each sub-expression is computed only over the axes it uses (`jaxperf.sweeps.staged`), unless there are so few points
    that this would take longer to compile than they take (`jaxperf.sweeps.rows`).

    **Raises:** `InputError` for axes that cannot be combined, do not match `fn`, or give too many points.
    """

    axes: tuple[Axis, ...]
    plan: Plan
    metrics: Mapping[str, np.dtype]
    point: TracedPoint

    def __init__(
        self,
        fn: PointFunction,
        axes: Sequence[Axis],
        *,
        points_per_block: int | None = None,
        max_points: int = MAX_POINTS,
        runs: int = 1,
    ) -> None:
        check_axes(axes)
        check_size({one.name: one.size for one in axes}, max_points)
        self.axes = tuple(axes)
        self.point = trace_point(fn, self.axes)
        self.metrics = self.point.metrics
        _check_names(self.axes, self.metrics)
        if points_per_block is None:
            points_per_block = default_block_points(self.point.bytes_per_point)
        self.plan = make_plan(tuple(one.size for one in self.axes), points_per_block)
        feed = _Feed(self.axes, self.plan)
        self._fixed = jax.device_put((list(self.point.constants), feed.leaves))
        self._compiled = _compile(self.point, feed.along, self.plan, runs)
        self._rooms: list[list[Array]] = []

    def blocks(self, skip: Collection[int] = frozenset()) -> Iterator[BlockResult]:
        """Evaluate block by block, in row order, without the blocks numbered in `skip`.

        The next block is already running while the caller works on the current one; at most two are in memory.
        """
        ones = hidden_ones(str(jnp.result_type(float)))
        rooms = [self._rooms.pop() if self._rooms else self._new_room() for _ in range(ROOMS)]
        running: tuple[Block, list[Array]] | None = None
        for block in self.plan.iterate(skip):
            starts = np.array([piece.start for piece in block.slices], np.int32)
            # Results go into the room of a block that was read, which spares the page faults of fresh memory.
            ahead = block, self._compiled(rooms.pop(0), *self._fixed, starts, ones)
            if running is not None:
                yield self._fetch(*running)
                rooms.append(running[1])
            running = ahead
        if running is not None:
            yield self._fetch(*running)
            rooms.append(running[1])
        self._rooms += rooms

    def dense(self, progress: Progress | None = None) -> Results:
        """Evaluate everything into arrays of the full product.

        **Raises:** `InputError` if the arrays would need more than 16 GiB; stream or reduce such a sweep.
        """
        needed = self.plan.points * self.point.bytes_per_point
        if needed > MAX_DENSE_BYTES:
            raise InputError(
                f"The full result needs {needed / 2**30:,.0f} GiB of memory ({self.plan.points:,} points); "
                "write it to Parquet block by block, or keep only a top-k or Pareto selection."
            )
        flat = {name: np.empty(self.plan.points, dtype) for name, dtype in self.metrics.items()}
        for result in self.blocks():
            for name, values in result.columns.items():
                flat[name][result.block.start : result.block.stop] = values
            if progress is not None:
                progress(result.block.stop, self.plan.points)
        return Results(self.axes, {name: values.reshape(self.plan.sizes) for name, values in flat.items()})

    def rows(self, selection: Selection) -> dict[str, Column]:
        """Labels and metrics of the points a reducer kept, column by column."""
        codes = codes_of_rows(self.plan.sizes, selection.indices)
        return label_columns(self.axes, codes) | dict(selection.metrics)

    def _new_room(self) -> list[Array]:
        """Empty room for the results of one block."""
        shape = [length for length in self.plan.block_shape if length > 1]
        return [jax.device_put(np.zeros(shape, dtype), may_alias=False) for dtype in self.metrics.values()]

    def _fetch(self, block: Block, outputs: list[Array]) -> BlockResult:
        # Blocks are contiguous in C order, so what padding added is the tail of the flat array.
        flat = (np.asarray(values).reshape(-1)[: block.points] for values in outputs)
        return BlockResult(
            block, {name: values.reshape(block.shape) for name, values in zip(self.metrics, flat, strict=True)}
        )


class _Feed:
    """The axes' arguments on the device, once, as a flat list of arrays; which of them vary, and along which axis.

    A leaf with the same value all along its axis is a constant: what depends on it alone is computed once.
    """

    def __init__(self, axes: Sequence[Axis], plan: Plan) -> None:
        self.along: list[int | None] = []
        self.leaves: list[np.ndarray] = []
        for position, one in enumerate(axes):
            for leaf in jax.tree.leaves(dict(one.arguments)):
                leaf = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
                uniform = bool((leaf == leaf[:1]).all())
                self.along.append(None if uniform else position)
                self.leaves.append(leaf[0] if uniform else _padded(leaf, plan, position))


def _padded(leaf: np.ndarray, plan: Plan, position: int) -> np.ndarray:
    """`leaf` with its last row repeated, so that the last block along the split axis has the shape of the others."""
    if position != plan.split:
        return leaf
    missing = -len(leaf) % plan.chunk
    return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])


def _compile(point: TracedPoint, along: Sequence[int | None], plan: Plan, runs: int) -> Callable[..., list[Array]]:
    """The jitted block function. A second trace would be a bug in the engine (a changed shape), so it raises."""
    lengths = dict(enumerate(plan.block_shape))
    grid = {position: length for position, length in lengths.items() if length > 1}
    program = point.program
    over, options = _way(program, plan.points * runs)
    nothing: frozenset[int] = frozenset()
    inside = [frozenset({position} & grid.keys()) if position is not None else nothing for position in along]
    depends = [nothing] * len(point.constants) + inside

    def block(
        room: list[Array], constants: Sequence[Array], leaves: Sequence[Array], starts: Array, ones: Array
    ) -> list[Array]:
        del room  # donated: the results are written into it
        pieces = [
            leaf if position is None else _piece(leaf, starts[position], lengths[position])
            for leaf, position in zip(leaves, along, strict=True)
        ]
        return over(program, [*constants, *pieces], depends, grid, ones)

    once = eqx.debug.assert_max_traces(block, max_traces=1)
    return jax.jit(once, donate_argnums=0, keep_unused=True, compiler_options=options)


def _way(program: Program, points: int) -> tuple[Callable[..., list[Array]], dict[str, Any]]:
    """How so many points of a program are evaluated, and what the compiler is told of it."""
    if points <= FEW_POINTS:
        return evaluate_rows, for_few_points()
    jointly = JOINTLY if program.plain else {}
    return evaluate, WIDE_VECTORS | jointly | (UNOPTIMIZED | STRAIGHT if points <= MANY_POINTS else {})


def _piece(leaf: Array, start: Array, length: int) -> Array:
    """The rows of a block: one row without its dimension, all rows, or a slice."""
    if length == 1:
        return jax.lax.dynamic_index_in_dim(leaf, start, keepdims=False)
    return leaf if length == leaf.shape[0] else jax.lax.dynamic_slice_in_dim(leaf, start, length)


def _check_names(axes: Sequence[Axis], metrics: Mapping[str, np.dtype]) -> None:
    taken = {one.name for one in axes} | {column for one in axes for column in one.labels}
    for name in metrics:
        if name in taken:
            raise InputError(f"Metric '{name}' has the name of an axis or of a label column; rename one of them.")
