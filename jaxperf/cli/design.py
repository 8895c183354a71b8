"""`jaxperf design MODEL --base DEVICE --free FACTS`: the device that holds the targets at the least cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    Batch,
    DataParallel,
    DevicesDirectory,
    ExpertParallel,
    KvCache,
    Launch,
    Model,
    Output,
    PipelineParallel,
    Plot,
    Prompt,
    Quiet,
    SustainedRates,
    TensorParallel,
    Weights,
    parse_option,
    parse_slo,
    say_not_written,
)

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from hwspecs.values import Value
    from jaxperf.serving.design.search import Wanted

Base = Annotated[str, typer.Option("--base", metavar="NAME", help="The device to start from: a name or a TOML file.")]
Free = Annotated[
    str,
    typer.Option(
        "--free",
        metavar="FACTS",
        help="num_cores, memory_bandwidth, clock_rate, link_bandwidth, each with a range such as "
        "memory_bandwidth=2TB/s:6TB/s (default: a quarter of the base's to four times, of its clock 0.7 to 1.4); "
        "memory_capacity.",
    ),
]
Slo = Annotated[str, typer.Option("--slo", metavar="TARGETS", help="Targets, such as ttft=1s,tpot=30ms.")]
Minimize = Annotated[
    str,
    typer.Option(
        "--minimize",
        metavar="MEASURE",
        help="power, tdp, die_area, energy_per_token, ttft, tpot, e2e_latency, or a fact that is free.",
    ),
]
Budget = Annotated[
    str | None, typer.Option("--power-budget", metavar="POWER", help="The most that its TDP may be, such as 700W.")
]
AreaBudget = Annotated[
    str | None, typer.Option("--area-budget", metavar="AREA", help="The most that its dies may take, such as 600mm^2.")
]
DesignFile = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="FILE", help="The device as a .toml file, or a .parquet, .csv or .json table."),
]


def design(
    model: Model,
    base: Base,
    free: Free = "num_cores,memory_bandwidth",
    slo: Slo = "",
    power_budget: Budget = None,
    area_budget: AreaBudget = None,
    minimize: Minimize = "power",
    tensor_parallel: TensorParallel = 1,
    pipeline_parallel: PipelineParallel = 1,
    expert_parallel: ExpertParallel = 1,
    data_parallel: DataParallel = 1,
    batch: Batch = 1,
    prompt: Prompt = 2048,
    output: Output = 256,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    launch: Launch = "graph",
    devices_dir: DevicesDirectory = None,
    params: SustainedRates = None,
    out: DesignFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the device that serves a model at the least cost. Its cores, memory, clock or links are free, within
    targets."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from calibration.power.parameters import load_power
    from jaxperf.core.feasible import Reason, sentences
    from jaxperf.core.sustained_file import load_sustained_table
    from jaxperf.io.designed_device import check_design_file, write_design
    from jaxperf.io.fleet import select_device
    from jaxperf.io.huggingface import load_model
    from jaxperf.io.tables import json_text
    from jaxperf.report.design import design_record, print_design
    from jaxperf.report.design_plots import design_figure
    from jaxperf.report.plots import check_picture, save
    from jaxperf.serving.design.answer import Question
    from jaxperf.serving.design.answer import design as find
    from jaxperf.serving.design.landscape import shown_sizes

    wanted = _wanted(minimize, slo, power_budget, area_budget)
    check_picture(plot)
    spec = select_device(base, devices_dir or ())
    name = check_design_file(out, spec)
    config = load_model(model)
    point: dict[str, Any] = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "expert_parallel": expert_parallel,
        "data_parallel": data_parallel,
        "batch": batch,
        "prompt": prompt,
        "output": output,
        "kv_cache": kv_cache,
        "weights": config.weight_format if weights is None else weights,
    }
    power, table = load_power(), load_sustained_table(params)
    asked = Question(config, spec, point, launch, table, power.law, _free(free, spec), wanted, name)
    if plot is not None:
        shown_sizes(asked)  # refused before anything is computed
    found = find(asked)
    if isinstance(found, list):
        typer.echo(json_text({"feasible": False, "reasons": found}) if as_json else f"infeasible: {'; '.join(found)}")
        if sentences(Reason.MEMORY)[0] in found:
            typer.echo("jaxperf: --free memory_capacity has the memory hold it, whatever that takes.", err=True)
        say_not_written(out, plot)
        raise typer.Exit(EXIT_INFEASIBLE)
    record = design_record(asked, found, power.calibrated)
    typer.echo(json_text(record)) if as_json else print_design(record, found.made.provenance.sentence, quiet)
    if plot is not None:
        save(design_figure(asked, found), plot)
    if not found.best.held:
        say_not_written(out, why="the limits are not held")
        raise typer.Exit(EXIT_INFEASIBLE)
    if out is not None:
        write_design(out, spec, found, record)


def _wanted(minimize: str, slo: str, power_budget: str | None, area_budget: str | None) -> Wanted:
    """Raises `InputError` for limits that cannot be read."""
    from jaxperf.serving.design.search import Wanted

    limits = parse_slo(slo, ("ttft", "tpot", "e2e_latency"))
    limits |= {} if power_budget is None else {"tdp": parse_option("--power-budget", power_budget, "W")}
    limits |= {} if area_budget is None else {"die_area": parse_option("--area-budget", area_budget, "m^2")}
    return Wanted(minimize, limits)


def _free(text: str, spec: DeviceSpec) -> dict[str, tuple[float, float] | None]:
    """Fact -> its range in SI units, None for the widest. Raises `InputError` for what is no such fact or range."""
    from jaxperf.serving.design.answer import FREE
    from jaxperf.serving.design.sized import size_of

    found: dict[str, tuple[float, float] | None] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, sign, given = (piece.strip() for piece in part.partition("="))
        if name not in FREE:
            hint = did_you_mean(name, FREE)
            raise InputError(f"--free: '{name}' is no fact that a design changes; allowed: {', '.join(FREE)}.{hint}")
        if name in found:
            raise InputError(f"--free: {name} is given twice; give it once.")
        found[name] = _range(name, given, size_of(spec, name)) if sign else None
    if not found:
        raise InputError(f"--free: name what a design may change: {', '.join(FREE)}.")
    return found


def _range(name: str, text: str, own: Value) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    if not colon:
        raise InputError(f"--free: '{name}={text}' is no range; write {name}=LOW:HIGH.")
    return parse_option(f"--free: {name}", low, own.unit), parse_option(f"--free: {name}", high, own.unit)
