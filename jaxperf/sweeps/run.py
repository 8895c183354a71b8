"""Run a point function over a product of axes: one trace, bounded blocks, results block by block or whole."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped

from hwspecs.errors import InputError
from jaxperf.sweeps.axes import Axis, check_axes
from jaxperf.sweeps.blocks import make_blocks
from jaxperf.sweeps.columns import Column, codes_of_rows, label_columns
from jaxperf.sweeps.plan import MAX_POINTS, Block, Plan, check_size, default_block_points, make_plan
from jaxperf.sweeps.point import PointFunction, TracedPoint, trace_point
from jaxperf.sweeps.reduce import Selection
from jaxperf.sweeps.results import Results

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
    """A point function over the product of named axes, traced once and compiled once, or not at all for few points.

    **Arguments:**

    - `fn`: `fn(**arguments) -> metrics`, a pure JAX function of one point. `metrics` is a mapping (or any pytree) of
        scalars; nested names are joined by dots.
    - `axes`: the axes in order; the last one varies fastest in results.
    - `points_per_block`: at most this many points are evaluated at once; chosen by measurement if `None`.
    - `max_points`: a larger product is refused.
    - `runs`: how often all of it will be evaluated: the compiler takes more time for what runs longer.

    Each sub-expression is computed only over the axes it uses (`jaxperf.sweeps.staged`), unless there are so few points
    that this would take longer to compile than they take on the host (`jaxperf.sweeps.host`).

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
        self._evaluate = make_blocks(self.point, self.axes, self.plan, self.plan.points * runs)

    def blocks(self, skip: Collection[int] = frozenset()) -> Generator[BlockResult]:
        """Evaluate block by block, in row order, without the blocks numbered in `skip`.

        Who may stop before the end closes it (`contextlib.closing`): the next block is being computed by then.
        """
        for block, outputs in self._evaluate(skip):
            # Blocks are contiguous in C order, so what padding added is the tail of the flat array.
            flat = (values.reshape(-1)[: block.points].reshape(block.shape) for values in outputs)
            yield BlockResult(block, dict(zip(self.metrics, flat, strict=True)))

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
        with closing(self.blocks()) as blocks:
            for result in blocks:
                for name, values in result.columns.items():
                    flat[name][result.block.start : result.block.stop] = values
                if progress is not None:
                    progress(result.block.stop, self.plan.points)
        return Results(self.axes, {name: values.reshape(self.plan.sizes) for name, values in flat.items()})

    def rows(self, selection: Selection) -> dict[str, Column]:
        """Labels and metrics of the points a reducer kept, column by column."""
        codes = codes_of_rows(self.plan.sizes, selection.indices)
        return label_columns(self.axes, codes) | dict(selection.metrics)


def _check_names(axes: Sequence[Axis], metrics: Mapping[str, np.dtype]) -> None:
    taken = {one.name for one in axes} | {column for one in axes for column in one.labels}
    for name in metrics:
        if name in taken:
            raise InputError(f"Metric '{name}' has the name of an axis or of a label column; rename one of them.")
