"""Adapt fitted collectives to a few rows of a system: its own curves, the others kept, the width between both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.collectives.learn import learn_few
from calibration.collectives.parameters import CollectiveParameters
from calibration.collectives.points import Points, points_of
from calibration.datasets.schema import KernelTable
from hwspecs.errors import InputError


def measured_points(table: KernelTable, directories: Sequence[str | Path] = ()) -> tuple[Points, np.ndarray]:
    """The points of the rows that can be learned from, and their times [s].

    Learned from: a known device, a time, no flag. **Raises:** `InputError` where there is no such row.
    """
    time = np.full(len(table), np.nan) if table.latency is None else table.latency
    points = points_of(table, directories)
    good = np.flatnonzero((points.problem == 0) & np.isfinite(time) & (time > 0.0) & (table.flag == 0))
    if not len(good):
        raise InputError("The table has no collective with a measured time, a known device and no flag.")
    return points.take(good), time[good]


def adapt(
    parameters: CollectiveParameters, table: KernelTable, directories: Sequence[str | Path] = ()
) -> CollectiveParameters:
    """The parameters with curves for the systems of a table's rows. **Raises:** `InputError` as `measured_points`."""
    points, measured = measured_points(table, directories)
    cells = {str(name) for name in points.names["cell"][np.unique(points.group)]}
    return dataclasses.replace(
        parameters,
        learned=learn_few(parameters.learned, points, measured),
        adapted=tuple(sorted(cells.union(parameters.adapted))),
    )
