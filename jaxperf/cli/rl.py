"""`jaxperf rl ITERATION.json`: one iteration of reinforcement learning, from answers to the next weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    KvCache,
    OutputFile,
    Quiet,
    SustainedRates,
    Weights,
    say_not_written,
)


def rl(
    iteration: Annotated[
        Path,
        typer.Argument(metavar="ITERATION.json", help="The models, the answers, how these are made and learned from."),
    ],
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    params: SustainedRates = None,
    devices_dir: DevicesDirectory = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Time an iteration of reinforcement learning. Answers are generated, scored, and learned from."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    from jaxperf.cli.engines import Served
    from jaxperf.cli.rl_phases import answer_of
    from jaxperf.cli.rl_said import print_iteration, rows_of
    from jaxperf.io.fleet import places_of, select_device
    from jaxperf.io.rl_iteration import read_iteration
    from jaxperf.io.tables import check_output, json_text, write_rows

    check_output(out)
    asked = read_iteration(iteration)
    device = select_device(asked.device, devices_dir or ()).name
    folders = places_of([asked.device], devices_dir or ())
    served = Served(None, device, weights, kv_cache, params, folders)
    record = answer_of(asked.model_copy(update={"device": device}), str(iteration), served)
    if as_json:
        typer.echo(json_text(record))
    else:
        print_iteration(record, quiet)
    if record["reason"]:
        say_not_written(out)
        raise typer.Exit(EXIT_INFEASIBLE)
    if out is not None:
        write_rows(rows_of(record), out, {"jaxperf": json_text(record)})
