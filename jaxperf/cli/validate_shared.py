"""What the levels of `jaxperf validate` share: the one table they take, and how their record is written and said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.measured import shared_table


def one_table(level: str, data: Sequence[Path], what: str, measured: str) -> Path:
    """The table that is given, or `measured` of the measured data.

    **Raises:** `InputError` for two tables, or where none is given and the measured data is not there.
    """
    if len(data) > 1:
        raise InputError(f"validate {level} takes one table of {what}.")
    (path,) = data or [shared_table(measured)]
    return path


def tell(
    record: dict[str, Any],
    rows: str,
    beside: Sequence[str],
    out: Path | None,
    as_json: bool,
    quiet: bool,
    show: Callable[[dict[str, Any], bool], None],
) -> None:
    """Writes one table of the record where an output is named, and prints the record as JSON or by `show`.

    **Arguments:** `rows`: key of the table; `beside`: keys of what the file states beside it.
    """
    from jaxperf.io.tables import json_text, write_rows

    if out is not None:
        write_rows(record[rows], out, {"jaxperf": json_text({name: record[name] for name in beside})})
    if as_json:
        typer.echo(json_text(record))
    else:
        show(record, quiet)
