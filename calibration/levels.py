"""Who a row's numbers belong to: the levels of the hierarchy, from what every kernel shares to one cell of data.

family -> format -> framework -> stack (framework, version, kernel, format) -> device -> cell (device and stack). Each
level's parameters are a small correction of the levels before it; an unknown name has none, which is how a prediction
falls back to "generic". `Names` turns the text of a row into an index a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calibration.datasets.schema import KernelTable

LEVELS = ("format", "framework", "stack", "device", "cell")
# Prior precision of a level's parameters: the more specific, the more it must be shown by data.
PRECISION: Mapping[str, float] = {"format": 0.3, "framework": 0.3, "stack": 1.0, "device": 1.0, "cell": 1.0}
DEVICE_LEVELS = ("device", "cell")


@dataclass(frozen=True)
class Names:
    """The known names of every level, in the order of their indices."""

    known: Mapping[str, tuple[str, ...]]

    def index(self, spelled: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Index of each row's name a level [R]; an unknown name has the index after the last."""
        return {level: _positions(spelled[level], self.known[level]) for level in LEVELS}

    def extended(self, spelled: Mapping[str, np.ndarray]) -> Names:
        """With the names of more rows appended."""
        return Names(
            {
                level: (*known, *(name for name in np.unique(spelled[level]) if name not in set(known)))
                for level, known in self.known.items()
            }
        )


NO_NAMES = Names({level: () for level in LEVELS})


def spell(table: KernelTable) -> dict[str, np.ndarray]:
    """The names of each row at every level [R]."""
    kind = table.text.get("op", np.full(len(table), "")).astype(str)
    form = _join(table.dtype, table.cache, kind)
    stack = _join(table.framework, table.version, table.kernel, form)
    return {
        "format": form,
        "framework": table.framework.astype(str),
        "stack": stack,
        "device": table.device.astype(str),
        "cell": _join(table.device, stack),
    }


def _join(*columns: np.ndarray) -> np.ndarray:
    """Texts joined by "/", computed once per distinct combination."""
    codes, total = np.zeros(len(columns[0]), np.int64), 1
    parts = []
    for column in columns:
        distinct, which = np.unique(column.astype(str), return_inverse=True)
        codes, total = codes * len(distinct) + which, total * len(distinct)
        parts.append((distinct, which))
    _, first, back = np.unique(codes, return_index=True, return_inverse=True)
    spelled = np.array(["/".join(distinct[which[at]] for distinct, which in parts) for at in first], dtype=object)
    return spelled[back] if len(first) else np.array([], dtype=object)


def _positions(spelled: np.ndarray, known: tuple[str, ...]) -> np.ndarray:
    place = {name: position for position, name in enumerate(known)}
    distinct, which = np.unique(spelled.astype(str), return_inverse=True)
    return np.array([place.get(name, len(known)) for name in distinct], np.int32)[which]
