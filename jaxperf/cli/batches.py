"""`jaxperf batches TABLE -o OUT`: a table of fixed batches with prefill and decode step, the same rows in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.kernels import check_places
from jaxperf.cli.measured import Params, counted, print_reasons
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet
from jaxperf.cli.predicted import end, error_figures, few_answers, print_few, print_source, source_record, stamp

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
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The same rows with predictions; never TABLE itself.")
    ],
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
        "table": str(table),
        "out": str(out),
        **summary(read, columns),
        "answers": few_answers(columns, SHOWN),
        **source,
    }
    end(record, as_json, quiet, _print)


def summary(read: BatchTable, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """How many rows were predicted, why others were not, what to know of those that were, and where the table states
    times, the errors, as plain data."""
    import numpy as np

    known = np.isfinite(columns["predicted_prefill_s"])
    reasons = columns["reason"]
    notes = Counter(text for each in reasons[known].tolist() for text in each.split("; ") if text)
    return {
        "rows": read.rows,
        "predicted": int(known.sum()),
        "tiers": dict(Counter(columns["tier"][known].tolist())),
        "errors": [row for phase in ("prefill", "decode_step") for row in _errors(read, columns, phase)],
        "without_prediction": counted(Counter(reasons[~known].tolist())),
        "notes": counted(notes),
    }


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
    from jaxperf.report.text import console, table

    out = console()
    cells = [
        (row["phase"].replace("_", " "), f"{row['rows']:,}", f"{row['mean']:.1%}", f"{row['median']:.1%}")
        for row in record["errors"]
    ]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted"
    out.print(table(title, ("phase", "rows with a time", "mean error", "median"), cells) if cells else title)
    print_few(out, record["answers"], SHOWN)
    print_reasons(out, record, quiet)
    if not quiet:
        tiers = ", ".join(f"{count:,} {tier}" for tier, count in sorted(record["tiers"].items()))
        out.print(f"devices: {tiers or 'none'}")
        print_source(out, record["steps"], f"{len(record['steps']['devices'])} devices")
    out.print(f"written: {record['out']}", soft_wrap=True)
