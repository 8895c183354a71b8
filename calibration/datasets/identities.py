"""What identifies a row, where a table may have several columns for it: the first that says something counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from calibration.datasets.columns import Sheet
from calibration.datasets.groups import grouped
from calibration.datasets.text import Text

Meaning = Callable[[str], tuple[str, str]]
Differing = Mapping[tuple[str, str], np.ndarray]


def read_identity(sheet: Sheet, columns: Sequence[str], meaning: Meaning) -> tuple[Text, Differing]:
    """The meaning of each row [R], "" where no column says anything, and the rows in which a further column means
    something else than the one that counts, by the names of the two. What has no meaning is noted.

    **Arguments:** `columns`: the names it goes by, the one to prefer first; `meaning` of a cell, or "" and what is
    wrong with it.
    """
    present = [name for name in columns if name in sheet]
    if len(present) < 2:
        return sheet.named(present[0] if present else columns[0], meaning), {}
    texts = [sheet.text(name) for name in present]
    alike = grouped(texts)
    known: list[str] = []
    unknown: dict[tuple[str, str], list[int]] = {}
    differing: dict[tuple[str, str], list[int]] = {}
    for place, cells in enumerate(zip(*(text[alike.first].tolist() for text in texts), strict=True)):
        meant = [(name, *meaning(cell)) for name, cell in zip(present, cells, strict=True)]
        (first, name, wrong), *others = [each for each in meant if each[1] or each[2]] or meant
        known.append(name)
        if wrong:
            unknown.setdefault((first, wrong), []).append(place)
        for column, other, _ in others:
            if "" not in (name, other) and name != other:
                differing.setdefault((column, first), []).append(place)
    for (column, wrong), places in unknown.items():
        sheet.notes.alike(np.flatnonzero(np.isin(alike.which, places)) + sheet.start, column, wrong)
    differ = {pair: np.flatnonzero(np.isin(alike.which, places)) for pair, places in differing.items()}
    return Text(np.array(known, object), alike.which), differ
