"""`jaxperf simulate REQUESTS --settings S.json -o OUT`: a trace on one replica, the same rows with their times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    KvCache,
    Quiet,
    SustainedRates,
    Weights,
    parse_assignments,
)

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.simulator.settings import Scheduler
    from jaxperf.serving.simulator.step_time import StepTimeTable

MOST = 1 << 20  # replicas, or requests under way


def simulate(
    requests: Annotated[
        Path,
        typer.Argument(metavar="REQUESTS", help="Rows of arrived_at, prefill_tokens, decode_tokens: .csv, .jsonl, ..."),
    ],
    settings: Annotated[Path, typer.Option("--settings", metavar="S.json", help="The scheduler and its numbers.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The same rows with times; never REQUESTS itself.")
    ],
    step_time: Annotated[
        Path | None, typer.Option("--step-time", metavar="T.npz", help="Table of step times (default: our own model).")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The model served (default: the settings').")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Device of our own model (default: the settings').")
    ] = None,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    adapt: Annotated[
        Path | None,
        typer.Option("--adapt", metavar="LOG", help="Measured requests of this engine, to fit our own model to."),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", metavar="N", help="Replicas that take requests in turn.")] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", help="Requests a client keeps under way, for each replica."),
    ] = None,
    slo: Annotated[
        str | None, typer.Option("--slo", metavar="LIMITS", help="Such as ttft=1s,tpot=30ms, for the goodput.")
    ] = None,
    warm_up: Annotated[
        float, typer.Option("--warm-up", metavar="SECONDS", help="Arrivals so early are left out of the summary.")
    ] = 0.0,
    params: SustainedRates = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate requests on replicas of an engine: when each is scheduled, has its first token, and is done."""
    from jaxperf.cli.compute import start_jax

    _check(requests, out, warm_up, {"--replicas": replicas, "--concurrency": concurrency})
    start_jax()
    from jaxperf.cli.simulated import cells_of, figures, print_simulated, request_columns, step_notes, summary
    from jaxperf.cli.simulated import with_columns as extended
    from jaxperf.io.request_traces import read_requests
    from jaxperf.io.tables import json_text, write_rows
    from jaxperf.serving.simulator.metrics import SLO_METRICS
    from jaxperf.serving.simulator.run import simulate_requests
    from jaxperf.serving.simulator.state import OPEN
    from jaxperf.serving.simulator.workloads import round_robin

    limits = parse_assignments("--slo", slo, SLO_METRICS, "s") if slo else {}
    scheduler = _scheduler(settings)
    trace = read_requests(requests)
    columns, source, found_out, notes = None, "none", {}, [*scheduler.notes, *trace.notes]
    if len(trace.row):
        own = {"device": device, "weights": weights, "kv_cache": kv_cache, "params": params, "folders": devices_dir}
        times, source = _step_times(step_time, model, scheduler, trace, **own)
        if adapt is not None:
            times, words = _adapted(adapt, times, scheduler)
            source += words
        shares = round_robin(trace, replicas, _paths(trace, scheduler))
        found = simulate_requests(scheduler, times, shares, OPEN if concurrency is None else concurrency)
        columns = request_columns(trace, found)
        found_out = figures(columns, found, scheduler.numbers["blocks"], limits, warm_up)
        notes += step_notes(found)
    cells = cells_of(trace, columns, sent=concurrency is not None)
    about = {"settings": json_text(scheduler.numbers), "scheduler": scheduler.name, "step_time": source}
    write_rows(extended(trace, cells), out, about)
    record = {
        "requests": str(requests),
        "out": str(out),
        "scheduler": scheduler.name,
        "settings": scheduler.numbers,
        "step_time": source,
        "notes": notes,
        **summary(trace, cells),
        **found_out,
    }
    if as_json:
        typer.echo(json_text(record))
    else:
        print_simulated(record, quiet)
    if not record["completed"]:
        raise typer.Exit(EXIT_INFEASIBLE)


