"""Kernels for graphs: fitted without the names of their kernels, on all devices and without each in turn."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import equinox as eqx
import numpy as np

from calibration.datasets.schema import KernelTable, Read
from calibration.kernels.calibrate import calibrate, gather
from calibration.kernels.fit import DEFAULT, fit, sample
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import spell
from calibration.kernels.parameters import Parameters, load_parameters, save_parameters
from jaxperf.core.numerics import as_float

FAMILIES = ("gemm", "bmm", "elementwise", "softmax", "norm")
# A smaller fit than the shipped kernels': one for all devices with its folds, and one without each.
SETTINGS = dataclasses.replace(DEFAULT, steps=600, law_steps=300, law_rows=10_000, rows_per_cell=500)
SHARE = 0.5  # of the learned correction, for a device held out
Progress = Callable[[str], None]


def kernels_of_all(reads: Sequence[Read], kept: Path | None, progress: Progress) -> Parameters:
    """Kernels fitted on all devices, with the trust in transfer and the intervals that held-out generations give."""

    def made() -> Parameters:
        return calibrate(reads, (), SETTINGS, families=FAMILIES)

    return _kept(None if kept is None else kept / "all", made, "kernels on all devices", progress)


def kernels_without(
    reads: Sequence[Read], devices: Sequence[str], every: Parameters, kept: Path | None, progress: Progress
) -> dict[str, Parameters]:
    """Kernels fitted without each of the devices.

    An unseen device gets `SHARE` of the learned correction, a constant, so that nothing about it is chosen on it; the
    intervals are those of `every`, which the width of iterations scales anyway. A device without a measured operation
    has `every` itself.
    """
    tables = gather(reads)
    data = {name: _few(table) for name, table in tables.items() if table.family in FAMILIES}

    def made(device: str) -> Parameters:
        families = {}
        for name, rows in data.items():
            fitted = fit(rows.take(np.flatnonzero(rows.table.device.astype(str) != device)), SETTINGS)
            model = eqx.tree_at(lambda tree: tree.correction.share, fitted.model, as_float(SHARE))
            families[name] = dataclasses.replace(fitted, model=model, spread=every.families[name].spread)
        return Parameters(families, {"excluded": [device]})

    known = {name for rows in data.values() for name in np.unique(rows.table.device.astype(str))}
    found = {}
    for device in devices:
        if device not in known:
            found[device] = every
            continue
        place = None if kept is None else kept / device
        found[device] = _kept(place, functools.partial(made, device), f"kernels without {device}", progress)
    return found


def _few(table: KernelTable) -> Prepared:
    """At most so many rows of each cell as a fit uses, with their features."""
    data = prepare(table.take(sample(np.asarray(spell(table)["cell"]), SETTINGS.rows_per_cell, SETTINGS.seed)))
    return data.take(np.flatnonzero(data.usable))


def _kept(place: Path | None, made: Callable[[], Parameters], text: str, progress: Progress) -> Parameters:
    """The parameters that lie at a place, or newly made ones, which are then put there."""
    if place is not None and place.with_name(place.name + ".json").exists():
        return load_parameters(place)
    found = made()
    progress(text)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        save_parameters(found, place)
    return found
