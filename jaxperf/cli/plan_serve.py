"""`jaxperf plan serve MODEL`: every layout of a serving system, aggregated and in two pools, under latency limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INTERRUPTED,
    AsJson,
    DevicesDirectory,
    Electricity,
    KvCache,
    Model,
    Output,
    OutputFile,
    Plot,
    Price,
    Prompt,
    Quiet,
    SustainedRates,
    parse_slo,
    parse_unit_prices,
)
from jaxperf.cli.plan_options import checked, parse_names, parse_sizes

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.core.sustained_file import Calibration
    from jaxperf.report.plan_serve_rows import Costs
    from jaxperf.serving.plan.request import Answer, Request
    from jaxperf.serving.plan.simulate import Timeline


def serve(
    model: Model,
    devices: Annotated[
        str, typer.Option("--devices", "--device", metavar="NAMES", help="Device names or TOML files, with commas.")
    ] = "",
    size: Annotated[str, typer.Option("--n", metavar="SIZE", help="Devices of the whole system, such as 8.")] = "",
    slo: Annotated[str, typer.Option("--slo", metavar="LIMITS", help="Such as ttft=1s,tpot=30ms,e2e=20s.")] = "",
    at: Annotated[str, typer.Option("--at", metavar="SHARE", help="Who keeps them: p50, p90, p95 or p99.")] = "p90",
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="R", help="Requests/s to serve (default: as many as they can).")
    ] = None,
    prompt: Prompt = 2048,
    output: Output = 256,
    spread: Annotated[
        float, typer.Option("--spread", metavar="CV", help="Coefficient of variation of both lengths (log-normal).")
    ] = 0.0,
    arrival_cv: Annotated[
        float, typer.Option("--arrival-cv", metavar="CV", help="Same of the time between requests (1: Poisson).")
    ] = 1.0,
    weights: Annotated[
        str, typer.Option("--weights", metavar="FORMATS", help="Formats to try, with commas (default: the config's).")
    ] = "",
    kv_cache: KvCache = "bf16",
    modes: Annotated[
        str, typer.Option("--modes", metavar="MODES", help="aggregated, disaggregated, or both.")
    ] = "aggregated,disaggregated",
    budgets: Annotated[
        str, typer.Option("--budget", metavar="N[,N]", help="Tokens of a step to try, with commas.")
    ] = "2048,8192",
    ahead: Annotated[
        bool, typer.Option("--async-scheduling", help="Each step is formed while the one before runs (vLLM >= 0.14).")
    ] = False,
    largest: Annotated[int, typer.Option("--max-engine", metavar="N", help="Most devices of one engine.")] = 8,
    top: Annotated[int, typer.Option("--top", metavar="K", help="Configurations shown.")] = 5,
    simulated: Annotated[int, typer.Option("--simulate", metavar="K", help="Of them simulated by request.")] = 2,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", metavar="FILE.png", help="Draw the best over time (.png .svg .pdf)."),
    ] = None,
    price: Price = None,
    electricity: Electricity = None,
    devices_dir: DevicesDirectory = None,
    params: SustainedRates = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search every layout of a serving system. The best under latency limits, and why the others lose."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    from jaxperf.io.tables import check_output
    from jaxperf.report.plots import check_picture
    from jaxperf.serving.notes import notes_of_many
    from jaxperf.serving.plan.request import TARGETS
    from jaxperf.serving.unit_costs import unit_costs

    check_output(out)
    for picture in (plot, timeline):
        check_picture(picture)
    if plot is not None and plot == timeline:
        raise InputError(f"--plot and --timeline are both '{plot}'; give two files.")
    asked = _request(
        model,
        weights=weights,
        prompt=prompt,
        output=output,
        slo=parse_slo(slo, TARGETS),
        kv_cache=kv_cache,
        spread=spread,
        arrival_cv=arrival_cv,
        at=at,
        rate=rate,
        budgets=parse_sizes(budgets, "--budget"),
        modes=parse_names(modes),
        top=checked(top, "--top"),
        largest_engine=checked(largest, "--max-engine"),
        ahead=ahead,
    )
    if simulated < 0:
        raise InputError(f"--simulate: {simulated} must be at least 0.")
    specs = _devices(devices, devices_dir or ())
    prices = parse_unit_prices(price, electricity, specs)
    known = _calibrations(specs, params)
    answers = _answers(asked, known, _size(size), quiet)
    answers, timelines = _simulated(asked, answers, max(simulated, 1 if timeline else 0))

    def costs(device: str, tokens_per_second: float, number: float) -> dict[str, float]:
        return unit_costs(tokens_per_second, [(specs[device], number)], prices)

    notes = notes_of_many(asked.model, list(specs.values()), asked.weights, [asked.kv_cache])
    _give(asked, answers, known, costs, notes, out, as_json, quiet)
    _draw(asked, answers, timelines, plot, timeline)
    if any(answer.interrupted for answer in answers):
        raise typer.Exit(EXIT_INTERRUPTED)
    if not any(answer.choices for answer in answers):
        raise typer.Exit(EXIT_INFEASIBLE)


def _request(model: str, weights: str, **asked: Any) -> Request:
    from jaxperf.io.huggingface import load_model
    from jaxperf.serving.plan.request import Request
    from jaxperf.serving.study import check_has_task
    from jaxperf.serving.study_values import checked_values

    config = load_model(model)
    check_has_task(config, "serve")
    formats = checked_values("weights", parse_names(weights) or [config.weight_format])
    (cache,) = checked_values("kv_cache", asked.pop("kv_cache"))
    return Request(config, weights=tuple(dict.fromkeys(formats)), kv_cache=cache, **asked)


def _size(text: str) -> int:
    if not text.strip(" ,"):
        raise InputError("--n: no size is given; write --n 8.")
    sizes = parse_sizes(text)
    if len(sizes) > 1:
        raise InputError(f"--n: {text} is several sizes; a serving plan is for one, such as 8.")
    return sizes[0]


def _devices(devices: str, folders: Sequence[Path]) -> dict[str, DeviceSpec]:
    from jaxperf.io.fleet import select_devices

    if not devices:
        raise InputError("Which devices? Give --devices h100-sxm --n 8.")
    return select_devices(devices, folders)


def _calibrations(specs: dict[str, DeviceSpec], params: Path | None) -> dict[str, Calibration]:
    from jaxperf.core.sustained_file import calibration_of, load_sustained_table

    table = load_sustained_table(params)
    return {name: calibration_of(spec, table) for name, spec in specs.items()}


def _answers(request: Request, known: dict[str, Calibration], devices: int, quiet: bool) -> list[Answer]:
    """One answer a device, in their order; Ctrl-C ends with those that are there."""
    from jaxperf.cli.progress import progress_bar
    from jaxperf.serving.plan.search import plan

    found: list[Answer] = []
    with progress_bar("configurations", quiet) as report:
        for name, each in known.items():
            found.append(plan(request, name, each.calibrated, devices, report))
            if found[-1].interrupted:
                break
    return found


def _simulated(
    request: Request, answers: Sequence[Answer], count: int
) -> tuple[list[Answer], dict[str, dict[str, Timeline]]]:
    """The answers with the best `count` choices of each simulated until Ctrl-C, and the best of these over time."""
    from jaxperf.serving.plan.simulate import confirmed

    found, timelines = list(answers), {}
    for place, answer in enumerate(answers):
        if any(each.interrupted for each in found):
            break
        found[place], own = confirmed(request, answer, count)
        if own:
            timelines[answer.device] = dict(own)
    return found, timelines


def _give(
    request: Request,
    answers: Sequence[Answer],
    known: dict[str, Calibration],
    costs: Costs,
    notes: Sequence[str],
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """The answer as text or JSON, and the file asked for; `notes`: what it assumes or leaves out."""
    from jaxperf.io.tables import json_text, write_rows
    from jaxperf.report.plan_serve import print_plan
    from jaxperf.report.plan_serve_rows import plan_record, plan_rows, scheduling_notes
    from jaxperf.serving.provenance import provenance_of
    from jaxperf.serving.unit_costs import ENERGY_NOTE

    origin = provenance_of(request.model, known, list(request.weights))
    rows = plan_rows(request, answers, costs)
    record = (
        plan_record(request, answers)
        | {"notes": [*notes, *scheduling_notes(request, answers), ENERGY_NOTE]}
        | origin.record
    )
    if as_json:
        typer.echo(json_text({"provenance": record, "rows": rows}))
    else:
        print_plan(request, answers, costs, origin.sentence, record["notes"], quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})


def _draw(
    request: Request,
    answers: Sequence[Answer],
    timelines: dict[str, dict[str, Timeline]],
    plot: Path | None,
    timeline: Path | None,
) -> None:
    """The pictures asked for; says of one that there is nothing to draw."""
    from jaxperf.report.plan_serve_plots import front_figure, timeline_figure
    from jaxperf.report.plots import save

    lengths = f"{request.model.name}, {request.prompt:,} tokens in, {request.output:,} out"
    if plot is not None:
        if any(len(answer.front) for answer in answers):
            save(front_figure(lengths, answers), plot)
        else:
            typer.echo(f"jaxperf: '{plot}' is not drawn: no configuration can run.", err=True)
    if timeline is not None:
        shown = [answer for answer in answers if answer.device in timelines]
        if shown:
            device = min(shown, key=lambda answer: answer.choices[0].order()).device
            save(timeline_figure(f"{lengths}, {device}", timelines[device]), timeline)
        else:
            typer.echo(f"jaxperf: '{timeline}' is not drawn: the best configuration was not simulated.", err=True)
