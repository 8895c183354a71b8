"""Columns of one meaning under several names: which of a table hold it, and what a row says where they all agree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.datasets.columns import standard_columns
from hwspecs.errors import InputError, did_you_mean

Meaning = Callable[[str], Any]


def places_in(
    path: str | Path, columns: Sequence[str], names: Mapping[str, tuple[str, ...]], needed: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Name -> the columns of a table that hold it, its own before its other names; no entry where none does.

    **Raises:** `InputError` for a table without columns, and where a name that is `needed` has no entry.
    """
    if not columns:
        raise InputError(f"{path} has no rows.")
    written = standard_columns(path, columns)
    found = {
        name: tuple(written[each] for each in (name, *others) if each in written) for name, others in names.items()
    }
    places = {name: held for name, held in found.items() if held}
    for name in needed:
        if name not in places:
            raise InputError(
                f"{path}: the column '{name}' is missing; needed: {', '.join(needed)}.{did_you_mean(name, columns)}"
            )
    return places


def absent(names: Mapping[str, Iterable[str]], there: Collection[str]) -> list[str]:
    """Every name, its own or another, of what is not `there` under any; arguments as of `places_in`."""
    return [each for name, others in names.items() if name not in there for each in (name, *others)]


def stated(name: str, cells: Mapping[str, str], meaning: Meaning | None = None) -> str:
    """The first cell with a text, "" where there is none.

    **Arguments:** `cells`: column -> text; `meaning` of a text: without it, and where it is "" or raises `InputError`,
    a text is not compared with the first.
    **Raises:** `InputError` where another column's text means something else.
    """
    given = [(column, text) for column, text in cells.items() if text]
    if not given:
        return ""
    column, text = given[0]
    for other, second in given[1:]:
        if meaning is not None and _differ(text, second, meaning):
            raise InputError(f"{name}: '{column}' says {text} and '{other}' {second}; they mean the same, remove one.")
    return text


def _differ(first: str, second: str, meaning: Meaning) -> bool:
    try:
        meant = (meaning(first), meaning(second))
    except InputError:
        return False
    return first != second and meant[0] != meant[1] and "" not in meant
