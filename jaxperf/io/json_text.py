"""JSON in: what a text holds, or one sentence about why it holds nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hwspecs.errors import InputError


def parse_json(text: str, where: str) -> Any:
    """What a JSON text holds.

    **Raises:** `InputError`, which begins with `where`, for a text that is no JSON, brackets nested thousands deep and
    an integer of thousands of digits.
    """
    return _parsed(text, where)


def parse_unique(text: str, where: str) -> Any:
    """What a JSON text that people write holds: `parse_json`, which also refuses a key that stands twice."""
    return _parsed(text, where, lambda pairs: _unique(pairs, where))


def _unique(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where}: the key '{twice}' is given twice in an object of {', '.join(found)}; give it once.")
    return found


def _parsed(text: str, where: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except InputError:
        raise
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not valid JSON: {error}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON: a number is too long or brackets nest too deep.") from None
