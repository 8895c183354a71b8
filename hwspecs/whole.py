"""Whole numbers as people type them, of which Python refuses to read thousands of digits."""

from __future__ import annotations

MOST_DIGITS = 300  # more than any number that means something has


def whole_number(text: str) -> int | None:
    """The number that a text of decimal digits is, None for any other text and for one of more than `MOST_DIGITS`."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None
