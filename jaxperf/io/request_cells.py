"""What single cells of a file of requests say: numbers, tokens, times, hashes; a sentence where they do not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from hwspecs.errors import InputError
from jaxperf.core.cells import float_or_nan
from jaxperf.io.json_text import parse_json
from jaxperf.models.checks import show

LARGEST_LENGTH = 1 << 24  # tokens of one request
LATEST = 1e10  # s: beyond it a double no longer tells microseconds apart
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PRIORITY, PREFILLED = "priority", "prefilled_tokens"
HASHES = "hash_ids"  # of the prompt's beginning, one for so many tokens (Mooncake: 512)
MILLISECONDS = "timestamp"  # whole numbers under this name count milliseconds (Mooncake); dates are read as such
SINCE_1970 = (1e9, 1e10)  # a first arrival of so many seconds is a date since 2001, of so many ms nothing that begins


def column_named(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """How a file writes the first of the `names` that it has, None where it has none; case and spaces around do not
    matter."""
    found = {written.strip().casefold(): written for written in row}
    return next((found[name] for name in names if name in found), None)


def is_empty(cell: Any) -> bool:
    """Whether a cell says that there is nothing: blank, or a NaN, in text too."""
    text = "" if cell is None else str(cell).strip()
    return not text or text.casefold() == "nan"


def length_of(cell: Any) -> int | str:
    """A count of tokens, or a sentence."""
    value = float_or_nan(cell)
    if not (1 <= value <= LARGEST_LENGTH and value == int(value)):
        return f"{show(cell)} is not a whole number of tokens from 1 to {LARGEST_LENGTH:,}"
    return int(value)


def hashes_of(cell: Any) -> list[int] | str:
    """A list of whole numbers, in text as JSON; or a sentence. An empty cell is a prompt that is like no other."""
    try:
        found = parse_json(cell or "[]", HASHES) if isinstance(cell, str) else cell
    except InputError:
        found = cell
    found = [] if found is None else found
    if not isinstance(found, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        return f"{show(cell)} is not a list of whole numbers"
    return found


def seconds_of(cell: Any, unit: float) -> float | str:
    """A time, or a sentence; `unit`: of a number [s]."""
    moment = moment_of(cell)
    value = float_or_nan(cell) * unit if moment is None else since_epoch(moment)
    if not (value <= LATEST and (value >= 0.0 or moment is not None)):
        return f"{show(cell)} is not a time from 0 to {LATEST:.0e} s"
    return value


def unit_of(column: str, cells: Sequence[Any]) -> tuple[float, str]:
    """What numbers count in a column of times [s], and what is to be said of it.

    Under `MILLISECONDS` they are milliseconds, but seconds where one has a fraction, or all lie in `SINCE_1970`.
    """
    name = column.strip()
    numbers = [value for value in map(float_or_nan, cells) if math.isfinite(value)]
    if name.casefold() != MILLISECONDS or not numbers:
        return 1.0, ""
    if any(value != int(value) for value in numbers) or SINCE_1970[0] <= min(numbers) < SINCE_1970[1]:
        return 1.0, f"{name} is taken to count seconds; whole numbers from a clock's 0 on would be milliseconds"
    return 1e-3, f"{name} counts milliseconds, as in Mooncake's traces; seconds are called arrived_at"


def moment_of(cell: Any) -> datetime | None:
    """A date and time, of UTC where it names no zone; None for any other cell.

    Seconds may have more digits than Python reads (Azure has seven).
    """
    if isinstance(cell, str):
        head, dot, digits = cell.strip().partition(".")
        if "-" not in head[1:]:
            return None
        try:
            cell = datetime.fromisoformat(
                f"{head}.{digits[:6].ljust(6, '0')}" if dot and digits.isdigit() else cell.strip()
            )
        except ValueError:
            return None
    if isinstance(cell, date) and not isinstance(cell, datetime):  # Parquet's date32
        cell = datetime.combine(cell, time())
    if not isinstance(cell, datetime):
        return None
    return cell.replace(tzinfo=UTC) if cell.tzinfo is None else cell


def since_epoch(moment: datetime) -> float:
    """Seconds since the beginning of 1970."""
    return (moment - EPOCH).total_seconds()
