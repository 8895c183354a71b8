"""Who a row's numbers belong to: the levels of the hierarchy, from what every kernel shares to one cell of data.

family -> format -> framework -> library -> stack (framework, version, kernel, format) -> device -> cell (device and
stack). Each level's parameters are a small correction of the levels before it; an unknown name has none, which is how a
prediction falls back to "generic". `Names` turns the text of a row into an index a level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from calibration.datasets.groups import Groups, group
from calibration.datasets.libraries import libraries
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Column, Text, as_text

LEVELS = ("format", "framework", "library", "stack", "device", "cell")
# Prior precision of a level's parameters: the more specific, the more it must be shown by data.
PRECISION: Mapping[str, float] = {
    **dict.fromkeys(("format", "framework", "library"), 0.3),
    **dict.fromkeys(("stack", "device", "cell"), 1.0),
}
DEVICE_LEVELS = ("device", "cell")
OPTIONAL = ("library",)  # which not every family has (`calibration.datasets.libraries`), and no file of earlier jaxperf


@dataclass(frozen=True)
class Names:
    """The known names of every level, in the order of their indices."""

    known: Mapping[str, tuple[str, ...]]

    def index(self, spelled: Mapping[str, Column]) -> dict[str, np.ndarray]:
        """Index of each row's name a level [R]; an unknown name has the index after the last."""
        return {level: _positions(as_text(spelled[level]), self.known[level]) for level in LEVELS}

    def extended(self, spelled: Mapping[str, Column]) -> Names:
        """With the names of more rows appended."""
        return Names({level: (*known, *_added(as_text(spelled[level]), known)) for level, known in self.known.items()})


def _added(spelled: Text, known: tuple[str, ...]) -> list[str]:
    """Names of a column that are not known, in order; an empty one is none."""
    return sorted(name for name in spelled.counts() if name and name not in set(known))


def levels_of(names: Mapping[str, int], among: Iterable[str] = LEVELS) -> list[str]:
    """Those of some levels that a family has, by how many names each of its levels has."""
    return [level for level in among if level not in OPTIONAL or names.get(level)]


NO_NAMES = Names({level: () for level in LEVELS})


def spell(table: KernelTable, groups: Groups | None = None) -> dict[str, Text]:
    """The names of each row at every level [R]. `groups`: of the table, where they are known already."""
    groups = groups or group(table)
    each = spell_each(table.take(groups.first))
    return {level: Text(names, groups.which) for level, names in each.items()}


def spell_each(table: KernelTable) -> dict[str, np.ndarray]:
    """The same for a few rows, spelled one by one."""
    kinds = table.text["op"] if "op" in table.text else [""] * len(table)
    forms = _joined(table.dtype, table.cache, kinds)
    stacks = _joined(table.framework, table.version, table.kernel, forms)
    return {
        "format": forms,
        "framework": _joined(table.framework),
        "library": np.asarray(libraries(table)),
        "stack": stacks,
        "device": _joined(table.device),
        "cell": _joined(table.device, stacks),
    }


def _joined(*columns: Iterable[str]) -> np.ndarray:
    return np.array(["/".join(parts) for parts in zip(*columns, strict=True)], dtype=object)


def _positions(spelled: Text, known: tuple[str, ...]) -> np.ndarray:
    place = {name: position for position, name in enumerate(known)}
    index = [place.get(name, len(known)) for name in spelled.values.tolist()]
    return np.array(index, np.int32)[spelled.codes]
