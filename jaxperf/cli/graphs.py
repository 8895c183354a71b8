"""`jaxperf graphs TABLE -o OUT`: a table of iterations with predictions, the same rows in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.kernels import check_places
from jaxperf.cli.measured import Params
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet
from jaxperf.cli.predicted import OutTable, answer_record, end, print_answer, stamp

if TYPE_CHECKING:
    import numpy as np

    from calibration.composition.predict_graphs import GraphParameters
    from calibration.composition.rows import Row

MILLI = 1e-3
SHOWN = {
    "predicted_ms": ("predicted ms", 1.0),
    "lower_ms": ("from", 1.0),
    "upper_ms": ("to", 1.0),
    "kernel_ms": ("device ms", 1.0),
    "host_ms": ("host ms", 1.0),
    "roofline_ms": ("roofline ms", 1.0),
    "exposed_communication_ms": ("exposed ms", 1.0),
    "exposed_communication_fraction": ("exposed %", 100.0),
}
BETWEEN = ("exposed_communication_ms", "exposed_communication_fraction")  # 0 on one device


def graphs(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Rows of device, model, mode, seq, batch and variant.")
    ],
    out: OutTable,
    graphs: Annotated[
        Path | None,
        typer.Option("--graphs", metavar="DIR", help="Operation graphs, MODEL-MODE-SEQ-BATCH[-VARIANT].csv."),
    ] = None,
    adapt: Annotated[
        Path | None, typer.Option("--adapt", metavar="TABLE", help="Measured operations of the device; ten are enough.")
    ] = None,
    params: Params = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict iterations of whole models. Time, 90 % interval, the device's and the host's work, and the plain
    roofline."""
    from jaxperf.cli.measured import start_single_precision

    start_single_precision(quick=True)
    from calibration.composition.graph_parameters import load_graphs
    from calibration.composition.predict_graphs import ADDED, predict_rows
    from calibration.composition.row_graphs import Graphs
    from calibration.composition.rows import read_rows, unread_columns
    from calibration.datasets import write_with

    check_places(table, out, ADDED)
    directories = [str(folder) for folder in devices_dir or ()]
    rows = read_rows(table, directories)
    opened = Graphs(graphs)
    parameters = load_graphs(kernels=params)
    if adapt is not None:
        parameters = adapted(parameters, adapt, directories)
    columns = predict_rows(rows, opened, parameters, directories)
    source = {
        "created": parameters.card.get("created"),
        "parameters": "shipped" if params is None else str(params),
        "adapted_to": adapt and str(adapt),
    }
    write_with(table, out, columns, stamp(source))
    record = {
        **answer_record(table, out, columns, SHOWN, of_all=unread_columns(table)),
        "groups": _groups(rows, columns),
        **source,
    }
    end(record, as_json, quiet, _print)


def adapted(parameters: GraphParameters, path: Path, directories: Sequence[str]) -> GraphParameters:
    """The parameters with their kernels adapted to measured operations.

    **Raises:** `InputError` for a table without measured operations of a known device and family.
    """
    import dataclasses

    from calibration.composition.kernel_times import nameless
    from calibration.datasets import read_table
    from calibration.kernels.adapt import adapt

    kernels, read = parameters.kernels, read_table(path, directories=directories)
    if not any(table.latency is not None and table.family in kernels.families for table in read.tables):
        raise InputError(f"{path} has no measured operation that the kernels are fitted for.")
    rows = nameless(read, directories, kernels)
    return dataclasses.replace(parameters, kernels=adapt(kernels, [rows], directories))


def _groups(rows: Sequence[Row], columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Rows of every tier, their median interval, and the mean error of those that state a time."""
    import numpy as np

    time = columns["predicted_ms"] * MILLI
    known = np.isfinite(time)
    label = np.array([row.label for row in rows])
    groups = []
    for tier in sorted({str(tier) for tier in columns["tier"][known]}):
        at = known & (columns["tier"] == tier)
        labelled = at & np.isfinite(label)
        error = np.abs(time[labelled] / label[labelled] - 1.0)
        groups.append(
            {
                "tier": tier,
                "rows": int(at.sum()),
                "lower": float(np.median(columns["lower_ms"][at] / columns["predicted_ms"][at] - 1.0)),
                "upper": float(np.median(columns["upper_ms"][at] / columns["predicted_ms"][at] - 1.0)),
                "labelled": int(labelled.sum()),
                "error": float(error.mean()) if len(error) else float("nan"),
            }
        )
    return groups


def _print(record: dict[str, Any], quiet: bool) -> None:
    heads = ("tier", "rows", "90 % interval", "with a time", "mean error")
    cells = [
        (
            group["tier"],
            f"{group['rows']:,}",
            f"{group['lower']:+.0%} {group['upper']:+.0%}",
            f"{group['labelled']:,}",
            "-" if not group["labelled"] else f"{group['error']:.1%}",
        )
        for group in record["groups"]
    ]
    title = f"{record['predicted']:,} of {record['rows']:,} iterations predicted"
    several = any(answer[BETWEEN[0]] for answer in record["answers"])
    shown = {name: each for name, each in SHOWN.items() if several or name not in BETWEEN}
    source = f"parameters made {record['created']}; no test of them where they have seen the rows"
    print_answer(record, shown, (title, heads, cells), [source], quiet)
