"""One's own sustained rates put over those there are: what the own rows do not cover stays, and is marked as shipped.

A composed step needs a rate for every kernel family on every device; few tables measure them all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable, Read
from calibration.kernels.calibrate import gather
from calibration.kernels.parameters import Parameters
from calibration.sustained.rows import SOURCES, Wanted
from calibration.sustained.table import sustained
from jaxperf.core.sustained_file import KIND, ORIGIN, SHIPPED_ORIGIN, SustainedTable, nearest

Entry = dict[str, Any]
LEAST_ROWS = 20  # of a device in a format class: the priors hold three scalars, and few held-out rows a wide interval


@dataclass(frozen=True)
class OwnRates:
    """`record`: the table of `jaxperf.core.sustained_file` without its card; `covered`: the devices that got their own
    rates, by family and format class; `left`: a sentence for each family of the rows that gave none."""

    record: dict[str, Any]
    covered: Mapping[tuple[str, str], Sequence[str]]
    left: Sequence[str]


def own_rates(
    parameters: Parameters,
    reads: Sequence[Read],
    base: SustainedTable,
    exclude: Collection[str] = (),
    directories: Sequence[str] = (),
) -> OwnRates:
    """The rates of the devices of some rows over those of `base`.

    **Arguments:** `parameters`: whose laws to start from; `exclude`: devices that nothing is to be known of, by any
    spelling; `directories`: of the user's own devices.
    """
    excluded = {str(hwspecs.resolve(name).name) for name in exclude}
    tables = gather(reads, excluded)
    families = _marked(base, excluded)
    covered: dict[tuple[str, str], list[str]] = {}
    record: dict[str, Any] = {}
    for kind in (KIND, *sorted(_kinds(tables, directories) - {KIND})):
        wanted = Wanted(kind, any_software=True, least=LEAST_ROWS, directories=directories)
        record = sustained(parameters, tables, wanted)
        for family, found in record["families"].items():
            for form, entry in found["classes"].items():
                if entry["devices"]:
                    classes = families.setdefault(family, {"classes": {}})["classes"]
                    classes[form] = _over(classes, form, entry, kind)
                    covered.setdefault((family, form), []).extend(sorted(entry["devices"]))
    return OwnRates({**record, "families": families}, covered, _left(tables, covered))


def _kinds(tables: Mapping[str, KernelTable], directories: Sequence[str]) -> set[str]:
    names = {name for table in tables.values() for name in np.unique(table.device.astype(str)).tolist()}
    return {hwspecs.load(name, directories).kind for name in names}


def _marked(base: SustainedTable, excluded: Collection[str]) -> dict[str, dict[str, dict[str, Entry]]]:
    """The families of `base` without the excluded devices, each row with its energy and where it is from."""
    mark = {ORIGIN: SHIPPED_ORIGIN} if base.path == "shipped" else {}

    def marked(entry: Mapping[str, Any]) -> Entry:
        devices = {
            name: {"energy": entry["energy"], **row, **mark}
            for name, row in entry["devices"].items()
            if name not in excluded
        }
        return {**entry, **mark, "devices": devices}

    return {
        family: {"classes": {form: marked(entry) for form, entry in each["classes"].items()}}
        for family, each in base.families.items()
    }


def _over(classes: Mapping[str, Entry], form: str, own: Entry, kind: str) -> Entry:
    """An entry over what a device would have had without it: the same class, or else the nearest as transfer.

    The numbers of devices never measured are its own where it has left a generation out.
    """
    devices = {name: {"energy": own["energy"], **row} for name, row in own["devices"].items()}
    there = next((classes[each] for each in nearest(form) if each in classes), None)
    if there is None:
        return {**own, "devices": devices}
    others = dict(there["devices"])
    if form not in classes:
        lent = {"tier": "transfer", "half_width": there["half_width"]}
        others = {name: row | lent for name, row in others.items()}
    head = own if kind == KIND and own["generations"] > 1 else there
    return {**head, "devices": {**others, **devices}}


def _left(tables: Mapping[str, KernelTable], covered: Mapping[tuple[str, str], Sequence[str]]) -> list[str]:
    """A sentence for each family of a composed step that rows are of and that no device got rates from."""
    families = [family for family, names in SOURCES.items() if set(names) & set(tables)]
    without = [family for family in families if family not in {name for name, _ in covered}]
    return [
        f"{family}: no device has {LEAST_ROWS} rows of a format class as they are served (a serving engine or software "
        "whose kernels no host launches one by one, plain formats, contexts of 256 tokens and more)"
        for family in without
    ]
