"""`jaxperf edge TABLE -o OUT`: a table of small networks with latencies on edge devices, the same rows in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.kernels import check_places
from jaxperf.cli.measured import counted, print_reasons
from jaxperf.cli.options import AsJson, Quiet
from jaxperf.cli.predicted import end, errors_by_tier, few_answers, print_few, print_source, source_record, stamp

if TYPE_CHECKING:
    import numpy as np

    from calibration.edge.parameters import EdgeParameters
    from calibration.edge.rows import EdgeTable

SHOWN = {"predicted_ms": ("ms", 1.0), "lower_ms": ("from", 1.0), "upper_ms": ("to", 1.0), "macs": ("GMAC", 1e-9)}


def edge(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Rows of arch (NAS-Bench-201 or FBNet) and device, or --device for all."),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The same rows with predictions; never TABLE itself.")
    ],
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
        "table": str(table),
        "out": str(out),
        **summary(read, columns),
        "answers": few_answers(columns, SHOWN),
        "devices": _devices(parameters),
        **source,
    }
    end(record, as_json, quiet, _print)


def summary(read: EdgeTable, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """How many rows were predicted, why others were not, what to know of those that were, and where the table states
    latencies, the errors by tier, as plain data."""
    import numpy as np

    known = np.isfinite(columns["predicted_ms"])
    measured = np.full(read.rows, np.nan)
    for row in read.found:
        measured[row.row] = row.measured
    error = np.abs(columns["predicted_ms"] / (1e3 * measured) - 1.0)
    return {
        "rows": read.rows,
        "predicted": int(known.sum()),
        "tiers": dict(Counter(columns["tier"][known].tolist())),
        "errors": errors_by_tier(error, columns["tier"]),
        "without_prediction": counted(Counter(columns["reason"][~known].tolist())),
        "notes": counted(Counter(columns["reason"][known].tolist())),
    }


def _devices(parameters: EdgeParameters) -> dict[str, list[str]]:
    return {space: list(known.prior.devices) for space, known in parameters.spaces.items()}


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    cells = [
        (row["tier"], f"{row['rows']:,}", f"{row['mean']:.1%}", f"{row['median']:.1%}") for row in record["errors"]
    ]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted"
    out.print(table(title, ("tier", "rows with a latency", "mean error", "median"), cells) if cells else title)
    print_few(out, record["answers"], SHOWN)
    print_reasons(out, record, quiet)
    if not quiet:
        if record["adapted_to"]:
            out.print(f"adapted to: {record['adapted_to']['file']}, {record['adapted_to']['rows']:,} rows")
        told = ", ".join(f"{len(names)} devices on {space}" for space, names in record["devices"].items())
        print_source(out, record["parameters"], told)
    out.print(f"written: {record['out']}", soft_wrap=True)
