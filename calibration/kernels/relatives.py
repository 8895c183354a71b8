"""What stands in for software that was never measured on a device: a relative's measurement, or another release's.

Devices of one architecture run the same kernels, and what these waste is much alike where demands are counted in each
device's own units; so do releases of an engine that follow each other (`calibration.kernels.releases`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable
from calibration.kernels.family import FittedFamily
from calibration.kernels.levels import spell_each
from calibration.kernels.releases import between, stand_in
from hwspecs import DeviceSpec

ALIKE = ("memory_bandwidth", "num_cores", "tdp")  # facts by which a relative is the nearer


@dataclasses.dataclass(frozen=True)
class StandIns:
    """Of rows [G]: their names at every level, as they are known by what stands in; and whether that is measured on a
    `relative`, or of another `release`. Neither: nothing does, and the names are their own."""

    names: Mapping[str, np.ndarray]
    relative: np.ndarray
    release: np.ndarray


def architecture_of(spec: DeviceSpec) -> str:
    """The kin of devices on which kernels waste alike."""
    return spec.architecture


def generation_of(spec: DeviceSpec) -> str:
    """The kin of devices for which an engine chooses the same kernels: those of one flagship, the boards with half of
    its rate among them; of a chip without one, those of its architecture."""
    flagship = hwspecs.flagship_of(spec)
    return spec.architecture if flagship is None else flagship.name


def stand_ins(few: KernelTable, fitted: FittedFamily, directories: Sequence[str | Path] = ()) -> StandIns:
    """What stands in for rows [G] of a stated release that was not measured on their device: the same stack on the
    nearest device of their architecture, else the nearest release on their own device, else that on a relative.

    A release stands in with the row's kernel; a row without one takes the only one of that release, and so does a
    product, whose kernel the format tells. Device and stack stay a row's own where these were measured.
    """
    spelled, known = spell_each(few), fitted.names.known
    cells, own = set(known["cell"]), np.isin(spelled["cell"].astype(str), known["cell"])
    stated = np.asarray(few.version != "") & np.asarray(few.framework != "")
    others = nearest_relatives(set(few.device[~own & stated].tolist()), known["device"], directories)
    columns = {name: np.asarray(getattr(few, name)).astype(object) for name in ("device", "version", "kernel")}
    release = np.zeros(len(few), bool)
    for row in np.flatnonzero(~own & stated).tolist():
        device, version, kernel = (column[row] for column in columns.values())
        stack, places = spelled["stack"][row], (device, *others[device])
        found = next(((each, version, kernel) for each in places if f"{each}/{stack}" in cells), None)
        release[row] = found is None
        for place in places if found is None else ():
            measured = between(cells, f"{place}/{few.framework[row]}/", f"/{spelled['format'][row]}")
            nearest = stand_in(version, kernel, few.family, measured)
            if nearest is not None:
                found = (place, *nearest)
                break
        release[row] &= found is not None
        for column, value in zip(columns.values(), found or (), strict=False):
            column[row] = value
    named = spell_each(dataclasses.replace(few, **columns))
    for level in ("device", "stack"):
        there = np.isin(spelled[level].astype(str), known[level])
        named[level] = np.where(there, spelled[level], named[level])
    return StandIns(named, columns["device"] != np.asarray(few.device).astype(object), release)


def nearest_relatives(
    devices: Collection[str],
    known: Sequence[str],
    directories: Sequence[str | Path] = (),
    kin: Callable[[DeviceSpec], str] = architecture_of,
) -> dict[str, list[str]]:
    """Of each device the others of its `kin` among the `known` ones, the nearest first; of a user's device none: what
    was learned of a relative does not know that a better device is no slower, as the law does."""
    shipped = set(hwspecs.names())
    specs = {name: hwspecs.load(name, directories) for name in {*devices, *known}}
    kinds = {name: kin(spec) for name, spec in specs.items()}

    def apart(one: str, other: str) -> float:
        ratios = (getattr(specs[one], fact).si / getattr(specs[other], fact).si for fact in ALIKE)
        return sum(abs(float(np.log(ratio))) for ratio in ratios)

    def alike(device: str) -> list[str]:
        same = [each for each in known if each != device and kinds[each] == kinds[device]]
        return sorted(same, key=lambda each: apart(device, each))

    return {device: alike(device) if device in shipped else [] for device in devices}
