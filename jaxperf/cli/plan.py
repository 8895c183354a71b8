"""`jaxperf plan train MODEL`: every layout of a training run, the best ones, and why the others lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.command import Command
from jaxperf.cli.measured import Params
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INTERRUPTED,
    AsJson,
    DevicesDirectory,
    Model,
    OutputFile,
    Price,
    Quiet,
    parse_prices,
)
from jaxperf.cli.plan_options import (
    check_devices,
    checked,
    parse_memory,
    parse_pool,
    parse_savers,
    parse_schedules,
    parse_sizes,
)
from jaxperf.cli.plan_rates import SHIPPED, check_steps
from jaxperf.cli.plan_serve import serve

if TYPE_CHECKING:
    from calibration.kernels.parameters import Parameters
    from hwspecs.schema import DeviceSpec
    from jaxperf.training.search.plan import Answer, Request

DEFAULT_TOKENS = 16 * 2**20  # of a step where none are given, as in Llama 3's largest batch

plan = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Search layouts of a training run or a serving system."
)


@plan.callback()
def group() -> None:
    """Search layouts."""


plan.command("serve", cls=Command)(serve)


@plan.command("train", cls=Command)
def train(
    model: Model,
    device: Annotated[
        str, typer.Option("--device", metavar="NAMES", help="Device names or TOML files, with commas.")
    ] = "",
    sizes: Annotated[str, typer.Option("--n", metavar="SIZES", help="Devices: 64, 64,96,128 or 64...65536.")] = "",
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", metavar="NAME:N", help="Instead: devices of one kind, such as h100-sxm:64; repeated."),
    ] = None,
    sequence: Annotated[int, typer.Option("--sequence", metavar="N", help="Tokens of a sequence.")] = 4096,
    global_batch: Annotated[
        int | None, typer.Option("--global-batch", metavar="N", help="Sequences a step (default: 16 Mi tokens).")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", metavar="FORMAT", help="bf16, fp8, ...")] = "bf16",
    lora: Annotated[
        int | None, typer.Option("--lora", metavar="RANK", help="Only LoRA adapters of this rank learn.")
    ] = None,
    mtp: Annotated[
        int, typer.Option("--mtp", metavar="N", help="Further tokens that each position learns to predict.")
    ] = 0,
    savers: Annotated[
        str,
        typer.Option(
            "--savers",
            metavar="NAMES",
            help="Of memory, to be tried: auto (where nothing fits without), all, none, or modules, optimizer, "
            "activations with commas.",
        ),
    ] = "auto",
    modules: Annotated[
        str | None,
        typer.Option(
            "--recompute-modules",
            metavar="NAMES",
            help="Of selective recomputation, as Megatron names them (default: core_attn, others as --savers says).",
        ),
    ] = None,
    offload: Annotated[
        float | None,
        typer.Option(
            "--offload-optimizer",
            metavar="SHARE",
            help="Of the parameters, updated by the host: 0 to 1 (default: as --savers says).",
        ),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(
            "--host-memory", metavar="SIZE", help="Of the host for one device, such as 250 GB (default: not checked)."
        ),
    ] = None,
    reserve: Annotated[
        str | None,
        typer.Option(
            "--reserve", metavar="SIZE", help="Memory for context, communicators, fragmentation (as assumed)."
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="K", help="Layouts shown of each size.")] = 5,
    optimize: Annotated[str, typer.Option("--optimize", metavar="WHAT", help="time, cost or memory.")] = "time",
    schedules: Annotated[
        str, typer.Option("--schedules", metavar="NAMES", help="Pipeline schedules to try: all, or names with commas.")
    ] = "all",
    price: Price = None,
    steps: Annotated[
        str,
        typer.Option("--steps", metavar="STEPS", help="Scalars fitted to training runs: a file, shipped or assumed."),
    ] = SHIPPED,
    params: Params = None,
    devices_dir: DevicesDirectory = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search every layout of a training run. The best of each size, and why the others lose."""
    from jaxperf.cli.compute import start_jax
    from jaxperf.io.tables import check_output

    check_output(out)
    check_steps(steps, params)
    start_jax(quick=True)
    from calibration.kernels.parameters import load_parameters
    from jaxperf.io.fleet import places_of, select_devices
    from jaxperf.training.search.plan import check_objective

    kernels = None if params is None else load_parameters(params)
    check_objective("--optimize", optimize)
    check_devices(device, sizes, pool or [])
    pools = [parse_pool(each) for each in pool or []]
    wanted = device or [name for name, _ in pools]
    specs = select_devices(wanted, devices_dir or ())
    sequence = checked(sequence, "--sequence")
    batch = max(DEFAULT_TOKENS // sequence, 1) if global_batch is None else global_batch
    request = _request(
        model,
        dtype=dtype,
        sequence=sequence,
        global_batch=checked(batch, "--global-batch"),
        objective=optimize,
        top=checked(top, "--top"),
        space=parse_schedules(schedules),
        prices=parse_prices(price or [], specs),
        lora_rank=0 if lora is None else checked(lora, "--lora"),
        mtp=checked(mtp, "--mtp", least=0),
        **parse_savers(savers, modules, offload),
        host_memory=parse_memory(host_memory, "--host-memory") or 0.0,
    )
    folders, kept = places_of(wanted, devices_dir or ()), parse_memory(reserve, "--reserve")
    asked = Asked(request, steps, kernels, params, folders, out, as_json, quiet, kept)
    if pools:
        _plan_pools(asked, pools)
    else:
        _plan_sizes(asked, list(specs.values()), parse_sizes(sizes))


def _request(model: str, mtp: int, **asked: Any) -> Request:
    from jaxperf.io.huggingface import load_model
    from jaxperf.training.layout import MODULES
    from jaxperf.training.model_build import training_model, training_notes
    from jaxperf.training.recompute import check_modules
    from jaxperf.training.search.plan import Request

    config = load_model(model)
    built = training_model(config, mtp=mtp)
    if asked["modules"] != MODULES[:1]:
        check_modules("--recompute-modules", config.name, built, asked["modules"])
    if asked["host_memory"] and not asked["offload"] and not {"optimizer", "activations"} & {*asked["savers"]}:
        raise InputError("--host-memory is of what is offloaded; add --offload-optimizer, or leave it out.")
    remarks = training_notes(config, mtp)
    return Request(config.name, built, max_context=config.max_context, remarks=remarks, **asked)


@dataclass(frozen=True)
class Asked:
    """A request, where its efficiencies come from, and how the answer is given; `kernels`: those at `params`, or None
    for the shipped ones; `folders`: of the user's devices; `reserve`: memory that no layout may fill, None for what the
    efficiencies have [byte]."""

    request: Request
    steps: str
    kernels: Parameters | None
    params: Path | None
    folders: tuple[str | Path, ...]
    out: Path | None
    as_json: bool
    quiet: bool
    reserve: float | None = None

    def rates(self, spec: DeviceSpec) -> Any:
        """The efficiencies of a device."""
        from jaxperf.cli.plan_rates import plan_rates
        from jaxperf.core.numerics import as_float

        found = plan_rates(self.request, spec, self.steps, self.folders, self.kernels)
        if self.reserve is not None:
            found = replace(found, nominal=replace(found.nominal, reserved_memory=as_float(self.reserve)))
        return found if self.params is None else replace(found, tier=f"{found.tier}; kernels by '{self.params}'")

    def write(self, rows: list[dict[str, Any]], answers: Sequence[Answer]) -> None:
        """The answer as data: JSON on standard output, and the file asked for."""
        from jaxperf.io.tables import json_text, write_rows
        from jaxperf.report.plan_rows import plan_record

        record = plan_record(self.request, answers)
        if self.as_json:
            typer.echo(json_text({"provenance": record, "rows": rows}))
        if self.out is not None:
            write_rows(rows, self.out, {"jaxperf": json_text(record)})


def _plan_sizes(asked: Asked, specs: Sequence[DeviceSpec], sizes: list[int]) -> None:
    from jaxperf.report.plan import print_plan
    from jaxperf.report.plan_rows import plan_rows

    answers = _answers(asked, specs, sizes)
    rows = plan_rows(answers)
    asked.write(rows, answers)
    if not asked.as_json:
        print_plan(asked.request, answers, asked.quiet)
    _end(answers, bool(rows))


def _answers(asked: Asked, specs: Sequence[DeviceSpec], sizes: list[int]) -> list[Answer]:
    """One answer a device and size, in their order; Ctrl-C ends with those that are there.

    What the search needs once, at its end, is compiled beside it.
    """
    from concurrent.futures import ThreadPoolExecutor

    from jaxperf.cli.progress import progress_bar
    from jaxperf.core.device import device_from_spec
    from jaxperf.training.search.plan import compile_outlook
    from jaxperf.training.search.plan import plan as search

    found: list[Answer] = []
    with ThreadPoolExecutor(1) as aside, progress_bar("layouts", asked.quiet) as report:
        aside.submit(compile_outlook, asked.request)
        for spec in specs:
            rates = asked.rates(spec)
            for size in sizes:
                found.append(search(asked.request, spec.name, device_from_spec(spec), size, rates, report))
                if found[-1].found.interrupted:
                    return found
    return found


def _plan_pools(asked: Asked, wanted: Sequence[tuple[str, int]]) -> None:
    from jaxperf.cli.progress import progress_bar
    from jaxperf.core.device import device_from_spec
    from jaxperf.io.fleet import select_device
    from jaxperf.report.plan_pools import pool_rows, print_pools
    from jaxperf.training.search.pools import Pool, check_pools, plan_pools

    specs = [(select_device(name, asked.folders), count) for name, count in wanted]
    pools = [Pool(spec.name, device_from_spec(spec), count, asked.rates(spec)) for spec, count in specs]
    check_pools(pools)
    with progress_bar("layouts", asked.quiet) as report:
        plans = plan_pools(asked.request, pools, report)
    answers = [answer for each in plans for answer in each.answers]
    asked.write(pool_rows(plans), answers)
    if not asked.as_json:
        print_pools(asked.request, plans, asked.quiet)
    _end(answers, any(each.feasible for each in plans))


def _end(answers: Sequence[Answer], feasible: bool) -> None:
    """The exit code."""
    if any(answer.found.interrupted for answer in answers):
        raise typer.Exit(EXIT_INTERRUPTED)
    if not feasible:
        raise typer.Exit(EXIT_INFEASIBLE)
