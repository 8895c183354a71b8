"""What `jaxperf trace` and `jaxperf estimate --onnx` do with a traced program: price its kernels and say so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from jaxperf.cli.option_checks import check_name
from jaxperf.cli.options import EXIT_INFEASIBLE, say_not_written

if TYPE_CHECKING:
    from hwspecs import DeviceSpec
    from jaxperf.io.program import Program


def check_outputs(out: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written before anything is computed."""
    from jaxperf.io.tables import check_output
    from jaxperf.report.plots import check_picture

    check_output(out)
    check_picture(plot)


def device_of(name: str, directories: Sequence[Path]) -> tuple[DeviceSpec, list[str]]:
    """The device meant, and the folders in which its specification is found again by its name."""
    from jaxperf.io.fleet import select_device

    spec = select_device(name, directories)
    own = [Path(name).absolute().parent] if name.lower().endswith(".toml") else []
    return spec, [str(folder) for folder in (*directories, *own)]


class Asked(NamedTuple):
    """On which device, with which parameters and in which mode a program is priced, and how that is said."""

    device: str
    directories: Sequence[Path]
    params: Path | None
    launch: str
    out: Path | None
    plot: Path | None
    as_json: bool
    quiet: bool


def answer(program: Program, asked: Asked, framework: str = "", fuse: bool = True) -> None:
    """Print, write and draw the operations of a program on a device.

    **Raises:** `InputError` for a program without kernels, parameters that cannot be read or a framework that they do
    not know; `typer.Exit` with 3 where no operation has a time on the device.
    """
    from calibration.datasets.names import framework_name
    from jaxperf.cli.composed import MODES, check_framework, compose, kernels_for
    from jaxperf.cli.measured import parameters_record
    from jaxperf.cli.priced import price
    from jaxperf.io.lowering import lower
    from jaxperf.io.tables import json_text, write_rows
    from jaxperf.report.operations import breakdown_figure, operation_rows, print_breakdown, totals
    from jaxperf.report.plots import save

    check_name("--launch", asked.launch, MODES)
    spec, directories = device_of(asked.device, asked.directories)
    traced = lower(program, fuse)
    framework, _ = framework_name(framework)
    parameters = kernels_for(asked.launch, framework, asked.params)
    check_framework(framework, parameters)
    ops = (op for node in traced.graph.nodes for op in node.forward)
    prices = price(ops, spec.name, parameters, framework, directories)
    rows = operation_rows(traced, prices)
    record: dict[str, Any] = {
        "name": program.name,
        "device": spec.name,
        "fused": fuse,
        "framework": framework or "generic",
        "totals": totals(traced, rows),
        "whole": compose(traced.graph, prices, asked.launch, framework),
        "rows": rows,
        "parameters": parameters_record(parameters, asked.params),
    }
    if asked.as_json:
        typer.echo(json_text(record))
    else:
        print_breakdown(record, asked.quiet)
    if record["totals"]["without_time"] == len(rows):
        say_not_written(asked.out, asked.plot, why="no operation has a time on the device")
        raise typer.Exit(EXIT_INFEASIBLE)
    if asked.out is not None:
        write_rows(rows, asked.out, {"jaxperf": json_text({key: record[key] for key in record if key != "rows"})})
    if asked.plot is not None:
        save(breakdown_figure(f"{program.name} on {spec.name}", rows), asked.plot)
