"""What all commands share: how their help names paths, and `--report FILE.html`, the page of what they print."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperArgument, TyperCommand
from typer.main import get_command

from hwspecs.errors import InputError
from jaxperf.cli.examples import write_example

ENDINGS = (".html",)
WRITTEN = ("out", "plot", "report")  # parameters that name what a command writes
CONFIG = "config.json"  # what is read of a model's folder
Report = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE.html", help="Also write the printed answer, and .png pictures, as one HTML page."
    ),
]


def _reporting(report: Report = None) -> None:
    """Holds the option that every command is given."""


def _option() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(_reporting)
    return next(parameter for parameter in get_command(app).params if parameter.name == "report")


REPORT = _option()


class Command(TyperCommand):
    """Its help shows an argument that may be repeated as `<path>...`, not as Python's list of paths; it has `--report`.

    The page is what the command printed, so that `--json`, which prints no text, cannot be asked for as well. It is
    written where the command answered, be it that nothing is feasible, and where it was interrupted and said what was
    finished; not after a mistake.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params.append(REPORT)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.nargs == -1:
                setattr(parameter, "display_type", lambda ctx: "<path>...")  # noqa: B010

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The help ends with an example."""
        super().format_epilog(ctx, formatter)
        write_example(ctx, formatter)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Keeps the words of the command line, which the parser takes from the list."""
        words = list(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta["jaxperf.words"] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, unless its output is a file that it reads; an interruption of which nothing else is said
        says whether there is a file now."""
        out = ctx.params.get("out")
        before = _state(out)
        if before is not None:
            _check_not_read(out, (value for name, value in ctx.params.items() if name not in WRITTEN))
        try:
            return self._answer(ctx)
        except KeyboardInterrupt as stopped:
            if str(stopped) or not isinstance(out, Path) or _state(out) != before:
                raise
            raise KeyboardInterrupt(f"Interrupted; nothing is written to '{out}'.") from None

    def _answer(self, ctx: Any) -> Any:
        """Runs the command, and writes its page where one is asked for."""
        path = ctx.params.pop("report", None)
        if path is None:
            return super().invoke(ctx)
        path = Path(path)
        if ctx.params.get("as_json"):
            raise InputError("--report is a page of the printed answer, and --json prints none; give one of them.")
        return _recorded(lambda: super(Command, self).invoke(ctx), ctx, path)


def _check_not_read(out: Path, given: Iterable[Any]) -> None:
    """Raises `InputError` where `out` is one of the files that are given, or the config of a folder that is."""
    for value in given:
        for each in value if isinstance(value, list | tuple) else (value,):
            for path in (each, os.path.join(each, CONFIG)) if isinstance(each, str | Path) else ():
                if os.path.exists(path) and out.samefile(path):
                    raise InputError(f"{out} is the input; write to another file.")


def _state(out: Any) -> tuple[int, int] | None:
    """What tells a file that was written from the one before; None where there is none."""
    try:
        found = out.stat() if isinstance(out, Path) else None
    except OSError:
        return None
    return found and (found.st_ino, found.st_mtime_ns)


def _recorded(run: Callable[[], Any], ctx: Any, path: Path) -> Any:
    """What `run` gives; what it prints goes to the page as well."""
    from jaxperf.io.tables import check_output

    check_output(path, ENDINGS)
    from jaxperf.report.page import Tee, pictures, write_page

    command = shlex.join([*ctx.command_path.split(), *ctx.meta["jaxperf.words"]])
    tee = Tee()
    before = pictures(ctx.params.values())
    try:
        with contextlib.redirect_stdout(cast(Any, tee)):
            found = run()
    except typer.Exit:
        write_page(path, command, tee.text, pictures(ctx.params.values(), before))
        raise
    write_page(path, command, tee.text, pictures(ctx.params.values(), before))
    return found
