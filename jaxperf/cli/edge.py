"""`jaxperf edge TABLE -o OUT`: a table of small networks with latencies on edge devices, the same rows in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.kernels import check_places
from jaxperf.cli.options import AsJson, Quiet
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

    from calibration.edge.rows import EdgeTable

SHOWN = {"predicted_ms": ("ms", 1.0), "lower_ms": ("from", 1.0), "upper_ms": ("to", 1.0), "macs": ("GMAC", 1e-9)}


def edge(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Rows of arch (NAS-Bench-201 or FBNet) and device, or --device for all."),
    ],
    out: OutTable,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="The device of all rows, with its batch if it has one."),
    ] = None,
    adapt: Annotated[
        Path | None,
        typer.Option("--adapt", metavar="MEASURED", help="A few rows with latency_ms, of devices never measured."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option("--params", metavar="PARAMS", help="What is known of devices (default: the shipped).")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict networks on phones, boards, FPGA, CPUs and GPUs. Latency with a 90 % interval, from ten measured ones."""
    from calibration.datasets import write_with
    from calibration.edge.parameters import load_edge
    from calibration.edge.predict import ADDED, predict_edge
    from calibration.edge.rows import read_edge, read_measured

    check_places(table, out, ADDED)
    parameters = load_edge(params)
    read = read_edge(table, device)
    measured = [] if adapt is None else read_measured(adapt, device)
    columns = predict_edge(read, parameters, measured)
    source = {
        "adapted_to": None if adapt is None else {"file": str(adapt), "rows": len(measured)},
        "parameters": source_record(parameters.card, params),
    }
    write_with(table, out, columns, stamp(source))
    record = {
        **answer_record(table, out, columns, SHOWN, of_all=read.notes),
        "tiers": tiers_of(columns, SHOWN),
        "errors": _errors(read, columns),
        "devices": {space: list(known.prior.devices) for space, known in parameters.spaces.items()},
        **source,
    }
    end(record, as_json, quiet, _print)


def _errors(read: EdgeTable, columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Rows, mean and median error of every tier over the rows that state a latency."""
    import numpy as np

    measured = np.full(read.rows, np.nan)
    for row in read.found:
        measured[row.row] = row.measured
    return errors_by_tier(np.abs(columns["predicted_ms"] / (1e3 * measured) - 1.0), columns["tier"])


def _print(record: dict[str, Any], quiet: bool) -> None:
    heads = ("tier", "rows with a latency", "mean error", "median")
    cells = [(row["tier"], *error_cells(row)) for row in record["errors"]]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted"
    few = record["adapted_to"]
    adapted = [f"adapted to: {few['file']}, {few['rows']:,} rows"] if few else []
    made_on = ", ".join(f"{len(names)} devices on {space}" for space, names in record["devices"].items())
    lines = [*adapted, source_line(record["parameters"], made_on)]
    print_answer(record, SHOWN, (title, heads, cells), lines, quiet)
