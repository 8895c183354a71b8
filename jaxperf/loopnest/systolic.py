"""Systolic arrays in closed form: cycles and utilization of a GEMM under three dataflows.

Samajdar et al., "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim",
ISPASS 2020, section III: the array takes one fold of the problem after the other, and each fold fills, streams and
drains. Counts are those of SCALE-Sim v2 with unlimited bandwidth, whose cycles are numbered from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float, ceil_div


class MatrixProduct(eqx.Module):
    """Z[m,n] += A[m,k] B[k,n]; of a convolution m counts output pixels, n filters and k words of a window [1]."""

    m: Float[Array, "*batch"] = eqx.field(converter=as_float)
    n: Float[Array, "*batch"] = eqx.field(converter=as_float)
    k: Float[Array, "*batch"] = eqx.field(converter=as_float)


class SystolicArray(eqx.Module):
    """Processing elements in `rows` and `columns` [1]."""

    rows: Float[Array, "*batch"] = eqx.field(converter=as_float)
    columns: Float[Array, "*batch"] = eqx.field(converter=as_float)


class SystolicCost(NamedTuple):
    """`cycles`; `utilization`: multiplications per element and cycle [1]; `mapping_efficiency`: elements that hold
    something, averaged over the folds [1]."""

    cycles: Scalar
    utilization: Scalar
    mapping_efficiency: Scalar


def output_stationary(array: SystolicArray, product: MatrixProduct) -> SystolicCost:
    """Each element sums one output: ceil(M / R) ceil(N / C) folds of R + C + K - 2 cycles."""
    fold = array.rows + array.columns + product.k - 2.0
    return _folded(array, product, product.m, product.n, fold)


def weight_stationary(array: SystolicArray, product: MatrixProduct) -> SystolicCost:
    """Each element holds one weight: ceil(K / R) ceil(N / C) folds of 2 R + C + M - 2 cycles, R of them to load."""
    fold = 2.0 * array.rows + array.columns + product.m - 2.0
    return _folded(array, product, product.k, product.n, fold)


def input_stationary(array: SystolicArray, product: MatrixProduct) -> SystolicCost:
    """Each element holds one input: ceil(K / R) ceil(M / C) folds of 2 R + C + N - 2 cycles, R of them to load."""
    fold = 2.0 * array.rows + array.columns + product.n - 2.0
    return _folded(array, product, product.k, product.m, fold)


def _folded(
    array: SystolicArray, product: MatrixProduct, along_rows: Scalar, along_columns: Scalar, fold: Scalar
) -> SystolicCost:
    """Folds one after the other; `along_rows`, `along_columns`: what is laid over the array [1]."""
    row_folds, column_folds = ceil_div(along_rows, array.rows), ceil_div(along_columns, array.columns)
    elements = array.rows * array.columns
    cycles = row_folds * column_folds * fold - 1.0
    return SystolicCost(
        cycles=cycles,
        utilization=product.m * product.n * product.k / (elements * cycles),
        mapping_efficiency=along_rows * along_columns / (row_folds * column_folds * elements),
    )


DATAFLOWS: dict[str, Callable[[SystolicArray, MatrixProduct], SystolicCost]] = {
    "os": output_stationary,
    "ws": weight_stationary,
    "is": input_stationary,
}
