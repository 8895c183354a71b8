"""The `jaxperf` command: its subcommands, and how mistakes and interruptions end.

Exit codes: 0 answered, 2 the user's input, 3 nothing feasible, 130 interrupted, 143 by SIGTERM (what was finished is
kept).
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hwspecs.errors import InconsistentPeaks, InputError, shortened
from jaxperf.cli.batches import batches
from jaxperf.cli.calibrate import calibrate
from jaxperf.cli.capacity import capacity
from jaxperf.cli.codesign import codesign
from jaxperf.cli.collectives import collectives
from jaxperf.cli.colocate import colocate
from jaxperf.cli.command import Command
from jaxperf.cli.design import design
from jaxperf.cli.devices import devices
from jaxperf.cli.edge import edge
from jaxperf.cli.estimate import estimate
from jaxperf.cli.graphs import graphs
from jaxperf.cli.interrupts import no_more_to_say
from jaxperf.cli.kernels import kernels
from jaxperf.cli.loopnest import loopnest
from jaxperf.cli.map import map_nest
from jaxperf.cli.measure import measure
from jaxperf.cli.models import models
from jaxperf.cli.options import EXIT_INPUT, EXIT_INTERRUPTED
from jaxperf.cli.plan import plan
from jaxperf.cli.rank import rank
from jaxperf.cli.replay import replay
from jaxperf.cli.rl import rl
from jaxperf.cli.scenarios import scenarios
from jaxperf.cli.serve import serve
from jaxperf.cli.simulate import simulate
from jaxperf.cli.sweep import sweep
from jaxperf.cli.trace import trace
from jaxperf.cli.train import train
from jaxperf.cli.validate import validate
from jaxperf.core.version import VERSION


def _plain(show: Callable[..., None]) -> Callable[..., None]:
    """How warnings are shown: those about a user's device in a sentence and once, others as `show` does."""
    told: set[str] = set()

    def plain(message: Any, category: type[Warning], *where: Any, **named: Any) -> None:
        if not issubclass(category, InconsistentPeaks):
            show(message, category, *where, **named)
        elif str(message) not in told:
            told.add(str(message))
            typer.echo(f"jaxperf: warning: {message}", err=True)

    return plain


def _say(sentence: str) -> None:
    """Where even the terminal is a full disk, the exit code still tells how it ended."""
    try:
        typer.echo(shortened(sentence), err=True)
    except OSError:
        no_more_to_say()


class Commands(TyperGroup):
    """Turns the user's mistakes into one sentence and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", InconsistentPeaks)
                warnings.showwarning = _plain(warnings.showwarning)
                return super().invoke(ctx)
        except InputError as error:
            _say(f"jaxperf: {error}")
            raise typer.Exit(EXIT_INPUT) from None
        except BrokenPipeError:
            raise  # typer ends quietly where the reader of a pipe has left
        except OSError as error:  # a file system that refuses where no layer below expected it
            where = f"'{error.filename}': " if error.filename else ""
            _say(f"jaxperf: {where}{error.strerror or error}.")
            raise typer.Exit(EXIT_INPUT) from None
        except KeyboardInterrupt as error:
            _say(f"\njaxperf: {str(error) or 'Interrupted.'}")
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Analytical performance models of accelerators and LLM workloads, compiled with JAX.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jaxperf {VERSION}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Holds the option that no command takes."""


for command in (
    estimate,
    rank,
    sweep,
    trace,
    kernels,
    graphs,
    batches,
    collectives,
    train,
    serve,
    edge,
    simulate,
    capacity,
    colocate,
    rl,
    replay,
    loopnest,
    codesign,
    design,
    measure,
    calibrate,
    validate,
    devices,
    models,
    scenarios,
):
    app.command(cls=Command)(command)
app.command("map", cls=Command)(map_nest)
app.add_typer(plan, name="plan")


def main() -> None:
    """What the console script and `python -m jaxperf` run, with Ctrl-C watched for (`jaxperf.__main__`)."""
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal's encoding lacks is spelled, not an error
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="jaxperf")
