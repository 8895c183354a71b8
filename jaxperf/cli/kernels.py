"""`jaxperf kernels TABLE -o OUT`: a table of kernels with predictions, the same rows in the same order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, shortened
from jaxperf.cli.measured import Params
from jaxperf.cli.options import EXIT_INFEASIBLE, AsJson, DevicesDirectory, Quiet
from jaxperf.cli.predicted import stamp

if TYPE_CHECKING:
    import numpy as np

    from calibration.datasets import KernelTable, Read
    from calibration.datasets.text import Text
    from calibration.kernels.predict import Predicted

MICRO = 1e6
WIDTH = 90  # of the table: a narrower terminal wraps it, and no figure is cut


def kernels(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Rows of kernels: .parquet, .csv, .tsv (or .gz), .json, .jsonl.")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The same rows with predictions; never TABLE itself.")
    ],
    params: Params = None,
    family: Annotated[
        str | None,
        typer.Option("--family", metavar="NAME", help="Family of all rows, where the columns do not tell it."),
    ] = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict a table of kernels. Time, 90 % interval, roofline, limiter, and where each number comes from."""
    from jaxperf.cli.measured import parameters_record, problems_record, start_single_precision

    start_single_precision(quick=True)
    import hwspecs
    from calibration.datasets import read_table, write_with
    from calibration.datasets.tables import DEVICE_COLUMNS
    from calibration.kernels.parameters import load_parameters
    from calibration.kernels.predict import ADDED, predict
    from jaxperf.io.tables import json_text

    check_places(table, out, ADDED)
    directories = [str(folder) for folder in devices_dir or ()]
    hwspecs.open_registry(directories)
    parameters = load_parameters(params)
    read = read_table(table, family, directories=directories, timed=False)
    check_column(table, DEVICE_COLUMNS)
    predicted = predict(read, parameters, directories)
    source = {"parameters": parameters_record(parameters, params)}
    write_with(table, out, predicted.columns, stamp(source))
    record = {
        "table": str(table),
        "out": str(out),
        **summary(read, predicted),
        "problems": problems_record([read]),
        **source,
    }
    if as_json:
        typer.echo(json_text(record))
    else:
        _print(record, quiet)
    if not record["predicted"]:
        raise typer.Exit(EXIT_INFEASIBLE)


def check_places(table: Path, out: Path, added: Iterable[str]) -> None:
    """What can be found wrong with the two files before anything is computed.

    **Arguments:** `added`: the columns that the command adds.
    **Raises:** `InputError` for an output that is the input or cannot be written, or an input that has predictions, or
    no rows.
    """
    from calibration.datasets.files import read_pieces, suffix_of
    from jaxperf.io.tables import check_output

    suffix_of(out)
    check_output(out, [out.suffix.lower()])
    first = next(read_pieces(table, 1), None)
    if first is None:
        raise InputError(f"{table} has no rows.")
    for name in added:
        if name in first.column_names:
            raise InputError(f"{table} already has a column '{name}', which is to be added; rename or remove it.")


def check_column(table: Path, names: Sequence[str]) -> None:
    """Raises `InputError` where a table has no column of any of these `names`, without which no row has a
    prediction."""
    from calibration.datasets.columns import standard_columns
    from calibration.datasets.files import read_pieces
    from hwspecs.errors import did_you_mean

    first = next(read_pieces(table, 1), None)
    written = standard_columns(table, first.column_names if first else [], lambda name: False)
    if not set(names) & set(written):
        hint = next(filter(None, (did_you_mean(name, list(written.values())) for name in names)), "")
        others = f" (also called {', '.join(names[1:])})" if len(names) > 1 else ""
        raise InputError(f"{table}: the column '{names[0]}' is missing{others}.{hint}")


# --- what is said about the answer ------------------------------------------------------------------------------------


def summary(read: Read, predicted: Predicted) -> dict[str, Any]:
    """Rows by family and tier, why rows have no prediction, and what to know of those that have, as plain data."""
    import numpy as np

    from calibration.datasets.text import as_text
    from calibration.kernels.predict import UNREAD

    columns = predicted.columns
    known, reason = np.isfinite(np.asarray(columns["predicted_us"])), as_text(columns["reason"])
    without: Counter[str] = Counter()
    for sentence, count in reason[~known].counts().items():
        without[UNREAD if sentence.startswith(UNREAD) else sentence] += count  # each row's own is in the table
    notes: Counter[str] = Counter()
    for reasons, count in reason[known].counts().items():
        notes.update({reason: count for reason in reasons.split("; ") if reason})
    return {
        "rows": read.rows,
        "predicted": int(known.sum()),
        "groups": [group for table in read.tables for group in _groups(table, columns)],
        "without_prediction": _counted(without),
        "notes": _counted(notes),
    }


def _counted(reasons: Counter[str]) -> list[dict[str, Any]]:
    return [{"reason": shortened(reason), "rows": count} for reason, count in reasons.most_common()]


def _groups(table: KernelTable, columns: dict[str, np.ndarray | Text]) -> Iterator[dict[str, Any]]:
    """One entry a tier of a family, with medians over its rows; errors where the table states a time."""
    import numpy as np

    from calibration.datasets.text import as_text

    own = {name: column[table.row] for name, column in columns.items()}
    for tier in sorted(as_text(own["tier"]).counts()):
        at = (own["tier"] == tier) & np.isfinite(own["predicted_us"])
        time = own["predicted_us"][at]
        if not len(time):
            continue
        measured = np.full(len(time), np.nan) if table.latency is None else table.latency[at] * MICRO
        yield {
            "family": table.family,
            "tier": tier,
            "rows": len(time),
            "lower": _median(own["lower_us"][at] / time - 1.0),
            "upper": _median(own["upper_us"][at] / time - 1.0),
            "measured": int(np.isfinite(measured).sum()),
            "error": _median(np.abs(time / measured - 1.0)),
            "roofline_error": _median(np.abs(own["roofline_us"][at] / measured - 1.0)),
        }


def _median(values: np.ndarray) -> float:
    """The median of what is known; NaN where nothing is."""
    import numpy as np

    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.cli.measured import print_problems
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    columns = ("family", "tier", "rows", "90 % interval", "with a time", "error", "roofline's")
    cells = [
        (
            group["family"],
            group["tier"],
            f"{group['rows']:,}",
            f"{group['lower']:+.0%} {_bound(group['upper'])}",
            f"{group['measured']:,}",
            _percent(group["error"]),
            _percent(group["roofline_error"]),
        )
        for group in record["groups"]
    ]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted"
    out.print(table(title, columns, cells) if cells else title)
    for entry in record["without_prediction"]:
        out.print(f"no prediction ({entry['rows']:,}): {entry['reason']}", soft_wrap=True)
    if not quiet:
        for entry in record["notes"]:
            out.print(f"note ({entry['rows']:,}): {entry['reason']}", soft_wrap=True)
        print_problems(out, record["problems"])
        source = record["parameters"]
        files = [str(each["file"]) for each in source["adapted_to"]]
        out.print(
            f"parameters: {source['path']}, fitted {source['created']}, files: {len(source['data'])}, "
            f"devices: {len(source['devices'])}, adapted to: {', '.join(files) or 'none'}; intervals and errors "
            "are medians over the rows, and no test of the parameters where these have seen the rows",
            soft_wrap=True,
        )
    out.print(f"written: {record['out']}", soft_wrap=True)


def _bound(share: float) -> str:
    return f"{share:+.0%}" if math.isfinite(share) else "unbounded"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"
