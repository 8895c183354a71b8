"""The text of a CSV file: its rows, and what may be wrong with it as a whole, such as its encoding, what stands above
the header, or an open quote."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable
from pathlib import Path

from hwspecs.errors import InputError


def delimiter_of(line: str) -> str:
    """The delimiter of a header, as spreadsheets of some languages write it."""
    return max(",;\t", key=line.count)


def not_utf_8(path: str | Path, error: UnicodeDecodeError) -> InputError:
    """The sentence on text of another encoding."""
    wide = error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return InputError(f"{path} is UTF-16 text; save it as UTF-8." if wide else f"{path} is not UTF-8 text.")


def check_first_line(path: str | Path, line: str) -> None:
    """Raises `InputError` for what spreadsheets and people write above a header, which would be taken for it."""
    text = line.strip()
    if not text:
        what = "empty"
    elif text.lower().startswith("sep="):
        what = f"{text!r}"
    elif text.startswith("#") and delimiter_of(line) not in text:
        what = "a comment"
    else:
        return
    raise InputError(f"{path}: line 1 is {what}, but must name the columns; delete what stands above the header.")


def check_quotes(path: str | Path, lines: Iterable[str], delimiter: str) -> None:
    """Raises `InputError` for a quote that is never closed: it makes one cell of all lines after it, as where a file
    was cut inside a cell."""
    begins = 1
    try:
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        for _ in rows:
            begins = rows.line_num + 1
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise InputError(f"{path}, line {begins}: a quote is opened and never closed.") from None


def csv_rows(text: str, path: str | Path) -> list[dict[str, str]]:
    """The rows of a file with a header, column -> cell.

    **Raises:** `InputError` for text that is empty or no CSV, and for a row with too many or too few cells.
    """
    text = text if "\n" in text else text.replace("\r", "\n")  # as old spreadsheets end lines
    if not text.strip():
        raise InputError(f"{path} is empty.")
    first = text.partition("\n")[0]
    check_first_line(path, first)
    delimiter = delimiter_of(first)
    if text.count('"') % 2:
        check_quotes(path, io.StringIO(text, newline=""), delimiter)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = next(lines, [])
        if len(set(header)) != len(header):
            raise InputError(f"{path}: two columns have the same name: {', '.join(header)}.")
        rows = []
        for cells in lines:
            if len(cells) == len(header):
                rows.append(dict(zip(header, cells, strict=True)))
            elif "".join(cells).strip():  # a line of white space is as empty as one of nothing
                raise InputError(f"{path}: line {lines.line_num} has {len(cells)} cells; the header has {len(header)}.")
    except csv.Error as error:
        raise InputError(f"{path}: line {lines.line_num} is not CSV: {error}.") from None
    return rows
