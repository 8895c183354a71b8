"""`jaxperf validate graphs [FOLDER]`: errors of whole iterations, each device held out, with other tools' beside."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.measured import shared_folder

WIDTH = 130  # of the table: a narrower terminal wraps it, and no figure is cut
FIGURES = ("error", "bias", "neusight", "habitat", "micro", "roofline", "own_roofline", "coverage90", "half_width")


def validate_graphs(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """Refit kernels and compositions without each device, predict its iterations, and print the table.

    `data`: one folder of ops.parquet, e2e_labels.csv, label_ops.parquet and opgraph/, by default the one beside the
    project. Kernels fitted without a device are kept in `JAXPERF_KEPT` where that names a folder.
    """
    from jaxperf.cli.measured import start_single_precision, step_log

    start_single_precision()
    from calibration.composition.evaluate_graphs import cells
    from calibration.composition.refit_graphs import decomposition, evaluate, load_measured
    from jaxperf.io.tables import check_output, json_text, write_rows

    check_output(out)
    measured = load_measured(_folder(data))
    kept = os.environ.get("JAXPERF_KEPT")
    with step_log(quiet) as progress:
        results, rho, fitted = evaluate(measured, Path(kept) if kept else None, progress)
        parts = decomposition(measured, results, fitted)
    record = {"shared_part": rho, "cells": cells(results, rho), "parts": parts}
    if out is not None:
        write_rows(record["cells"], out, {"jaxperf": json_text({"shared_part": rho, "parts": parts})})
    if as_json:
        typer.echo(json_text(record))
    else:
        _print(record)


def _folder(data: Sequence[Path]) -> Path:
    """The one folder given, or NeuSight's in the folder of measured data."""
    if len(data) > 1:
        raise InputError(f"validate graphs takes one folder, not {len(data)}.")
    folder = data[0] if data else shared_folder() / "neusight"
    if not (folder / "e2e_labels.csv").is_file():
        raise InputError(f"No measured iterations at '{folder}': give a folder that holds e2e_labels.csv.")
    return folder


def _print(record: dict[str, Any]) -> None:
    from jaxperf.report.text import console, number, table

    out = console()
    out.width = max(out.width, WIDTH)
    heads = ("mode", "device", "rows", "error", "bias", "NeuSight", "Habitat", "micro", "its roofline", "roofline")
    heads = (*heads, "in 90 %", "+-90 %")
    for split in dict.fromkeys(cell["split"] for cell in record["cells"]):
        rows = [cell for cell in record["cells"] if cell["split"] == split]
        built = [
            (str(cell["mode"]), str(cell["device"]), str(cell["rows"]), *(number(cell[name]) for name in FIGURES))
            for cell in rows
        ]
        out.print(table(f"{split}: mean absolute errors in percent of the measured iteration", heads, built))
    heads = ("device", "iterations", "kernels", "composition", "between nodes", "whole", "nodes over table")
    names = ("kernels", "composition", "between", "whole", "again")
    built = [(part["device"], str(part["rows"]), *(number(part[name]) for name in names)) for part in record["parts"]]
    title = "Where the error of devices left out comes from: mean of log(predicted / measured) in percent"
    out.print(table(title, heads, built))
    out.print(
        f"{100 * record['shared_part']:.0f} % of the variance of kernels' errors is common to a device's kernels."
    )
