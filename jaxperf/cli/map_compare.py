"""`jaxperf map CASE --network MODEL --compare`: what every way to search finds with the same number of evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jaxperf.cli.map_network import TABLES, layer_rows
from jaxperf.cli.options import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from jaxperf.io.map_case import Asked


def map_compare(
    path: Path,
    network: str,
    size: int,
    batch: int,
    given: str | None,
    wanted: Asked,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """A row for every shape of a layer: the best score of each method, and the bound that none can beat."""
    import time

    from jaxperf.io.map_case import compared_methods
    from jaxperf.io.map_network import network_layers
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.io.timeloop.json_case import load_machine
    from jaxperf.loopnest.mapper import METHODS

    check_output(out, TABLES)
    start = time.perf_counter()
    known, case = network_layers(network, size, batch), load_machine(path)
    rows = layer_rows(
        case, known.layers, given, quiet, lambda own, limits, width: compared_methods(own, limits, wanted, width)
    )
    best = {name: sum(row[name] <= min(row[other] for other in METHODS) for row in rows) for name in METHODS}
    record = {
        "network": network,
        "objective": wanted.objective,
        "shapes": len(rows),
        "best": best,
        "gradient_at_most_random": sum(row["gradient"] <= row["random"] for row in rows),
        "left_out": known.left_out,
        "notes": [*case.notes, *known.notes],
        "seconds": time.perf_counter() - start,
    }
    typer.echo(json_text({**record, "layers": rows})) if as_json else _print(record, rows, tuple(METHODS), quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})
    if len(rows) < len(known.layers):
        raise typer.Exit(EXIT_INTERRUPTED)


def _print(record: dict[str, Any], rows: list[dict[str, Any]], methods: tuple[str, ...], quiet: bool) -> None:
    from jaxperf.report.text import console, print_notes, table

    out = console()
    columns = ("first layer", "layers", *methods, "bound")
    cells = [(row["layer"], str(row["count"]), *(f"{row[name]:.5g}" for name in (*methods, "bound"))) for row in rows]
    title = f"Least {record['objective']} after {rows[0]['evaluations']:,} evaluations" if rows else "Nothing finished"
    out.print(table(title, columns, cells))
    best = ", ".join(f"{name} {number}" for name, number in record["best"].items())
    out.print(f"best or equal of {record['shapes']} shapes: {best}", soft_wrap=True)
    out.print(f"gradient at most random: {record['gradient_at_most_random']} of {record['shapes']}", soft_wrap=True)
    print_notes(out, record["notes"], quiet)
    if not quiet:
        out.print(f"{record['seconds']:.1f} s with compilation", soft_wrap=True)
