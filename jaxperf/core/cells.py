"""A cell of a table or a field of a file as a number; nothing here imports JAX."""

from __future__ import annotations

import math
from typing import Any


def float_or_nan(cell: Any) -> float:
    """A number, also in text; NaN for any other cell, truth values among them."""
    try:
        return math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
