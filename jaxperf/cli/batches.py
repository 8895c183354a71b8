"""`jaxperf batches TABLE -o OUT`: a table of fixed batches with prefill and decode step, the same rows in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.kernels import check_places
from jaxperf.cli.measured import Params
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet
from jaxperf.cli.predicted import (
    OutTable,
    answer_record,
    end,
    error_cells,
    error_figures,
    print_answer,
    source_line,
    source_record,
    stamp,
    tiers_of,
)

if TYPE_CHECKING:
    import numpy as np

    from calibration.composition.batches_rows import BatchTable

Steps = Annotated[
    Path | None,
    typer.Option("--steps", metavar="STEPS", help="Scalars of the step, fitted to batches (default: the shipped)."),
]
SHOWN = {
    "predicted_prefill_s": ("prefill s", 1.0),
    "predicted_prefill_s_lower": ("from", 1.0),
    "predicted_prefill_s_upper": ("to", 1.0),
    "predicted_decode_step_s": ("decode step s", 1.0),
    "predicted_decode_step_s_lower": ("from", 1.0),
    "predicted_decode_step_s_upper": ("to", 1.0),
}


def batches(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="Rows of gpu, tp, model, dtype, framework, batch, output_len, prompt_lengths."
        ),
    ],
    out: OutTable,
    params: Params = None,
    steps: Steps = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict fixed batches on a serving engine. Prefill of all prompts, then the decode step, each with a 90 %
    interval."""
    from jaxperf.cli.measured import parameters_record, start_single_precision

    start_single_precision(quick=True)
    import hwspecs
    from calibration.composition.batches import ADDED, predict_batches
    from calibration.composition.batches_parameters import load_steps
    from calibration.composition.batches_rows import read_batches
    from calibration.datasets import write_with
    from calibration.kernels.parameters import load_parameters

    check_places(table, out, ADDED)
    directories = [str(folder) for folder in devices_dir or ()]
    hwspecs.open_registry(directories)
    scalars, kernels = load_steps(steps), load_parameters(params)
    read = read_batches(table, directories)
    columns = predict_batches(read, scalars, kernels, directories)
    source = {
        "steps": source_record(scalars.card, steps, devices=list(scalars.devices)),
        "parameters": parameters_record(kernels, params),
    }
    write_with(table, out, columns, stamp(source))
    record = {
        **answer_record(table, out, columns, SHOWN, lambda reason: reason.split("; "), read.notes),
        "tiers": tiers_of(columns, SHOWN),
        "errors": [row for phase in ("prefill", "decode_step") for row in _errors(read, columns, phase)],
        **source,
    }
    end(record, as_json, quiet, _print)


def _errors(read: BatchTable, columns: dict[str, np.ndarray], phase: str) -> list[dict[str, Any]]:
    """Mean and median error of a phase over the rows that state its time; nothing where none does."""
    import numpy as np

    place = 0 if phase == "prefill" else 1
    rows = [batch.row for batch in read.batches if np.isfinite(batch.measured[place])]
    measured = np.array([batch.measured[place] for batch in read.batches if np.isfinite(batch.measured[place])])
    error = np.abs(columns[f"predicted_{phase}_s"][rows] / measured - 1.0)
    figures = error_figures(error)
    return [{"phase": phase, **figures}] if figures else []


def _print(record: dict[str, Any], quiet: bool) -> None:
    heads = ("phase", "rows with a time", "mean error", "median")
    cells = [(row["phase"].replace("_", " "), *error_cells(row)) for row in record["errors"]]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted"
    tiers = ", ".join(f"{count:,} {tier}" for tier, count in sorted(record["tiers"].items()))
    made_on = f"{len(record['steps']['devices'])} devices"
    lines = [f"devices: {tiers or 'none'}", source_line(record["steps"], made_on)]
    print_answer(record, SHOWN, (title, heads, cells), lines, quiet)
