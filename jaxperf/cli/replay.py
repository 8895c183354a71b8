"""`jaxperf replay TRACE... --device NAME --n N`: a Chakra trace on another device, topology or number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from hwspecs.whole import whole_number
from jaxperf.cli.option_checks import check_name
from jaxperf.cli.options import AsJson, DevicesDirectory, OutputFile, Quiet

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec
    from jaxperf.core.device import Device
    from jaxperf.core.sustained_file import Calibration
    from jaxperf.training.replay.run import Replay
    from jaxperf.training.replay.world import World

COMPUTE = ("roofline", "recorded")
LEVELS = ("low", "nominal", "high")
KINDS = {"switch": (0.0, 0.0), "mesh": (1.0, 0.0), "torus-2d": (0.0, 2.0), "torus-3d": (0.0, 3.0)}
# Key of --topology -> (leaf of the device, its unit).
TOPOLOGY = {
    "node": ("node_size", "1"),
    "link": ("link_bandwidth", "byte/s"),
    "link-latency": ("link_latency", "s"),
    "network": ("network_bandwidth", "byte/s"),
    "network-latency": ("network_latency", "s"),
}

Ranks = Annotated[int | None, typer.Option("--n", metavar="N", help="Ranks to replay as (default: as recorded).")]
Recorded = Annotated[
    int | None, typer.Option("--recorded", metavar="N", help="Ranks of the recorded run, where the traces name fewer.")
]
Dimensions = Annotated[
    str, typer.Option("--dims", metavar="N,N", help="Sizes of the recorded run's dimensions, innermost first.")
]
Groups = Annotated[
    Path | None, typer.Option("--groups", metavar="FILE", help="Ranks of each communicator group, a JSON file.")
]
Grow = Annotated[
    list[str] | None,
    typer.Option("--grow", metavar="GROUP", help="The group along which ranks are added (default: all ranks)."),
]
Sharded = Annotated[
    list[str] | None,
    typer.Option("--sharded", metavar="GROUP", help="Its all-gathers rebuild one buffer: shards shrink as it grows."),
]
Topology = Annotated[
    str,
    typer.Option("--topology", metavar="KEY=VALUE,...", help="node=16,link=450GB/s,network=50GB/s,kind=switch."),
]
Compute = Annotated[str, typer.Option("--compute", metavar="HOW", help="Time of computation: roofline or recorded.")]
Dtype = Annotated[str, typer.Option("--dtype", metavar="FORMAT", help="Number format of the matrix peak.")]
Level = Annotated[
    str | None,
    typer.Option(
        "--efficiency", metavar="LEVEL", help="Assumed shares: low, nominal, high (all); default: nominal, and a range."
    ),
]
Measured = Annotated[
    Path | None,
    typer.Option(
        "--params",
        metavar="PARAMS",
        help="Parameters made by jaxperf calibrate: work takes what products sustain by PARAMS.sustained.json.",
    ),
]
OneStream = Annotated[bool, typer.Option("--one-stream", help="One message at a time on a rank, as in ASTRA-sim.")]


def replay(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", help="Chakra traces (.et, .json) or their folder.")],
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device name, alias or TOML file.")],
    ranks: Ranks = None,
    recorded: Recorded = None,
    dims: Dimensions = "",
    groups: Groups = None,
    grow: Grow = None,
    sharded: Sharded = None,
    topology: Topology = "",
    compute: Compute = "roofline",
    dtype: Dtype = "bf16",
    efficiency: Level = None,
    one_stream: OneStream = False,
    params: Measured = None,
    devices_dir: DevicesDirectory = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Replay Chakra traces on another device or topology. Or as another number of ranks, without a run."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.core.device import device_from_spec
    from jaxperf.core.formats import COMPUTE_FORMATS
    from jaxperf.io.chakra.traces import read_groups, read_traces
    from jaxperf.io.fleet import select_device
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.training.replay.demands import Rules, untimed_notes
    from jaxperf.training.replay.prices import assumed_machine, sustained_machine
    from jaxperf.training.replay.run import replay as run
    from jaxperf.training.replay.world import world_of

    check_output(out)
    level = efficiency or "nominal"
    check_name("--compute", compute, COMPUTE)
    check_name("--dtype", dtype, COMPUTE_FORMATS)
    check_name("--efficiency", level, LEVELS)
    for option, value in (("--n", ranks), ("--recorded", recorded)):
        if value is not None and value < 1:
            raise InputError(f"{option} is {value}; it must be an integer from 1.")
    read = read_traces(traces)
    spec = select_device(device, devices_dir or ())
    wired = rewired(device_from_spec(spec), topology)
    notes = _format_notes(spec, dtype, float(assumed_machine(wired, dtype).peak))
    measured = None if params is None else _calibration(spec, params)
    known = read_groups(groups) if groups else {}
    world = world_of(read, ranks, recorded, known, parse_sizes("--dims", dims), (*(grow or ()), *(sharded or ())))
    notes += untimed_notes(read, world)
    rules = Rules(compute == "recorded", world.names_of(sharded or ()))

    def at(level: str) -> Replay:
        if measured is None:
            return run(read, world, assumed_machine(wired, dtype, level), rules, one_stream)
        machine = sustained_machine(wired, measured.calibrated.sustained, dtype, level)
        return run(read, world, machine, rules, one_stream)

    found = at(level)
    # A level that is asked for is one answer; without one, the ends of what is assumed bound it.
    ends = {} if efficiency is not None else {"lower_s": at("high").time, "upper_s": at("low").time}
    record = _record(found, world, spec.name, ends) | {
        "provenance": _provenance(level, ends, measured, dtype),
        "notes": notes,
    }
    typer.echo(json_text(record)) if as_json else _print(record, quiet)
    if out is not None:
        write_rows(_rows(found), out, {"jaxperf": json_text(record)})


def _format_notes(spec: DeviceSpec, dtype: str, peak: float) -> list[str]:
    """The format that stands in for one that the device lacks; raises `InputError` where none can."""
    from jaxperf.core.device import stand_in_of

    stand_in = stand_in_of(spec, dtype)
    if peak <= 0.0:
        rest = ", ".join(name for name in spec.peak_flops if name != dtype)
        raise InputError(
            f"--dtype: {spec.name} multiplies neither {dtype} nor a format that can stand in; it has {rest}."
        )
    return [] if stand_in is None else [f"{spec.name} has no {dtype} matrix units: work is counted in {stand_in}."]


def _calibration(spec: DeviceSpec, params: Path) -> Calibration:
    from jaxperf.core.sustained_file import calibration_of, load_sustained_table

    return calibration_of(spec, load_sustained_table(params))


def _provenance(level: str, ends: Mapping[str, float], measured: Calibration | None, dtype: str) -> str:
    """Where the times of work and messages are from, in a sentence."""
    from jaxperf.core.sustained_file import class_on

    if measured is None:
        interval = "; the interval is a range of assumptions, not a statistical one" if ends else ""
        return f"uncalibrated: {level} shares assumed of matrix products and of links{interval}"
    tier = measured.tiers["gemm"][class_on(measured.spec, dtype)]
    interval = "; the interval is that of products, and a range of assumptions of links" if ends else ""
    return f"work: {level} rates of matrix products ({tier} tier, {measured.table.path}); links: assumed{interval}"


def parse_sizes(option: str, text: str) -> tuple[int, ...]:
    """`8,4` as integers from 1. Raises `InputError` naming the option."""
    parts = [whole_number(part.strip()) for part in text.split(",")] if text.strip() else []
    found = tuple(part for part in parts if part)
    if len(found) < len(parts):
        raise InputError(f"{option}: '{text}' is no list of integers from 1, such as 8,4.")
    return found


def rewired(device: Device, text: str) -> Device:
    """The device with the links of `node=16,link=450GB/s,...` in place of its own.

    **Raises:** `InputError` naming the key for one that is unknown, given twice, or has no such value.
    """
    import hwspecs
    from jaxperf.core.numerics import as_float

    changes: dict[str, Any] = {}
    keys = ("kind", *TOPOLOGY)
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if key not in keys or not sign:
            raise InputError(f"--topology: '{part}' is none of {', '.join(keys)} = VALUE.{did_you_mean(key, keys)}")
        if key == "kind":
            check_name("--topology: kind", value, tuple(KINDS))
            found = dict(zip(("mesh", "torus_dimensions"), KINDS[value], strict=True))
        else:
            leaf, unit = TOPOLOGY[key]
            try:
                found = {leaf: hwspecs.parse_quantity(value, unit)}
            except InputError as error:
                raise InputError(f"--topology: {key}: {error}") from None
            if key == "node" and not found[leaf].is_integer():
                raise InputError(f"--topology: node is {value}; it must be a number of devices.")
        if not changes.keys().isdisjoint(found):
            raise InputError(f"--topology: {key} is given twice; give it once.")
        changes |= {leaf: as_float(number) for leaf, number in found.items()}
    return device.replace(**changes)


def _record(found: Replay, world: World, device: str, ends: Mapping[str, float]) -> dict[str, Any]:
    return {
        "device": device,
        "ranks": world.ranks,
        "recorded_ranks": world.recorded,
        "time_s": found.time,
        **ends,
        "critical_path_s": dict(found.critical),
        "classes": [
            {
                "rank": each.rank,
                "ranks": each.ranks,
                "time_s": each.time,
                "compute_s": each.compute,
                "communication_s": each.communication,
                "exposed_communication_s": each.exposed_communication,
            }
            for each in found.ranks
        ],
    }


def _rows(found: Replay) -> list[dict[str, Any]]:
    return [
        {
            "rank": each.rank,
            "node": each.operation.id,
            "name": each.operation.name,
            "kind": each.operation.collective or each.operation.kind,
            "group": each.operation.group,
            "start_s": each.start,
            "end_s": each.end,
        }
        for each in found.operations
    ]


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, print_notes, quantity, table

    out = console()
    times = ("time_s", "compute_s", "communication_s", "exposed_communication_s")
    rows = [
        (str(each["rank"]), str(each["ranks"]), *(quantity(each[name], "s") for name in times))
        for each in record["classes"]
    ]
    title = f"{record['ranks']:,} ranks on {record['device']} (recorded: {record['recorded_ranks']:,})"
    columns = ("rank", "stands for", "time", "compute", "communication", "exposed")
    ends = [quantity(record[name], "s") for name in ("lower_s", "upper_s") if name in record]
    interval = f" ({' to '.join(ends)})" if ends else ""
    out.print(f"{title}: {quantity(record['time_s'], 's')}{interval}", soft_wrap=True)
    out.print(table("", columns, rows))
    parts = ", ".join(f"{what} {quantity(time, 's')}" for what, time in record["critical_path_s"].items() if time > 0)
    out.print(f"longest chain: {parts or 'nothing takes time'}", soft_wrap=True)
    print_notes(out, record["notes"], quiet)
    if not quiet:
        out.print(record["provenance"], soft_wrap=True)
        out.print("Messages that share a link at the same time do not slow one another here.")
