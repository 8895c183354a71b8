"""JSON in: what a text holds, or one sentence about why it holds nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from hwspecs.errors import InputError


def parse_json(text: str, where: str) -> Any:
    """What a JSON text holds; of a name that stands twice in an object the last.

    **Raises:** `InputError`, which begins with `where`, for a text that is no JSON, brackets nested thousands deep and
    an integer of thousands of digits.
    """
    return _parsed(text, where, None)


def parse_written_json(text: str, where: str) -> Any:
    """What a JSON text holds that is written by hand.

    **Raises:** `InputError` as `parse_json` does, and for a name that stands twice in an object.
    """
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(name for name, count in Counter(name for name, _ in found).items() if count > 1)
        return dict(found)

    data = _parsed(text, where, pairs)
    if twice:
        raise InputError(f"{where}: {twice[0]} stands twice; leave one out.")
    return data


def _parsed(text: str, where: str, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not valid JSON: {error}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON: a number is too long or brackets nest too deep.") from None
