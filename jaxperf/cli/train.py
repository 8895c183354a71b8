"""`jaxperf train TABLE -o OUT`: a table of training runs with their step times, the same rows in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.described_run import as_table
from jaxperf.cli.kernels import check_places
from jaxperf.cli.measured import Params
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet
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

    from calibration.datasets.training import TrainingTable

Steps = Annotated[
    Path | None,
    typer.Option("--steps", metavar="STEPS", help="Scalars of the step, fitted to training runs (default: shipped)."),
]
SHOWN = {
    "predicted_step_time_s": ("step s", 1.0),
    "lower": ("from", 1.0),
    "upper": ("to", 1.0),
    "mfu": ("MFU", 1.0),
    "memory_bytes": ("memory GB", 1e-9),
    "bubble_fraction": ("bubble", 1.0),
    "exposed_communication_s": ("exposed s", 1.0),
}


def train(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Rows of model, gpu, n_gpus, seq, global_batch and the layout's columns; or one run: a file of "
            "Megatron's arguments (.args, .sh, .txt, .yaml) or a folder of Calculon's JSON.",
        ),
    ],
    out: OutTable,
    params: Params = None,
    steps: Steps = None,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="Of one run: its device.")] = None,
    devices: Annotated[
        int | None, typer.Option("--n", metavar="N", min=1, help="Of one run: how many devices.")
    ] = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict steps of training runs. Time with a 90 % interval, utilization, memory, bubble, exposed communication."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    import hwspecs
    from calibration.datasets import write_with
    from calibration.datasets.training import read_training
    from calibration.kernels.parameters import load_parameters
    from calibration.training.parameters import load_training
    from calibration.training.predict import ADDED, predict_training
    from jaxperf.cli.measured import parameters_record
    from jaxperf.io.fleet import places_of, select_device

    directories = [str(folder) for folder in devices_dir or ()]
    hwspecs.open_registry(directories)
    if device is not None:
        device, directories = select_device(device, directories).name, [*map(str, places_of([device], directories))]
    scalars, kernels = load_training(steps), load_parameters(params)
    source = {
        "steps": source_record(scalars.card, steps, stacks=list(scalars.stacks)),
        "parameters": parameters_record(kernels, params),
    }
    with as_table(table, device, devices, directories, quiet) as rows:
        check_places(rows, out, ADDED)
        read = read_training(rows, directories)
        columns = predict_training(read, scalars, kernels, directories)
        write_with(rows, out, columns, stamp(source))
    record = {
        **answer_record(table, out, columns, SHOWN, _notes, read.notes),
        "feasible": int(columns["feasible"].sum()),
        "tiers": tiers_of(columns, SHOWN),
        "errors": _errors(read, columns),
        **source,
    }
    end(record, as_json, quiet, _print)


def _notes(reason: str) -> list[str]:
    """The notes of a row, each without the figures of this row that it has in parentheses."""
    return [text.partition(" (")[0] for text in re.split(r"; (?![^(]*\))", reason) if text]


def _errors(read: TrainingTable, columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Rows, mean and median error of every tier over the rows that state a time."""
    import numpy as np

    measured = np.full(read.rows, np.nan)
    for run in read.runs:
        measured[run.row] = run.measured
    return errors_by_tier(np.abs(columns["predicted_step_time_s"] / measured - 1.0), columns["tier"])


def _print(record: dict[str, Any], quiet: bool) -> None:
    heads = ("tier", "rows with a time", "mean error", "median")
    cells = [(row["tier"], *error_cells(row)) for row in record["errors"]]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted, {record['feasible']:,} feasible"
    made_on = f"{len(record['steps']['stacks'])} pairs of software and generation"
    print_answer(record, SHOWN, (title, heads, cells), [source_line(record["steps"], made_on)], quiet)
