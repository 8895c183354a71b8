"""Latency of every row of a table of networks, by what is known of its device or what a few measured rows say of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from calibration.edge.adapt import Adapted, adapt
from calibration.edge.parameters import EdgeParameters, Known
from calibration.edge.rows import EdgeTable, Row, networks_of
from calibration.edge.spaces import SPACES
from hwspecs.errors import did_you_mean

TIMES = ("predicted_ms", "lower_ms", "upper_ms")
ADDED = (*TIMES, "macs", "tier", "reason")  # columns, in their order
MEASURED, ADAPTED = "measured", "adapted"
FEW = 10  # networks, of which a device never measured is known well enough to rank others
Group = tuple[str, str]  # space, device


def predict_edge(table: EdgeTable, parameters: EdgeParameters, measured: Sequence[Row] = ()) -> dict[str, np.ndarray]:
    """The columns to add to a table, [rows of the file].

    **Arguments:** `measured`: rows of devices to adapt to; theirs count before what is known of a device.
    **Returns:** `TIMES`: latency with its 90 % interval [ms], NaN where a row has no prediction; `macs`:
    multiply-accumulates of the network; `tier` ("measured": the device's own coefficients; "adapted"; or ""); `reason`.
    """
    columns = {name: np.full(table.rows, np.nan) for name in (*TIMES, "macs")}
    tier, reason = (np.full(table.rows, "", dtype=object) for _ in range(2))
    reason[list(table.reasons)] = list(table.reasons.values())
    given = _groups(measured, parameters)
    for group, rows in _groups(table.found, parameters).items():
        places, networks = [row.row for row in rows], networks_of(rows)
        space, known = SPACES[group[0]], parameters.spaces[group[0]]
        columns["macs"][places] = space.work(networks)[:, 0]
        if group in given:
            found = _adapted(known, given[group], space.features(networks))
        elif group[1] in known.prior.devices:
            found = _measured(known, group[1], space.features(networks))
        else:
            reason[places] = _unknown(group, parameters, given)
            continue
        tier[places] = ADAPTED if group in given else MEASURED
        if 0 < len(given.get(group, ())) < FEW:
            reason[places] = f"adapted to fewer than {FEW} networks (to {len(given[group])})"
        for name, values in zip(TIMES, found, strict=True):
            columns[name][places] = 1e3 * values
    return {**columns, "tier": tier, "reason": reason}


def adapted_to(known: Known, rows: Sequence[Row]) -> Adapted:
    """A device as its measured rows of one space tell it."""
    space = rows[0].space
    latency = np.array([row.measured for row in rows])
    return adapt(known.prior, SPACES[space].features(networks_of(rows)), latency)


def _groups(rows: Sequence[Row], parameters: EdgeParameters) -> dict[Group, list[Row]]:
    """Rows of one device; wherever the words of its name are parted, it is the known one: "pixel_3" is pixel3."""
    spelled = {
        space: {name.replace("_", ""): name for name in known.prior.devices}
        for space, known in parameters.spaces.items()
    }
    found: dict[Group, list[Row]] = defaultdict(list)
    for row in rows:
        device = spelled[row.space].get(row.device.replace("_", ""), row.device)
        found[row.space, device].append(row)
    return dict(found)


def _adapted(known: Known, rows: Sequence[Row], features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    time, spread = adapted_to(known, rows).predict(features)
    apart = np.exp(known.adapted_width(len(rows)) * spread)
    return time, time / apart, time * apart


def _measured(known: Known, device: str, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    time, apart = known.prior.latency(device, features), np.exp(known.measured[device])
    return time, time / apart, time * apart


def _unknown(group: Group, parameters: EdgeParameters, given: Mapping[Group, Sequence[Row]]) -> str:
    """Why a device has no prediction, and what would give it one."""
    space, device = group
    devices = parameters.spaces[space].prior.devices
    there = {name for name, known in parameters.spaces.items() if device in known.prior.devices}
    there |= {name for name, each in given if each == device}
    elsewhere = f", but on {', '.join(sorted(there))}" if there else ""
    hint = did_you_mean(device, devices) or f" Known: {', '.join(devices)}."
    return (
        f"device: '{device}' was not measured on {space}{elsewhere}; measure {FEW} of its networks there and give them "
        f"with --adapt.{hint}"
    )
