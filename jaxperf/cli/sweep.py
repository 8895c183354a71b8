"""`jaxperf sweep SPEC.yaml`: a product of named axes to Parquet, with top-k and Pareto front on the fly."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import EXIT_INFEASIBLE, AsJson, Plot, Quiet, SustainedRates, say_not_written

if TYPE_CHECKING:
    from jaxperf.io.sweep_file import Keep, SweepFile
    from jaxperf.report.sweep_question import Prepared, Question
    from jaxperf.sweeps import Reducer, Sweep

    MakeStudy = Callable[[SweepFile], Question]
    Prepare = Callable[[Any, SweepFile], Prepared]


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
    """Evaluate a product of named axes, millions of points. Stopping keeps what is finished, and the same command
    resumes."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.sweep_file import read_sweep_file
    from jaxperf.io.tables import json_text
    from jaxperf.report.plots import check_picture
    from jaxperf.report.sweep import SweepReport, draw_front, print_sweep, sweep_record
    from jaxperf.report.sweep_rows import reasons_of, write_kept

    started = time.monotonic()
    check_picture(plot)
    question = read_sweep_file(spec)
    make_study, prepare = _preparation(question, params)
    try:
        prepared, keep, reducers, built = _prepare(question, out, plot, make_study, prepare)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith("Cannot write") else f"{spec}: {error}") from None
    with progress_bar(f"{built.plan.points:,} points", quiet) as progress:
        kept = write_kept(built, prepared, keep, reducers, out, progress, overwrite)
    if kept.reasons is None and kept.selections and not len(kept.selections[-1]):
        kept = kept._replace(reasons=reasons_of(prepared))
    report = SweepReport(prepared, built, reducers, *kept, time.monotonic() - started)
    if as_json:
        typer.echo(json_text(sweep_record(report)))
    else:
        print_sweep(report, quiet)
    if report.front_size == 0:
        say_not_written(out if report.out is None else None, plot)
        raise typer.Exit(EXIT_INFEASIBLE)
    if plot is not None:
        draw_front(report, plot)


def _preparation(question: SweepFile, params: Path | None) -> tuple[MakeStudy, Prepare]:
    """How the study of a task is made, and then its axes and provenance; a file of parameters is read at once."""
    from jaxperf.cli.sweep_steps import prepare_steps, steps_study
    from jaxperf.cli.sweep_train import prepare_training, training_study
    from jaxperf.core.sustained_file import load_sustained_table
    from jaxperf.training.study_axes import TASK

    if question.task == TASK:
        return functools.partial(training_study, params=params), prepare_training
    return steps_study, functools.partial(prepare_steps, table=load_sustained_table(params))


def _prepare(
    question: SweepFile, out: Path, plot: Path | None, make_study: MakeStudy, prepare: Prepare
) -> tuple[Prepared, Keep, list[Reducer], Sweep]:
    """Everything that can be found wrong with a question, before anything is computed or written; devices, which may
    take seconds to rate, come last."""
    from jaxperf.io.sweep_file import parse_keep
    from jaxperf.report.sweep_question import check_front, reducers_of
    from jaxperf.report.sweep_rows import check_place
    from jaxperf.serving.metrics import TASKS
    from jaxperf.serving.study import check_task
    from jaxperf.sweeps import Sweep
    from jaxperf.training.study_axes import TASK

    check_task(question.task, (*TASKS, TASK))
    keep = parse_keep(question.keep)
    check_place(keep, out)
    study = make_study(question)
    reducers = reducers_of(study, keep)
    if plot is not None:
        check_front(reducers)
    prepared = prepare(study, question)
    return prepared, keep, reducers, Sweep(study.point(), prepared.axes)
