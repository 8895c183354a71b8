"""`jaxperf estimate --onnx FILE`: the kernels of an ONNX model on a device, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwspecs.errors import InputError
from jaxperf.cli.option_checks import given_options

if TYPE_CHECKING:
    from jaxperf.cli.breakdown import Asked

ModelOrOnnx = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="A name, a config.json or a Hugging Face directory; or --onnx FILE."),
]
OnnxFile = Annotated[
    Path | None, typer.Option("--onnx", metavar="FILE", help="An ONNX model in place of MODEL; see --shapes.")
]
OnnxShapes = Annotated[
    list[str] | None,
    typer.Option("--shapes", metavar="INPUT=N,N", help="With --onnx: the shape of an input; may be repeated."),
]


# Options of `estimate` that mean something for an ONNX file; the others are refused beside it.
APPLY = frozenset(
    ("onnx", "shapes", "device", "batch", "devices_dir", "params", "launch", "out", "plot", "as_json", "quiet")
)


def one_of(context: typer.Context, model: str | None, path: Path | None) -> str:
    """MODEL, or "" with --onnx.

    **Raises:** `InputError` for neither or both, and for an option that goes with the other of the two.
    """
    if (model is None) == (path is None):
        raise InputError("Give either MODEL or --onnx FILE" + ("." if model is None else ", not both."))
    for name, option in given_options(context).items():
        if path is None and name == "shapes":
            raise InputError("--shapes goes with --onnx FILE; a MODEL takes --prompt and --batch.")
        if path is not None and name not in APPLY:
            raise InputError(f"{option} means nothing for an ONNX file; it is estimated on one device as it is.")
    return model or ""


def batch_of(context: typer.Context, batch: int) -> int | None:
    """`--batch` where it was given; the default of a MODEL says nothing of a file."""
    return batch if "batch" in given_options(context) else None


def estimate_onnx(path: Path, shapes: Sequence[str] | None, batch: int | None, asked: Asked) -> None:
    """Time, share and limiter of each kernel of an ONNX model.

    **Arguments:** `shapes`: `input=1,3,224,224` or `dimension=128` each; `batch`: of first dimensions that stay free,
    which are 1 where it is not given.
    **Raises:** `InputError` as `jaxperf.io.onnx_graph.read_onnx` and `jaxperf.cli.breakdown.answer` do.
    """
    from jaxperf.cli.measured import start_single_precision

    start_single_precision(quick=True)
    from jaxperf.cli.breakdown import answer, check_outputs
    from jaxperf.io.onnx_graph import read_onnx
    from jaxperf.io.shapes import parse_bindings

    check_outputs(asked.out, asked.plot)
    program = read_onnx(path, parse_bindings(shapes or ()), batch, free_batch=1)
    answer(program, asked)
