"""Names of columns: as tables of every kind compare them, and those that nobody reads but that mean another one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from hwspecs.errors import nearest

ALIKE = 0.7  # of 1; tables hold many columns that are not read, so only what is hardly another word is told


def standard_name(name: str) -> str:
    """A column name in lower case, words joined by underscores: "KV Len" becomes "kv_len"."""
    return re.sub(r"[\s\-]+", "_", name.strip().casefold())


def misspelled(columns: Iterable[str], read: Collection[str], lacking: Iterable[str]) -> dict[str, str]:
    """Columns that nobody reads and that are spelled nearly as one that is `lacking`, each with what it may mean."""
    found = {column: nearest(standard_name(column), lacking, 1, ALIKE) for column in columns if column not in read}
    return {column: meant[0] for column, meant in found.items() if meant}


def misspelled_notes(columns: Iterable[str], read: Collection[str], lacking: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each of `misspelled`."""
    found = misspelled(columns, read, lacking)
    return tuple(f"the column '{column}' is not read. Did you mean {meant}?" for column, meant in found.items())
