"""`jaxperf measure -o TABLE`: time kernels on this machine's own device, as a table that `calibrate` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet, parse_option

if TYPE_CHECKING:
    from calibration.microbench.operation import JaxDevice, Operation

BACKENDS = ("cpu", "gpu")
KINDS = {"cpu": ("cpu", "soc"), "gpu": ("gpu", "soc")}  # of hwspecs, that a backend may run on
CLOCKS = ("host", "device")
STATISTICS = ("median", "fastest", "sustained")
BUFFERS = ("resident", "cold", "both")
MOST_METERED = 60.0  # a kernel [s]
ENDINGS = (".parquet", ".csv")  # the card takes the .json


def measure(
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="FILE", help="The table, .parquet or .csv; its card is FILE's .json."),
    ],
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="What JAX runs on: cpu or gpu.")] = "cpu",
    known_as: Annotated[
        str | None,
        typer.Option("--as", metavar="DEVICE", help="Its name in jaxperf devices (default: what the system calls it)."),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option("--family", metavar="NAME", help="Only this family, such as gemm; may be repeated."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", metavar="FORMAT", help="Only this format, such as fp32; may be repeated."),
    ] = None,
    points: Annotated[int, typer.Option("--points", metavar="N", help="Sizes an operation.")] = 40,
    shortest: Annotated[
        str | None,
        typer.Option("--shortest", metavar="TIME", help="No kernel whose roofline is shorter, such as 20us."),
    ] = None,
    longest: Annotated[
        str, typer.Option("--longest", metavar="TIME", help="No kernel whose roofline takes longer.")
    ] = "5ms",
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="No kernel is begun later.")] = "5min",
    buffers: Annotated[
        str, typer.Option("--buffers", metavar="STATE", help="Operands resident in the cache, cold, or both.")
    ] = "resident",
    statistic: Annotated[
        str,
        typer.Option(
            "--statistic",
            metavar="NAME",
            help="The time of a row: median or fastest of the repeats, or sustained (back to back) with --meter.",
        ),
    ] = "median",
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock", metavar="NAME", help="host: call to result; device: its kernels (default on a GPU, only there)."
        ),
    ] = None,
    meter: Annotated[
        str | None,
        typer.Option("--meter", metavar="TIME", help="Run each kernel so long and meter its power (NVIDIA GPUs)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another seed, other sizes.")] = 0,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure kernels on this machine. A table for calibrate and kernels, and a card of how it was taken."""
    from jaxperf.io.tables import check_card, check_output

    card = out.with_suffix(".json")
    check_output(out, ENDINGS)
    check_output(card, [".json"])
    check_card(card, "table", True, "something else than a measurement")
    clock = clock or ("device" if device == "gpu" else "host")
    _check_choices(device, buffers, statistic, clock, points, seed)
    given = {"--shortest": shortest, "--longest": longest, "--budget": budget, "--meter": meter}
    seconds = {name: 0.0 if text is None else parse_option(name, text, "s") for name, text in given.items()}
    _check_times(seconds, statistic)
    from jaxperf.cli.measured import start_single_precision

    start_single_precision()
    from calibration.microbench.run import Plan
    from jaxperf.cli.measure_run import run

    found = _jax_devices(device)
    plan = Plan(
        device=_hardware(known_as, found[0], devices_dir or []),
        operations=_operations(family or [], dtype or [], device, found),
        count=points,
        dtypes=tuple(dtype or ()),
        states=("resident", "cold") if buffers == "both" else (buffers,),
        shortest=seconds["--shortest"],
        longest=seconds["--longest"],
        budget=seconds["--budget"],
        statistic=statistic,
        clock=clock,
        meter=seconds["--meter"],
        seed=seed,
        directories=tuple(devices_dir or ()),
    )
    run(plan, found[0], out, as_json, quiet)


def _check_choices(device: str, buffers: str, statistic: str, clock: str, points: int, seed: int) -> None:
    for option, text, allowed in (
        ("--device", device, BACKENDS),
        ("--buffers", buffers, BUFFERS),
        ("--statistic", statistic, STATISTICS),
        ("--clock", clock, CLOCKS if device == "gpu" else CLOCKS[:1]),
    ):
        if text not in allowed:
            hint = did_you_mean(text, allowed)
            raise InputError(f"{option}: '{text}' is not allowed; allowed: {', '.join(allowed)}.{hint}")
    if points < 1:
        raise InputError(f"--points is {points}; it must be 1 or more.")
    if not 0 <= seed < 2**31:
        raise InputError(f"--seed is {seed}; it must be a whole number from 0 to {2**31 - 1}.")


def _check_times(seconds: Mapping[str, float], statistic: str) -> None:
    if seconds["--shortest"] >= seconds["--longest"]:
        raise InputError("--shortest must be below --longest.")
    if statistic == "sustained" and not seconds["--meter"]:
        raise InputError("--statistic sustained is the time back to back, which --meter TIME measures; give both.")
    if seconds["--meter"] > MOST_METERED:
        raise InputError(f"--meter must be at most {MOST_METERED:g} s a kernel.")


def _jax_devices(backend: str) -> tuple[JaxDevice, ...]:
    import jax

    try:
        return tuple(jax.devices(backend))
    except RuntimeError:
        there = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise InputError(
            f"--device: JAX finds no {backend} here, only {there}; a GPU needs its driver and a jaxlib built for it."
        ) from None


def _hardware(known_as: str | None, device: JaxDevice, directories: Sequence[Path]) -> str:
    """The name in hwspecs. Raises `InputError` that says how to give one."""
    import hwspecs
    from calibration.microbench.machine import processor_name

    if known_as is not None:
        try:
            spec = hwspecs.load(known_as, directories)
        except InputError as error:
            raise InputError(f"--as: {error}") from None
        backend = "cpu" if device.platform == "cpu" else "gpu"
        if spec.kind not in KINDS[backend]:
            raise InputError(f"--as: {spec.name} is of the kind '{spec.kind}'; what is measured here is a {backend}.")
        return spec.name
    told = processor_name() if device.platform == "cpu" else device.device_kind
    try:
        return hwspecs.load(told or "", directories).name
    except InputError:
        raise InputError(
            f"The system calls this device '{told}', which names no specification. Give --as DEVICE, one that "
            "`jaxperf devices` lists, or describe it in a TOML file of its own (docs/add-a-device.md) and add "
            "--devices-dir."
        ) from None


def _operations(
    families: Sequence[str], dtypes: Sequence[str], backend: str, devices: tuple[JaxDevice, ...]
) -> tuple[Operation, ...]:
    """What is measured; collectives where there are several devices."""
    from calibration.microbench.collectives import collectives
    from calibration.microbench.registry import families as families_of
    from calibration.microbench.registry import operations

    everything = (*operations(backend), *collectives(devices))
    there = families_of(everything)
    for name in families:
        if name == "collective" and len(devices) < 2:
            raise InputError(f"--family: collective needs two devices or more; JAX finds {len(devices)} here.")
        if name not in there:
            raise InputError(
                f"--family: '{name}' is not measured.{did_you_mean(name, there)} Known: {', '.join(there)}."
            )
    kept = tuple(each for each in everything if not families or each.family in families)
    formats = sorted({dtype for each in kept for dtype in each.dtypes})
    for name in dtypes:
        if name not in formats:
            hint = did_you_mean(name, formats)
            raise InputError(f"--dtype: '{name}' is not measured in these families; known: {', '.join(formats)}.{hint}")
    return kept
