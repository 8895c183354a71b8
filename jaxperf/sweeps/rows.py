"""Evaluate a point program over a small grid row by row: every value is a column over all points.

Stages (`jaxperf.sweeps.staged`) spare a million points what they share, and cost a compiled loop for each set of axes.
Some thousands of points are computed sooner than that is compiled: here each operation is one loop over a column,
compiled as soon as can be (`jaxperf.core.compiler_options.for_few_points`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jaxtyping import Array

from jaxperf.sweeps.program import Program
from jaxperf.sweeps.staged import Axes, column_of, evaluate


def evaluate_rows(
    program: Program, inputs: Sequence[Array], axes: Sequence[Axes], shape: Mapping[int, int], ones: Array
) -> list[Array]:
    """All outputs over the full grid; arguments and result as those of `staged.evaluate`."""
    rows = {0: math.prod(shape.values())}
    columns = [column_of(value, held, shape) for value, held in zip(inputs, axes, strict=True)]
    found = evaluate(program, columns, [held and frozenset(rows) for held in axes], rows, ones)
    return [column.reshape(tuple(shape.values())) for column in found]
