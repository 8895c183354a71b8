"""One graph for all batches: every column of a shape is affine in the batch, so two graphs say all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hwspecs.errors import InputError
from jaxperf.models.graph import Graph, Op
from jaxperf.models.graph_steps import Laid, lay_out


@dataclass(frozen=True)
class ScaledGraph:
    """`laid`: the graph at batch 0 of the line (its steps are those of every batch); column c of kernel k is
    `at_zero[k][c] + batch slope[k][c]`."""

    laid: Laid
    at_zero: tuple[dict[str, float], ...]
    slope: tuple[dict[str, float], ...]

    def ops(self, batch: float) -> tuple[Op, ...]:
        """The distinct kernels [K] at a batch."""
        return tuple(
            replace(op, shape={name: start[name] + batch * slope[name] for name in start})
            for op, start, slope in zip(self.laid.ops, self.at_zero, self.slope, strict=True)
        )


def scaled(first: Graph, second: Graph, batches: tuple[float, float]) -> ScaledGraph:
    """The line through two graphs of one model.

    **Arguments:** `batches` of the two graphs.
    **Raises:** `InputError` where they do not launch the same kernels but for their shapes, or the batches are equal.
    """
    low, high = batches
    if low == high:
        raise InputError(f"Two graphs at the same batch {low:g} say nothing about another.")
    one, other = lay_out(first), lay_out(second)
    same = (
        len(one.ops) == len(other.ops)
        and all(
            (a.family, a.dtype, a.note) == (b.family, b.dtype, b.note) for a, b in zip(one.ops, other.ops, strict=True)
        )
        and all(
            np.array_equal(getattr(one.steps, name), getattr(other.steps, name))
            for name in ("kernel", "count", "repeats")
        )
    )
    if not same:
        raise InputError(f"Graphs '{first.name}' and '{second.name}' do not launch the same kernels.")
    slope = tuple(
        {name: (b.shape[name] - a.shape[name]) / (high - low) for name in a.shape}
        for a, b in zip(one.ops, other.ops, strict=True)
    )
    at_zero = tuple(
        {name: a.shape[name] - low * each[name] for name in a.shape} for a, each in zip(one.ops, slope, strict=True)
    )
    return ScaledGraph(one, at_zero, slope)
