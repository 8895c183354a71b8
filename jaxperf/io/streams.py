"""Memory-bound kernels as operations that move exactly the bytes the program moves."""

from __future__ import annotations

from collections.abc import Sequence

from jaxperf.io.program import Value
from jaxperf.models.graph import Op

WIDTHS = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}  # formats whose streams were measured; others count as fp32 elements


def stream_dtype(*values: Value) -> str:
    """The format of the largest value, "fp32" where streams of it are not told apart."""
    largest = max(values, key=lambda value: value.nbytes, default=None)
    return largest.dtype if largest is not None and largest.dtype in WIDTHS else "fp32"


def stream_op(read: float, written: float, columns: float, dtype: str, note: str = "") -> Op:
    """Elementwise work that reads and writes so many bytes, in rows of `columns` elements."""
    size = WIDTHS[dtype]
    rows = max(max(read, written) / size / max(columns, 1.0), 1.0)
    shape = {"elements_in": max(read / size, 1.0), "elements_out": max(written / size, 1.0), "rows": rows}
    return Op("elementwise", shape, dtype, 1.0, note)


def rows_op(family: str, rows: float, columns: float, dtype: str, moved: float, note: str = "") -> Op:
    """Row-wise work ("norm", "softmax", "embedding").

    Its models read and write each element once, so `rows` is scaled until that is the bytes `moved`.
    """
    plain = 2.0 * rows * columns * WIDTHS[dtype]
    scale = moved / plain if plain else 1.0
    return Op(family, {"rows": max(rows * scale, 1.0), "columns": max(columns, 1.0)}, dtype, 1.0, note)


def last_axis(values: Sequence[Value]) -> float:
    """Elements of the last axis of the largest value: the row a kernel works on."""
    largest = max(values, key=lambda value: value.size, default=None)
    return float(largest.shape[-1]) if largest is not None and largest.shape else 1.0
