"""`jaxperf scenarios [ID]`: questions that are asked of such models, the command that answers each, and its check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import AsJson, OutputFile, Quiet

if TYPE_CHECKING:
    from jaxperf.io.scenarios import Scenario


def scenarios(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="Show one, with its command and its check.")] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write the files that the command of ID reads.")
    ] = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List questions with the commands that answer them. Or show one with its files and what the answer must obey."""
    from jaxperf.io.scenarios import load_scenario, load_scenarios, write_inputs
    from jaxperf.io.tables import check_output, json_text, write_rows

    check_output(out)
    if name is None and write is not None:
        raise InputError("--write writes the files of one scenario; give its ID.")
    found = list(load_scenarios().values()) if name is None else [load_scenario(name)]
    written = [] if write is None else write_inputs(found[0], write)
    rows = [record(each) for each in found]
    if as_json:
        typer.echo(json_text(rows if name is None else rows[0]))
    elif name is None:
        _list(found, quiet)
    else:
        _show(found[0], written, quiet)
    if out is not None:
        write_rows([_flat(row) for row in rows], out, {})


def record(scenario: Scenario) -> dict[str, Any]:
    """One scenario as plain data."""
    return {
        "id": scenario.id,
        "name": scenario.name,
        "layer": scenario.layer,
        "answered": scenario.answered,
        "model": scenario.model,
        "device": scenario.device,
        "devices": scenario.devices,
        "layout": scenario.layout,
        "workload": scenario.workload,
        "commands": list(scenario.commands),
        "files": dict(scenario.files),
        "check": scenario.check,
        "note": scenario.note,
        "lacks": scenario.lacks,
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A record as cells of a table: its commands line by line, of its files the names (`--write` has their text)."""
    return row | {"commands": "\n".join(row["commands"]), "files": ", ".join(row["files"])}


def _list(found: list[Scenario], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    answered = sum(each.answered for each in found)
    rows = [
        (each.id, each.name, each.layer, each.commands[0] if each.answered else f"lacks: {each.lacks}")
        for each in found
    ]
    out.width = max(out.width, 40 + sum(max(len(row[column]) for row in rows) for column in range(4)))
    out.print(table(f"{len(found)} scenarios, {answered} answered", ("id", "scenario", "layer", "command"), rows))
    if not quiet:
        out.print("`jaxperf scenarios ID` shows one with its files and its check; --write DIR writes the files.")


def _show(scenario: Scenario, written: list[Path], quiet: bool) -> None:
    from jaxperf.report.text import bold, console

    out = console()
    out.print(bold(scenario.id, f"  {scenario.name} ({scenario.layer})\n"))
    asked = f"{scenario.model} on {scenario.devices} x {scenario.device}, {scenario.layout}"
    lines = {"asked": f"{asked}: {scenario.workload}", "lacks": scenario.lacks, "check": scenario.check}
    for label, text in {**lines, "note": "" if quiet else scenario.note}.items():
        if text:
            out.print(f"{label:9s}{text}", soft_wrap=True)
    for command in scenario.commands:
        out.print(f"{'command':9s}{command}", soft_wrap=True)
    for name, text in scenario.files.items() if not written else ():
        out.print(f"\n{name}\n{text}", end="", soft_wrap=True)
    for place in written:
        out.print(f"{'written':9s}{place}", soft_wrap=True)
