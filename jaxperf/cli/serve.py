"""`jaxperf serve TABLE -o OUT`: a table of serving configurations with their latencies, the same rows in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.kernels import check_places
from jaxperf.cli.options import AsJson, DevicesDirectory, Electricity, Price, Quiet, SustainedRates, parse_unit_prices
from jaxperf.cli.predicted import (
    OutTable,
    answer_record,
    end,
    error_cells,
    errors_by_tier,
    print_answer,
    source_line,
    source_record,
    stamp,
    tiers_of,
)

if TYPE_CHECKING:
    import numpy as np

    from calibration.datasets.serving import ServingTable

LABELS = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_ms", "throughput": "output_tokens_per_s"}
MILLI = 1e3
OWN_FIGURE = re.compile(r" \([0-9.]+ (ms|%)\)")  # of one row, in a note that others have too
Scalars = Annotated[
    Path | None,
    typer.Option("--scalars", metavar="SCALARS", help="Scalars of engines, fitted to serving (default: the shipped)."),
]
SHOWN = {
    "ttft_ms": ("TTFT ms", 1.0),
    "ttft_ms_lower": ("from", 1.0),
    "ttft_ms_upper": ("to", 1.0),
    "tpot_ms": ("TPOT ms", 1.0),
    "tpot_ms_lower": ("from", 1.0),
    "tpot_ms_upper": ("to", 1.0),
    "e2e_ms": ("E2E ms", 1.0),
    "output_tokens_per_s": ("tokens/s", 1.0),
}


def serve(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Rows of model, gpu, n_gpu, tp, ..., input_len, output_len, concurrency."),
    ],
    out: OutTable,
    price: Price = None,
    electricity: Electricity = None,
    params: SustainedRates = None,
    scalars: Scalars = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict TTFT, TPOT and tokens/s of serving engines. And the latency of requests, each with a 90 % interval."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    import hwspecs
    from calibration.datasets import write_with
    from calibration.datasets.serving import read_serving
    from calibration.serving.parameters import load_serving
    from calibration.serving.predict import ADDED, predict_serving
    from jaxperf.core.sustained_file import load_sustained_table

    check_places(table, out, ADDED)
    directories = [str(folder) for folder in devices_dir or ()]
    hwspecs.open_registry(directories)
    fitted, rates = load_serving(scalars), load_sustained_table(params)
    read = read_serving(table)
    columns = predict_serving(
        read, fitted, rates, directories, lambda specs: parse_unit_prices(price, electricity, specs, every=False)
    )
    source = {
        "scalars": source_record(fitted.card, scalars, kin=list(fitted.kin)),
        "rates": {"path": rates.path, "created": rates.card.get("created")},
    }
    write_with(table, out, columns, stamp(source))
    record = {
        **answer_record(table, out, columns, SHOWN, _notes, read.notes),
        "configurations": len(read.configurations),
        "tiers": tiers_of(columns, SHOWN),
        "errors": [row for label in LABELS for row in _errors(read, columns, label)],
        **source,
    }
    end(record, as_json, quiet, _print)


def _notes(reason: str) -> list[str]:
    """The notes of a row, each without a figure of this row."""
    return OWN_FIGURE.sub("", reason).split("; ")


def _errors(read: ServingTable, columns: dict[str, np.ndarray], label: str) -> list[dict[str, Any]]:
    """Configurations, mean and median error of an output in every tier over those that state it."""
    import numpy as np

    scale = MILLI if label != "throughput" else 1.0
    stated = [each for each in read.configurations if label in each.measured]
    rows = [each.rows[0] for each in stated]
    measured = np.array([each.measured[label] * scale for each in stated])
    found = errors_by_tier(np.abs(columns[LABELS[label]][rows] / measured - 1.0), columns["tier"][rows])
    return [{"output": label, "configurations": row.pop("rows"), **row} for row in found]


def _print(record: dict[str, Any], quiet: bool) -> None:
    heads = ("output", "tier", "configurations with it", "mean error", "median")
    cells = [
        (row["output"], row["tier"], *error_cells({**row, "rows": row["configurations"]})) for row in record["errors"]
    ]
    title = f"{record['predicted']:,} of {record['rows']:,} rows, {record['configurations']:,} configurations"
    made_on = f"{len(record['scalars']['kin'])} pairs of engine and model"
    print_answer(record, SHOWN, (title, heads, cells), [source_line(record["scalars"], made_on)], quiet)
