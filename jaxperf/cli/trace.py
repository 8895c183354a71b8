"""`jaxperf trace MODULE:FUNCTION --shapes ... --device NAME`: the kernels of any JAX function, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.measured import Params
from jaxperf.cli.options import AsJson, DevicesDirectory, Launch, OutputFile, Plot, Quiet

if TYPE_CHECKING:
    from jaxperf.io.program import Program

Framework = Annotated[
    str, typer.Option("--framework", metavar="NAME", help="Take the kernels of this framework (default: generic).")
]
Unfused = Annotated[bool, typer.Option("--no-fusion", help="One kernel for every elementwise step and reduction.")]


def trace(
    function: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="A JAX function: MODULE:FUNCTION or FILE.py:FUNCTION.")
    ],
    shapes: Annotated[
        str,
        typer.Option("--shapes", metavar="SHAPES", help="Its arguments: f32[8,1024],i32[8] or FILE.py:NAME of them."),
    ],
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="A device name, alias or TOML file.")],
    params: Params = None,
    framework: Framework = "",
    launch: Launch = "graph",
    no_fusion: Unfused = False,
    devices_dir: DevicesDirectory = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Time a JAX function on a device, by its shapes alone. Time, share and limiter of each of its kernels."""
    from jaxperf.cli.measured import start_single_precision

    start_single_precision(quick=True)
    from jaxperf.cli.breakdown import Asked, answer, check_outputs

    check_outputs(out, plot)
    program = _program(function, shapes)
    asked = Asked(device, devices_dir or (), params, launch, out, plot, as_json, quiet)
    answer(program, asked, framework, not no_fusion)


def _program(function: str, shapes: str) -> Program:
    import jax

    from jaxperf.io import jaxpr_graph
    from jaxperf.io.python_function import load_function

    found = load_function(function)
    arguments = _arguments(shapes)
    wide = any(str(leaf.dtype) in ("float64", "int64", "uint64", "complex128") for leaf in jax.tree.leaves(arguments))
    with jax.enable_x64(wide):  # else JAX would narrow what the user asked for
        return jaxpr_graph.trace(found, *arguments, name=function)


def _arguments(shapes: str) -> tuple[Any, ...]:
    """Arrays in the short form, or a tuple of pytrees of `jax.ShapeDtypeStruct` that a module holds or returns."""
    from hwspecs.errors import InputError
    from jaxperf.io.avals import struct
    from jaxperf.io.python_function import load_object
    from jaxperf.io.shapes import parse_arrays

    if "[" in shapes or ":" not in shapes:
        return tuple(struct(shape, dtype) for shape, dtype in parse_arrays(shapes))
    found = load_object(shapes)
    found = found() if callable(found) else found
    if not isinstance(found, tuple | list):
        raise InputError(f"--shapes: '{shapes}' is {type(found).__name__}; give a tuple with one entry an argument.")
    return tuple(found)
