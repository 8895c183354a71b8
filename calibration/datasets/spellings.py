"""Columns of one meaning under several names: which of a table hold it, and what a row says where they all agree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hwspecs.errors import InputError

Meaning = Callable[[str], Any]


def spelled(names: Mapping[str, tuple[str, ...]], written: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Name -> the columns of a table that hold it, its own before its other names; no entry where none does.

    **Arguments:** `written`: standard name -> column, as `standard_columns` gives it.
    """
    found = {
        name: tuple(written[each] for each in (name, *others) if each in written) for name, others in names.items()
    }
    return {name: columns for name, columns in found.items() if columns}


def absent(names: Mapping[str, Iterable[str]], there: Collection[str]) -> list[str]:
    """Every name, its own or another, of what is not `there` under any; arguments as of `spelled`."""
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
