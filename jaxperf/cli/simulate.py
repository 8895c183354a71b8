"""`jaxperf simulate REQUESTS --settings S.json -o OUT`: a trace on one replica, the same rows with their times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from hwspecs.errors import InputError
from jaxperf.cli.engines import FusedAttention, ServedDevice, ServedModel, SettingsFile, StepTimes
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    Electricity,
    KvCache,
    Price,
    Quiet,
    SustainedRates,
    Weights,
    parse_seconds,
    parse_slo,
)

MOST = 1 << 20  # replicas, or requests under way


def simulate(
    requests: Annotated[
        Path,
        typer.Argument(metavar="REQUESTS", help="Rows of arrived_at, prefill_tokens, decode_tokens: .csv, .jsonl, ..."),
    ],
    settings: SettingsFile,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The same rows with times; never REQUESTS itself.")
    ],
    step_time: StepTimes = None,
    model: ServedModel = None,
    device: ServedDevice = None,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    fused_attention: FusedAttention = False,
    adapt: Annotated[
        Path | None,
        typer.Option("--adapt", metavar="LOG", help="Measured requests of this engine, to fit our own model to."),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", metavar="N", help="Replicas that share the requests.")] = 1,
    routing: Annotated[
        str,
        typer.Option(
            "--routing",
            metavar="NAME",
            help="How replicas get requests: round_robin, least_outstanding or prefix_aware.",
        ),
    ] = "round_robin",
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", help="Requests a client keeps under way, for each replica."),
    ] = None,
    slo: Annotated[
        str | None, typer.Option("--slo", metavar="LIMITS", help="Such as ttft=1s,tpot=30ms, for the goodput.")
    ] = None,
    warm_up: Annotated[
        str, typer.Option("--warm-up", metavar="TIME", help="Arrivals so early are left out of the summary, as 30s.")
    ] = "0",
    price: Price = None,
    electricity: Electricity = None,
    params: SustainedRates = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate requests on replicas of a serving engine. When each is scheduled, has its first token, and is done."""
    from jaxperf.cli.compute import start_jax
    from jaxperf.io.tables import check_output

    check_output(out)
    _check({"--replicas": replicas, "--concurrency": concurrency})
    early = parse_seconds("--warm-up", warm_up)
    start_jax(quick=True)
    from jaxperf.cli.engines import Served, context_of, read_settings
    from jaxperf.cli.logged import replaced_notes, uncompared_notes
    from jaxperf.cli.simulate_answer import Asked, answer_of
    from jaxperf.cli.simulate_said import backlog_notes, cells_of, print_simulated, summary
    from jaxperf.cli.simulate_said import with_columns as extended
    from jaxperf.io.request_options import with_options, within_context
    from jaxperf.io.session_traces import read_sessions
    from jaxperf.io.tables import json_text, with_numbers, write_rows
    from jaxperf.serving.simulator.metrics import SLO_METRICS

    limits = parse_slo(slo, SLO_METRICS) if slo else {}
    served = Served(model, device, weights, kv_cache, params, tuple(devices_dir or ()), fused=fused_attention)
    asked = Asked(replicas, routing, concurrency, step_time, adapt, limits, early, (price, electricity))
    data = read_settings(settings)
    trace, options = within_context(*with_options(read_sessions(requests)), context_of(data, served, str(settings)))
    answer = answer_of(data, str(settings), trace, options, served, asked)
    sent = concurrency is not None or getattr(trace, "after", None) is not None  # at times that are answers
    cells = cells_of(trace, answer.columns or None, sent, answer.refused)
    behind = [] if sent else backlog_notes(answer.columns)
    about = {"settings": json_text(answer.numbers), "scheduler": answer.scheduler, "step_time": answer.source}
    rows = extended(trace, cells)
    typed = out.suffix.lower() != ".csv" and requests.name.lower().endswith((".csv", ".csv.gz"))
    write_rows(with_numbers(rows) if typed else rows, out, about)
    record = {
        "requests": str(requests),
        "out": str(out),
        "scheduler": answer.scheduler,
        "settings": answer.numbers,
        "step_time": answer.source,
        "notes": [*trace.notes, *replaced_notes(trace, cells), *uncompared_notes(trace), *answer.notes, *behind],
        **summary(trace, cells),
        **answer.figures,
    }
    if as_json:
        typer.echo(json_text(record))
    else:
        print_simulated(record, quiet)
    if not record["completed"]:
        raise typer.Exit(EXIT_INFEASIBLE)


def _check(counts: Mapping[str, int | None]) -> None:
    """Raises `InputError` for numbers that are out of range."""
    for option, number in counts.items():
        if number is not None and not 1 <= number <= MOST:
            raise InputError(f"{option}: {number} is not a whole number from 1 to {MOST:,}.")
