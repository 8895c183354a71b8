"""Matrix products and convolutions on a systolic array: rows of M, N, K, `dataflow` and `array`, as SCALE-Sim's runs.

SCALE-Sim rounds the output of a strided convolution up, where M counts the pixels of the usual floor. The input size
is not in a row: a stride of two (`stride`; where a table has no such column, a case named `...s2`, as SCALE-Sim's
examples are) is taken to leave a remainder, as an odd window on an even input does, which adds a row and a column of
pixels.
"""

from __future__ import annotations

import math
import re
from typing import Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import as_float
from jaxperf.io.timeloop.fields import count
from jaxperf.loopnest.systolic import DATAFLOWS, MatrixProduct, SystolicArray

_STRIDE_TWO = re.compile(r"s2$")


def predict_systolic(row: dict[str, Any]) -> dict[str, Any]:
    """`cycles`, `utilization`, `mapping_efficiency` and `reason` of one row."""
    try:
        cost = DATAFLOWS[_dataflow(row)](_array(row), _product(row))
    except InputError as error:
        return {"reason": str(error)}
    return {name: float(value) for name, value in cost._asdict().items()} | {"reason": ""}


def _dataflow(row: dict[str, Any]) -> str:
    name = str(row.get("dataflow", "")).casefold()
    if name not in DATAFLOWS:
        hint = did_you_mean(name, DATAFLOWS)
        raise InputError(f"dataflow '{name}' is not one of {', '.join(DATAFLOWS)}.{hint}")
    return name


def _array(row: dict[str, Any]) -> SystolicArray:
    """`array`: rows and columns of a square one."""
    size = as_float(count(row.get("array"), "array"))
    return SystolicArray(size, size)


def _product(row: dict[str, Any]) -> MatrixProduct:
    m, n, k = (count(row.get(name), name) for name in "MNK")
    if str(row.get("type")) == "conv" and _stride(row) == 2.0:
        side = math.isqrt(int(m))
        if side * side != int(m):
            raise InputError(f"M is {m:g} with a stride of two; the output must be square to be rounded up.")
        m = float((side + 1) ** 2)
    return MatrixProduct(m, n, k)


def _stride(row: dict[str, Any]) -> float:
    """`stride`, else what the name of the case says, else 1."""
    if row.get("stride") is not None:
        return count(row["stride"], "stride")
    return 2.0 if _STRIDE_TWO.search(str(row.get("case", ""))) else 1.0
