"""`jaxperf codesign NETWORK --base CASE --free LEVEL.size=a,b`: machines compared on all layers of a network."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.map import Batch, Limits, Objective, Seed, Size
from jaxperf.cli.options import EXIT_INFEASIBLE, EXIT_INTERRUPTED, AsJson, OutputFile, Plot, Quiet

if TYPE_CHECKING:
    from jaxperf.io.codesign import Design
    from jaxperf.io.codesign_rows import Budgets
    from jaxperf.io.codesign_search import Searched, Task

SHOWN = 20  # machines in the table; a file holds all
Base = Annotated[Path, typer.Option("--base", metavar="CASE", help="The machine, as a case of jaxperf loopnest.")]
Free = Annotated[
    list[str] | None,
    typer.Option(
        "--free",
        metavar="LEVEL.FIELD=a,b",
        help="Values of a level's size [word], mesh_x, mesh_y, or read_, write_, shared_bandwidth; may be repeated.",
    ),
]
Energy = Annotated[
    list[str] | None,
    typer.Option(
        "--energy",
        metavar="LEVEL=LAW",
        help="How energy follows a free size: sram (default), accumulator, regfile or fixed; may be repeated.",
    ),
]
Generations = Annotated[
    int, typer.Option("--generations", metavar="N", help="Of 8,192 mappings, for each machine and layer.")
]
Clock = Annotated[str | None, typer.Option("--clock", metavar="FREQUENCY", help="Such as 1GHz; adds the mean power.")]
Budget = Annotated[
    str | None, typer.Option("--power-budget", metavar="POWER", help="Such as 300mW; more cannot be built.")
]
Technology = Annotated[
    str | None, typer.Option("--technology", metavar="NODE", help="Process, 7nm to 40nm; adds the area of machines.")
]
Areas = Annotated[
    list[str] | None,
    typer.Option(
        "--area",
        metavar="LEVEL=LAW",
        help="What a level is made of: sram (default), registers or none; may be repeated.",
    ),
]
MacBits = Annotated[
    str | None, typer.Option("--mac-bits", metavar="M,A", help="Bits of a unit's multiplier and adder, such as 8,16.")
]
AreaBudget = Annotated[
    str | None, typer.Option("--area-budget", metavar="AREA", help="Such as 5mm^2; more cannot be built.")
]


def codesign(
    base: Base,
    network: Annotated[
        str | None, typer.Argument(metavar="NETWORK", help="A model, such as resnet-50 (default: the case's nest).")
    ] = None,
    free: Free = None,
    constraints: Limits = None,
    energy: Energy = None,
    objective: Objective = "edp",
    seed: Seed = 0,
    generations: Generations = 10,
    size: Size = 224,
    batch: Batch = 1,
    clock: Clock = None,
    power_budget: Budget = None,
    technology: Technology = None,
    area: Areas = None,
    mac_bits: MacBits = None,
    area_budget: AreaBudget = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare machines with other sizes, meshes or bandwidths by what a whole network costs on each, mapped anew."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.io.codesign_area import read_silicon, with_areas
    from jaxperf.io.codesign_rows import design_rows
    from jaxperf.io.codesign_search import compare
    from jaxperf.io.machines import machine_path
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.report.plots import check_picture

    check_output(out)
    check_picture(plot)
    base = machine_path(base)
    _check_numbers(objective, {"--generations": (generations, 1), "--seed": (seed, 0)}, size, batch)
    limits = _limits(clock, power_budget, technology, area_budget)
    task, designs, notes = _prepare(base, network, free or [], constraints, energy or [], size, batch)
    silicon = read_silicon(technology, area or [], mac_bits, task.cases[0].levels)
    if silicon is not None:
        designs = with_areas(designs, silicon, base, task.cases[0].levels)
    searched = _search(designs, task, objective, seed, generations, quiet)
    totals = compare(searched, task, objective)
    rows = design_rows(searched, totals, task, objective, limits)
    record = {
        "network": network,
        "base": str(base),
        "constraints": constraints,
        "objective": objective,
        "seed": seed,
        "generations": generations,
        "technology": technology,
        "layers": sum(task.counts),
        "shapes": len(task.counts),
        "machines": len(designs),
        "notes": notes,
    }
    typer.echo(json_text({**record, "rows": rows})) if as_json else _print(record, rows, list(designs[0].values), quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})
    if plot is not None and rows[0]["feasible"]:
        _draw(rows, list(designs[0].values), plot)
    if len(searched) < len(designs):
        raise typer.Exit(EXIT_INTERRUPTED)
    if not any(row["feasible"] for row in rows):
        raise typer.Exit(EXIT_INFEASIBLE)


def _check_numbers(objective: str, searching: dict[str, tuple[int, int]], size: int, batch: int) -> None:
    from jaxperf.loopnest.search import OBJECTIVES

    if objective not in OBJECTIVES:
        hint = did_you_mean(objective, OBJECTIVES)
        raise InputError(f"--objective: '{objective}' is not one of {', '.join(OBJECTIVES)}.{hint}")
    for option, (value, least) in (searching | {"--size": (size, 1), "--batch": (batch, 1)}).items():
        if not least <= value < 2**31:
            raise InputError(f"{option} is {value}; it must be an integer from {least}.")


def _limits(clock: str | None, power: str | None, technology: str | None, area: str | None) -> Budgets:
    """Clock [Hz] and budgets [W, m2]. Raises `InputError` for what is no such quantity, or needs another option."""
    import hwspecs
    from jaxperf.io.codesign_rows import Budgets

    if power is not None and clock is None:
        raise InputError("--power-budget needs --clock: power is energy per cycle times the clock.")
    if area is not None and technology is None:
        raise InputError("--area-budget needs --technology, such as --technology 16nm.")
    found: list[float | None] = []
    for option, text, unit in (
        ("--clock", clock, "Hz"),
        ("--power-budget", power, "W"),
        ("--area-budget", area, "m^2"),
    ):
        try:
            found.append(None if text is None else hwspecs.parse_quantity(text, unit))
        except InputError as error:
            raise InputError(f"{option}: {error}") from None
    return Budgets(*found)


def _prepare(
    base: Path, network: str | None, free: list[str], given: str | None, energy: list[str], size: int, batch: int
) -> tuple[Task, list[Design], list[str]]:
    """Everything that can be found wrong with a question, before anything is searched."""
    from jaxperf.io.codesign import build_designs, law_notes, read_axes, read_laws
    from jaxperf.io.codesign_search import build_task
    from jaxperf.io.map_network import Layer, network_layers
    from jaxperf.io.timeloop import load_case
    from jaxperf.loopnest.codesign_energy import LAWS

    case = load_case(base)
    axes, laws = read_axes(free, case.levels), read_laws("--energy", energy, case.levels, LAWS)
    own = [Layer((base.stem,), case.problem, case.names)]
    task = build_task(case, own if network is None else network_layers(network, size, batch), given)
    designs = build_designs(task.cases[0], base, task.constraints, axes, laws)
    return task, designs, law_notes(base, axes, laws)


def _search(
    designs: list[Design], task: Task, objective: str, seed: int, generations: int, quiet: bool
) -> list[Searched]:
    """Machines one after the other; interrupted, those that were finished. Raises `KeyboardInterrupt` for none."""
    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.codesign_search import search_design

    found: list[Searched] = []
    with progress_bar("machines", quiet) as report, contextlib.suppress(KeyboardInterrupt):
        for design in designs:
            found.append(search_design(design, task, objective, seed, generations))
            if report is not None:
                report(len(found), len(designs))
    if not found:
        raise KeyboardInterrupt("Interrupted before the first machine was mapped.")
    return found


# --- what is said about the answer ------------------------------------------------------------------------------------


def _print(record: dict[str, Any], rows: list[dict[str, Any]], free: list[str], quiet: bool) -> None:
    from jaxperf.io.codesign_rows import MM2
    from jaxperf.report.text import console, quantity, table

    out = console()
    running = [row for row in rows if row["feasible"]]
    cells = [
        (
            *(f"{row[name]:g}" for name in free),
            f"{row['cycles']:,.0f}",
            quantity(row["energy_j"], "J", 4),
            f"{row['edp_j_cycle']:.5g}",
            *((quantity(row["power_w"], "W", 3),) if "power_w" in row else ()),
            *((f"{row['area_m2'] / MM2:.4g}",) if "area_m2" in row else ()),
            "*" if row["pareto"] else "",
            row["loses_by"] or "best",
        )
        for row in running[:SHOWN]
    ]
    more = [title for name, title in (("power_w", "power"), ("area_m2", "mm2")) if name in rows[0]]
    columns = (*free, "cycles", "energy", "EDP, J cycle", *more, "front", "against the best")
    out.print(table(f"Machines by {record['objective']}", columns, cells))
    if len(running) > SHOWN:
        out.print(f"{len(running) - SHOWN} more machines that can run; -o FILE writes all")
    for row in rows[len(running) :]:
        named = ", ".join(f"{name}={row[name]:g}" for name in free)
        out.print(f"infeasible: {named}: {row['reason']}", soft_wrap=True, markup=False)
    if not quiet:
        for note in record["notes"]:
            out.print(f"note: {note}", soft_wrap=True, markup=False)
        out.print(
            f"{record['layers']} layers of {record['shapes']} shapes on {len(rows)} of {record['machines']} machines; "
            "* no other machine has both less energy and fewer cycles",
            soft_wrap=True,
        )


def _draw(rows: list[dict[str, Any]], free: list[str], plot: Path) -> None:
    """Energy against cycles of all machines that run, a color for each value of the first free field; the front has
    rings and a line."""
    from jaxperf.report.plots import new_figure, save

    running = sorted((row for row in rows if row["feasible"]), key=lambda row: row["cycles"])
    front = [row for row in running if row["pareto"]]
    figure, axes = new_figure(8.0, 5.0)
    axes.plot(*_places(front), color="#888888", linewidth=1, marker="o", markersize=11, fillstyle="none", label="front")
    for value in sorted({row[free[0]] for row in running}):
        mine = [row for row in running if row[free[0]] == value]
        axes.scatter(*_places(mine), s=22, zorder=2, label=f"{free[0]} {value:g}")
    axes.set(xlabel="cycles", ylabel="energy [J]")
    axes.set_title("Machines with the best mappings found", loc="left", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    save(figure, plot)


def _places(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [row["cycles"] for row in rows], [row["energy_j"] for row in rows]
