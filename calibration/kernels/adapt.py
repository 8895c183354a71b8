"""Adapt fitted families to devices with a few rows of theirs, by the residuals of these (`calibration.kernels.local`).

With no row a device has the transfer prediction; with many, the rows decide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from calibration.datasets import data_hash
from calibration.datasets.schema import Read
from calibration.intervals import NORMAL
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import log_times, usable_rows
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.local import learn
from calibration.kernels.parameters import Parameters
from calibration.kernels.regimes import INSTEAD, regimes


def adapt(parameters: Parameters, reads: Sequence[Read], directories: Sequence[str] = ()) -> Parameters:
    """All families that the tables have rows of, adapted to them; a family without parameters is left out."""
    families, adapted = dict(parameters.families), {**parameters.card.get("adapted", {})}
    for _, name, rows in rows_of_adaptation(parameters, reads, directories):
        source = name if name in families else INSTEAD[name]
        base = families[source] if source == name else dataclasses.replace(families[source], local={})
        families[name] = adapt_family(base, rows)
        cells = {*rows.spelled["cell"].astype(str).tolist(), *adapted.get(name, ())}
        adapted[name] = sorted(cells)
    files = [{"file": Path(read.path).name, "sha256": data_hash(read.path), "rows": read.rows} for read in reads]
    card = {**parameters.card, "adapted": adapted, "adapted_to": [*parameters.card.get("adapted_to", ()), *files]}
    return Parameters(families, card)


def rows_of_adaptation(
    parameters: Parameters, reads: Sequence[Read], directories: Sequence[str] = ()
) -> Iterator[tuple[Read, str, Prepared]]:
    """What there is to learn from: a file, a family that the parameters have or have a stand-in of, and its rows there
    with a known device, a time and no flag."""
    for read in reads:
        for table in read.tables:
            known = table.take(np.flatnonzero((table.device != "") & (table.flag == 0)))
            for name, at in regimes(known):
                if table.latency is None or not {name, INSTEAD.get(name)} & set(parameters.families):
                    continue
                rows = usable_rows(prepare(known.take(at), directories))
                if len(rows.table):
                    yield read, name, rows


def adapt_family(fitted: FittedFamily, data: Prepared) -> FittedFamily:
    """Adapted to each device of `data`; rows of an earlier adaptation stay, but for the cells that `data` has."""
    data = usable_rows(data)
    if not len(data.table):
        return fitted
    residual = np.log(data.table.measured) - log_times(fitted, data)
    expected = expected_deviation(fitted, data)
    local, devices = dict(fitted.local), data.table.device.astype(str)
    for device in np.unique(devices).tolist():
        rows = np.flatnonzero(devices == device)
        own = float(np.median(expected[rows]))
        local[device] = learn(fitted, data.take(rows), residual[rows], own, local.get(device))
    return dataclasses.replace(fitted, local=local)


def expected_deviation(fitted: FittedFamily, data: Prepared) -> np.ndarray:
    """Standard deviation of the residual of each row without adaptation, if its 90 % interval is a normal's [log 1]."""
    seen = np.isin(data.spelled["cell"].astype(str), fitted.names.known["cell"])
    return fitted.spread.half_width(data.spelled, seen, np.zeros(len(seen))) / NORMAL[1]
