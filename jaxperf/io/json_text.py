"""JSON in: what a text holds, or one sentence about why it holds nothing."""

from __future__ import annotations

import json
from typing import Any

from hwspecs.errors import InputError


def parse_json(text: str, where: str) -> Any:
    """What a JSON text holds.

    **Raises:** `InputError`, which begins with `where`, for a text that is no JSON, brackets nested thousands deep and
    an integer of thousands of digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not valid JSON: {error}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON: a number is too long or brackets nest too deep.") from None
