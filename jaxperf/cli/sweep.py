"""`jaxperf sweep SPEC.yaml`: a product of named axes to Parquet, with top-k and Pareto front on the fly."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import EXIT_INFEASIBLE, AsJson, Plot, Quiet, SustainedRates

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.core.sustained_file import SustainedTable
    from jaxperf.io.sweep_file import Keep, SweepFile
    from jaxperf.report.sweep import SweepReport
    from jaxperf.serving.provenance import Provenance
    from jaxperf.serving.study import Study
    from jaxperf.sweeps import Reducer, Sweep

    Specs = Mapping[str, DeviceSpec]


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="Sweep file: model, task, axes, metrics, keep.")],
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE|DIR",
            help="A .parquet file or a folder of parts; a selection also .csv or .json.",
        ),
    ],
    params: SustainedRates = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results of another sweep.")] = False,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a product of named axes; stopping keeps what is finished, and the same command resumes."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.core.sustained_file import load_sustained_table
    from jaxperf.io.sweep_file import read_sweep_file
    from jaxperf.io.tables import json_text
    from jaxperf.report.plots import check_picture
    from jaxperf.report.sweep import draw_front, print_sweep, sweep_record

    started = time.monotonic()
    check_picture(plot)
    question = read_sweep_file(spec)
    table = load_sustained_table(params)
    try:
        prepared = _prepare(question, out, plot, table)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith("Cannot write") else f"{spec}: {error}") from None
    report = _run(*prepared, out, started, overwrite=overwrite, quiet=quiet)
    if as_json:
        typer.echo(json_text(sweep_record(report)))
    else:
        print_sweep(report, quiet)
    if not report.front_size:
        raise typer.Exit(EXIT_INFEASIBLE)
    if plot is not None:
        draw_front(report, plot)


def _prepare(
    question: SweepFile, out: Path, plot: Path | None, table: SustainedTable
) -> tuple[Study, Specs, Provenance, Sweep, Keep, list[Reducer]]:
    """Everything that can be found wrong with a question, before anything is computed or written."""
    from jaxperf.core.sustained_file import calibration_of
    from jaxperf.io.fleet import select_axis_devices
    from jaxperf.io.huggingface import load_model
    from jaxperf.io.sweep_file import parse_keep
    from jaxperf.report.sweep import check_front, check_place, reducers_of
    from jaxperf.serving.estimate import check_tensor_splits
    from jaxperf.serving.provenance import provenance_of
    from jaxperf.serving.study import Study, default_metrics
    from jaxperf.sweeps import Sweep

    keep = parse_keep(question.keep)
    check_place(keep, out)
    metrics = question.metrics or default_metrics(question.task)
    study = Study(load_model(question.model), question.task, metrics, question.launch)
    reducers = reducers_of(study, keep)
    if plot is not None:
        check_front(reducers)
    directories = [question.devices_directory] if question.devices_directory else []
    specs, values = select_axis_devices(question.axes, directories)
    known = {name: calibration_of(spec, table) for name, spec in specs.items()}
    axes = study.axes(values, {name: each.calibrated for name, each in known.items()})
    weights = next(one.labels["weights"].tolist() for one in axes if "weights" in one.labels)
    origin = provenance_of(study.model, known, weights)
    for one in axes:
        if "tensor_parallel" in one.labels:
            check_tensor_splits(study.model, one.labels["tensor_parallel"].tolist())
    return study, specs, origin, Sweep(study.point(), axes), keep, reducers


def _run(
    study: Study,
    specs: Specs,
    origin: Provenance,
    built: Sweep,
    keep: Keep,
    reducers: list[Reducer],
    out: Path,
    started: float,
    **how: bool,
) -> SweepReport:
    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.tables import make_folder_of
    from jaxperf.report.sweep import SweepReport, write_kept

    make_folder_of(out)
    with progress_bar(f"{built.plan.points:,} points", how["quiet"]) as progress:
        selections = write_kept(built, study, origin, keep, reducers, out, progress, how["overwrite"])
    return SweepReport(study, specs, origin, built, reducers, selections, out, time.monotonic() - started)