def _check(requests: Path, out: Path, warm_up: float, counts: Mapping[str, int | None]) -> None:
    """What can be found wrong before anything is read."""
    from jaxperf.io.tables import check_output

    check_output(out)
    if requests.exists() and out.exists() and os.path.samefile(requests, out):
        raise InputError(f"{out} is the input; write to another file.")
    for option, number in counts.items():
        if number is not None and not 1 <= number <= MOST:
            raise InputError(f"{option}: {number} is not a whole number from 1 to {MOST:,}.")
    if not 0.0 <= warm_up < float("inf"):
        raise InputError(f"--warm-up: {warm_up} is not a number of seconds at or above zero.")


def _scheduler(path: Path) -> Scheduler:
    from jaxperf.io.huggingface import read_text
    from jaxperf.io.json_text import parse_json
    from jaxperf.serving.simulator.settings import parse_scheduler

    data = parse_json(read_text(path), str(path))
    if not isinstance(data, dict):
        raise InputError(f'{path}: settings are an object with names and values, such as {{"sched": "vllm"}}.')
    return parse_scheduler(data, str(path))


def _step_times(
    table: Path | None,
    model: str | None,
    scheduler: Scheduler,
    trace: RequestTrace,
    *,
    device: str | None,
    weights: str | None,
    kv_cache: str,
    params: Path | None,
    folders: list[Path] | None,
) -> tuple[StepTimeTable, str]:
    """The function of step times, and in words where it is from."""
    from jaxperf.io.huggingface import load_model

    name = scheduler.model if model is None else model
    if name is None:
        raise InputError("the settings name no model, and there is no --model; a step's time is that of a model.")
    config = load_model(name)
    if table is not None:
        from jaxperf.io.step_times import load_step_times

        return load_step_times(table, config, scheduler.tensor_parallel), str(table)
    from jaxperf.core.sustained_file import calibration_of, load_sustained_table
    from jaxperf.io.fleet import select_device
    from jaxperf.serving.simulator.composed import composed_times

    wanted = scheduler.device if device is None else device
    if wanted is None:
        raise InputError("the settings name no device; give --device, or a table of step times with --step-time.")
    spec = select_device(wanted, folders or ())
    calibrated = calibration_of(spec, load_sustained_table(params)).calibrated
    times = composed_times(config, calibrated, scheduler, trace, weights, kv_cache)
    return times, f"our model of {config.name} on {scheduler.tensor_parallel} x {spec.name}"


def _paths(trace: RequestTrace, scheduler: Scheduler) -> np.ndarray | None:
    """The nodes of every request in the prefix cache; None where the trace has no hashes or the scheduler no cache."""
    from jaxperf.serving.simulator.paths import prefix_paths

    if trace.hashes is None or not scheduler.tokens_per_hash:
        return None
    size = scheduler.numbers["block_size"]
    return prefix_paths(trace.hashes, trace.prompt, trace.output, size, scheduler.tokens_per_hash)


def _adapted(log: Path, times: StepTimeTable, scheduler: Scheduler) -> tuple[StepTimeTable, str]:
    """Step times fitted to a measured log, and in words how."""
    import numpy as np

    from jaxperf.cli.simulated import own_times
    from jaxperf.io.request_traces import read_requests
    from jaxperf.serving.simulator.adapt import fit_terms, with_terms

    trace = read_requests(log)
    names = {"first_token": "first_token_at", "completed": "completed_at"}
    measured = {name: own_times(trace.rows, column)[1][trace.row] for name, column in names.items()}
    compared = int(np.isfinite(measured["first_token"] + measured["completed"]).sum())
    try:
        terms = fit_terms(times, scheduler, trace, measured)
    except InputError as error:
        raise InputError(f"--adapt: {log}: {error}") from None
    fitted = f"linear x {terms.linear:.3g}, attention x {terms.attention:.3g}"
    added = f"{terms.step * 1e3:.3g} ms a step and {terms.decode * 1e6:.3g} us a decode"
    return with_terms(times, terms), f", fitted to {compared} requests of {log}: {fitted}, {added}"
