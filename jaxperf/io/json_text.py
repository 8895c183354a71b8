"""JSON in: what a text holds, or one sentence about why it holds nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hwspecs.errors import InputError


def parse_json(text: str, where: str) -> Any:
    """What a JSON text holds.

    **Raises:** `InputError`, which begins with `where`, for a text that is no JSON, brackets nested thousands deep, an
    integer of thousands of digits and half a character (a lone surrogate), which no text that is written can hold.
    """
    return _parsed(text, where)


def parse_unique(text: str, where: str) -> Any:
    """What a JSON text that people write holds: `parse_json`, which also refuses a key that stands twice."""
    return _parsed(text, where, lambda pairs: _unique(pairs, where))


def parse_rows(text: str, where: str) -> Any:
    """What a table holds that may be long: `parse_unique`, in the time of `parse_json` where rows hold no objects."""
    found = parse_json(text, where)
    return found if _is_unique(text, found) else parse_unique(text, where)


def parse_lines(text: str, where: str) -> list[dict[str, Any]]:
    """The objects of a JSON text a line, without empty lines; as `parse_rows`."""
    found = _lines(text, where, parse_json)
    return found if _is_unique(text, found) else _lines(text, where, parse_unique)


def _lines(text: str, where: str, parse: Callable[[str, str], Any]) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            row = parse(line, f"{where}: line {number}")
            if not isinstance(row, dict):
                raise InputError(f"{where}: line {number} is not an object with names and values.")
            rows.append(row)
    return rows


def _is_unique(text: str, rows: Any) -> bool:
    """Whether surely no key stands twice in rows: the text has no more places where a key may end than they have."""
    if not isinstance(rows, list) or set(map(type, rows)) - {dict}:
        return False
    keys = sum(map(len, rows))
    return keys == text.count(":") or keys == sum(text.count(f"{before}:") for before in '" \t\r\n')


def _unique(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: the key '{twice}' is given twice in an object of {', '.join(found)}; give it once.")
    return found


def _parsed(text: str, where: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    try:
        found = json.loads(text, object_pairs_hook=pairs)
        if "\\" in text and ("\\ud" in text or "\\uD" in text):  # both halves of a character are one by now
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except InputError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not valid JSON: {error}.") from None
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise InputError(f"{where} has {half}, half a character; give both halves, or the character itself.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON: a number is too long or brackets nest too deep.") from None
