"""How well parameters predict a table they have not seen, beside the roofline and the roofline times a constant.

    python -m calibration.microbench.compare FITTED HELD_OUT PARAMS

FITTED is the table that the parameters were fitted to, from which the constant of each family and format is taken, too;
HELD_OUT holds other shapes of the same device.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets import Read, read_table
from calibration.datasets.schema import KernelTable
from calibration.kernels.inputs import prepare
from calibration.kernels.parameters import Parameters, load_parameters
from calibration.kernels.predict import predict_table
from hwspecs.errors import InputError


@dataclass(frozen=True)
class Errors:
    """|predicted / measured - 1| over the held-out rows of a family, median and mean [1]; `inside`: share of the rows
    within their 90 % interval; `same`: held-out rows left out because the fitted table has their shape."""

    family: str
    rows: int
    same: int
    predicted: tuple[float, float]
    roofline: tuple[float, float]
    constant: tuple[float, float]
    inside: float


def compare(fitted: Read, held: Read, parameters: Parameters) -> list[Errors]:
    """One entry a family of both tables. Raises `InputError` where they have none in common."""
    found = []
    for table in held.tables:
        known = fitted.table(table.family)
        if known is None or known.latency is None or table.latency is None or table.family not in parameters.families:
            continue
        new = np.array([shape not in set(_shapes(known)) for shape in _shapes(table)])
        if new.any():
            found.append(_errors(known, table.take(np.flatnonzero(new)), int((~new).sum()), parameters))
    if not found:
        raise InputError(f"{held.path} has no kernel of another shape, of a family that {fitted.path} has.")
    return found


def _errors(known: KernelTable, table: KernelTable, same: int, parameters: Parameters) -> Errors:
    columns = predict_table(table, parameters)
    micro = 1e6 * table.measured
    return Errors(
        table.family,
        len(table),
        same,
        _relative(columns["predicted_us"], micro),
        _relative(columns["roofline_us"], micro),
        _relative(columns["roofline_us"] * _constants(known, table), micro),
        float(np.mean((columns["lower_us"] <= micro) & (micro <= columns["upper_us"]))),
    )


def _constants(known: KernelTable, table: KernelTable) -> np.ndarray:
    """Median of measured over roofline in the fitted table, by format: what one fitted number a format buys."""
    ratio, formats = known.measured / prepare(known).roofline, known.dtype.astype(str)
    each = {dtype: np.median(ratio[formats == dtype]) for dtype in np.unique(formats)}
    return np.array([each.get(dtype, np.median(ratio)) for dtype in table.dtype.astype(str)])


def _shapes(table: KernelTable) -> list[tuple[float, ...]]:
    return list(zip(*(table.shape[name].tolist() for name in sorted(table.shape)), strict=True))


def _relative(predicted: np.ndarray, measured: np.ndarray) -> tuple[float, float]:
    error = np.abs(predicted / measured - 1.0)
    return float(np.median(error)), float(error.mean())


def main(arguments: Sequence[str]) -> None:
    """Print one line a family, errors in percent."""
    fitted, held, params = arguments
    found = compare(read_table(fitted), read_table(held), load_parameters(params))
    print(f"{'family':18} rows   predicted   roofline   constant   in 90 %")
    for each in found:
        pairs = (each.predicted, each.roofline, each.constant)
        figures = "  ".join(f"{100 * median:4.0f}/{100 * mean:<4.0f}" for median, mean in pairs)
        print(f"{each.family:18} {each.rows:4}   {figures}  {each.inside:6.0%}")


if __name__ == "__main__":
    main(sys.argv[1:])
