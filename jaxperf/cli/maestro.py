"""`jaxperf loopnest FILE.m`: the layers of a MAESTRO mapping, the cycles of its schedule and the words they move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.options import EXIT_INFEASIBLE

ENDING = ".m"


def maestro_layers(path: Path, hardware: Path | None, out: Path | None, as_json: bool, quiet: bool) -> None:
    """Every layer of a mapping file on the machine of a hardware file, in the file's order."""
    from jaxperf.io.maestro import load_layers, load_machine
    from jaxperf.io.maestro_case import OUTER, layer_record
    from jaxperf.io.tables import json_text, write_rows

    if hardware is None:
        raise InputError(f"{path} says nothing of the machine; give MAESTRO's file of it, --hardware FILE{ENDING}.")
    machine = load_machine(hardware)
    records = [layer_record(layer, machine, str(path)) for layer in load_layers(path)]
    rows = [_row(record, OUTER) for record in records]
    record = {"mapping": str(path), "hardware": str(hardware), "cycles": sum(row["cycles"] for row in rows)}
    typer.echo(json_text({**record, "layers": records})) if as_json else _print(record, records, rows, quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})
    if not all(row["feasible"] for row in rows):
        raise typer.Exit(EXIT_INFEASIBLE)


def _row(record: dict[str, Any], outer: str) -> dict[str, Any]:
    """A layer in one line: the words that its tensors move at the outer store are of the padded nest."""
    nest = record["nest"]
    plain = {name: value for name, value in record.items() if name != "nest"}
    words = {
        f"{tensor.casefold()}_{action}": counts[action]
        for tensor, counts in nest["levels"][outer]["tensors"].items()
        for action in ("reads", "updates")
    }
    return {
        **plain,
        "overlapped_cycles": nest["cycles"],
        "limiter": nest["limiter"],
        **words,
        "feasible": nest["feasible"],
    }


def _print(record: dict[str, Any], records: list[dict[str, Any]], rows: list[dict[str, Any]], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    columns = ("layer", "cycles", "if all overlaps", "utilization", "macs")
    cells = [
        (
            row["layer"],
            f"{row['cycles']:,}",
            f"{row['overlapped_cycles']:,.0f}" if row["feasible"] else "-",
            f"{row['utilization']:.1%}",
            f"{row['macs']:,}",
        )
        for row in rows
    ]
    out.print(table("MAESTRO's schedule", columns, cells))
    if len(rows) > 1:
        out.print(f"{len(rows)} layers: {record['cycles']:,} cycles", soft_wrap=True)
    for each in records:
        for said in each["nest"]["reasons"]:
            out.print(f"{each['layer']}: infeasible: {said}", soft_wrap=True)
        for said in () if quiet else each["nest"]["notes"][1:]:
            out.print(f"{each['layer']}: note: {said}", soft_wrap=True)
    if not quiet:
        out.print(f"note: {records[0]['nest']['notes'][0]}", soft_wrap=True)
