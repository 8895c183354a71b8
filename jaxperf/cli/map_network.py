"""`jaxperf map CASE --network MODEL`: the best mapping of every layer of a network on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jaxperf.cli.options import EXIT_INFEASIBLE, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxperf.io.map_case import Asked
    from jaxperf.io.map_network import Layer
    from jaxperf.io.timeloop.case import Case
    from jaxperf.loopnest.constraints import Constraints

    Answer = Callable[[Case, Constraints, int], dict[str, Any] | None]

TABLES = (".parquet", ".csv", ".json")


def map_network(
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
    """Every shape is searched once, all with one compilation; what the layers cost together is printed last."""
    import json
    import time

    from jaxperf.io.map_network import network_layers
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.io.timeloop.json_case import load_machine

    check_output(out, TABLES)
    start = time.perf_counter()
    known, case = network_layers(network, size, batch), load_machine(path)
    rows = layer_rows(case, known.layers, given, quiet, lambda own, limits, width: _answer(own, limits, wanted, width))
    notes = [*case.notes, *known.notes]
    asked = {"network": network, "objective": wanted.objective, "left_out": known.left_out, "notes": notes}
    record = _totals(rows) | asked | {"seconds": time.perf_counter() - start}
    typer.echo(json_text({**record, "layers": rows})) if as_json else _print(record, rows, quiet)
    if out is not None:
        plain = [{**row, **{name: json.dumps(row[name]) for name in ("mapping", "rejected")}} for row in rows]
        write_rows(plain, out, {"jaxperf": json_text(record)})
    if len(rows) < len(known.layers):
        raise typer.Exit(EXIT_INTERRUPTED)
    if record["infeasible"]:
        raise typer.Exit(EXIT_INFEASIBLE)


def layer_rows(case: Case, layers: list[Layer], given: str | None, quiet: bool, answer: Answer) -> list[dict[str, Any]]:
    """A row for every shape of a layer on the machine of a case, as far as the user lets it: what it is, and what
    `answer` says of its case, its constraints and the width they share, `None` where it was interrupted."""
    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.map_case import constrained
    from jaxperf.io.map_network import layer_case
    from jaxperf.loopnest.mapspace import prime_factors

    width = max(len(prime_factors(int(bound))) for layer in layers for bound in layer.problem.bounds)
    rows: list[dict[str, Any]] = []
    with progress_bar("layers", quiet) as report:
        for layer in layers:
            own, limits = constrained(layer_case(case, layer), given)
            said = answer(own, limits, width)
            if said is None:
                break  # what was finished is kept
            bounds = {name: int(bound) for name, bound in zip(own.names.dimensions, own.problem.bounds, strict=True)}
            rows.append({"layer": layer.names[0], "count": len(layer.names), **bounds, **said})
            if report is not None:
                report(len(rows), len(layers))
    return rows


def _answer(own: Case, limits: Constraints, wanted: Asked, width: int) -> dict[str, Any] | None:
    """The answer of the search of one shape; `None` where the user interrupted it."""
    from jaxperf.io.map_case import best_mapping

    answer, _ = best_mapping(own, limits, wanted, width)
    costs = ("cycles", "energy_j", "utilization", "edp_j_cycle", "limiter", "score", "bound", "gap", "evaluations")
    return None if answer["interrupted"] else {name: answer.get(name) for name in (*costs, "mapping", "rejected")}


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Layers run one after the other; those that cannot run are counted, not added."""
    known = [row for row in rows if row["mapping"]]
    cycles = sum(row["count"] * row["cycles"] for row in known)
    energy = sum(row["count"] * row["energy_j"] for row in known)
    return {
        "shapes": len(rows),
        "count": sum(row["count"] for row in rows),
        "mapped": sum(row["count"] for row in known),
        "infeasible": len(rows) - len(known),
        "cycles": cycles,
        "energy_j": energy,
        "edp_j_cycle": cycles * energy,
    }


def _print(record: dict[str, Any], rows: list[dict[str, Any]], quiet: bool) -> None:
    from jaxperf.report.text import console, counted, print_notes, quantity, table

    out = console()
    cells = [
        (
            row["layer"],
            str(row["count"]),
            *(("-",) * 4 if not row["mapping"] else _costs(row)),
        )
        for row in rows
    ]
    out.print(table("Best mappings", ("first layer", "layers", "cycles", "energy", "utilization", "gap"), cells))
    for row in rows:
        for each in () if row["mapping"] else row["rejected"]:
            out.print(f"{row['layer']}: rejected ({each['mappings']:,}): {each['reason']}", soft_wrap=True)
    which = "" if record["mapped"] == record["count"] else f"{record['mapped']:,} of "
    out.print(
        f"{which}{counted(record['count'], 'layer')} of {counted(record['shapes'], 'shape')}: "
        f"{record['cycles']:,.0f} cycles, {quantity(record['energy_j'], 'J', 5)}, "
        f"EDP {record['edp_j_cycle']:.6g} J cycle",
        soft_wrap=True,
    )
    print_notes(out, record["notes"], quiet)
    if not quiet:
        out.print(f"{record['seconds']:.1f} s with compilation", soft_wrap=True)


def _costs(row: dict[str, Any]) -> tuple[str, ...]:
    from jaxperf.report.text import quantity

    gap = "-" if row["gap"] is None else f"{row['gap']:.1%}"
    return f"{row['cycles']:,.0f}", quantity(row["energy_j"], "J", 5), f"{row['utilization']:.1%}", gap
