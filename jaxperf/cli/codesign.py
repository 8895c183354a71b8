"""`jaxperf codesign NETWORK --base CASE --free LEVEL.size=a,b`: machines compared on all layers of a network."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.map import (
    Batch,
    Limits,
    Objective,
    Seed,
    Size,
)
from jaxperf.cli.option_checks import check_integers, check_name, check_without, given_options
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    EXIT_INTERRUPTED,
    AsJson,
    OutputFile,
    Plot,
    Quiet,
    parse_option,
    say_not_written,
)

if TYPE_CHECKING:
    from jaxperf.io.codesign.search import Budgets, Question, Searched, Task
    from jaxperf.io.map_network import Network

METHODS = ("sweep", "gradient")
MAPPED = 12  # machines of a search by gradients
Texts = tuple[list[str], list[str], str | None, list[str], str | None, str | None]  # --free, ...
Base = Annotated[Path, typer.Option("--base", metavar="CASE", help="The machine, as a case of jaxperf loopnest.")]
Free = Annotated[
    list[str] | None,
    typer.Option(
        "--free",
        metavar="LEVEL.FIELD=a,b",
        help="Values of a level's size [word], mesh_x, mesh_y, or read_, write_, shared_bandwidth, or for gradients a "
        "range LOW:HIGH[:STEP]; may be repeated.",
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
Method = Annotated[str, typer.Option("--method", metavar="NAME", help="How to search: sweep, or gradient.")]
Machines = Annotated[
    int | None, typer.Option("--machines", metavar="N", help="Mapped by --method gradient at most (default: 12).")
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
CaseNode = Annotated[
    str | None,
    typer.Option("--case-node", metavar="NODE", help="Process of the case's energies, 7nm to 45nm; they move with it."),
]
MacBits = Annotated[
    str | None, typer.Option("--mac-bits", metavar="M,A", help="Bits of a unit's multiplier and adder, such as 8,16.")
]
AreaBudget = Annotated[
    str | None, typer.Option("--area-budget", metavar="AREA", help="Such as 5mm^2; more cannot be built.")
]


def codesign(
    context: typer.Context,
    base: Base,
    network: Annotated[
        str | None, typer.Argument(metavar="NETWORK", help="A model, such as resnet-50 (default: the case's nest).")
    ] = None,
    free: Free = None,
    method: Method = "sweep",
    machines: Machines = None,
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
    case_node: CaseNode = None,
    area: Areas = None,
    mac_bits: MacBits = None,
    area_budget: AreaBudget = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare machines by what a network costs on each. They differ in sizes, meshes or bandwidths; layers are mapped
    anew."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.cli.codesign_said import draw_machines, print_machines
    from jaxperf.io.codesign.rows import design_rows
    from jaxperf.io.codesign.search import compare
    from jaxperf.io.machines import machine_path
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.loopnest.search import OBJECTIVES
    from jaxperf.report.plots import check_picture

    check_output(out)
    check_picture(plot)
    if network is None:
        check_without("NETWORK", ("--size", "--batch"), set(given_options(context).values()))
    base = machine_path(base)
    check_name("--objective", objective, OBJECTIVES)
    check_name("--method", method, METHODS)
    if machines is not None and method != "gradient":
        raise InputError("--machines goes with --method gradient; a sweep maps every machine of its grid.")
    machines = MAPPED if machines is None else machines
    searching = {"--generations": (generations, 1), "--seed": (seed, 0), "--machines": (machines, 1)}
    check_integers(searching | {"--size": (size, 1), "--batch": (batch, 1)})
    limits = _limits(clock, power_budget, technology, area_budget)
    task, known = _task(base, network, constraints, size, batch)
    effort = (machines, objective, seed, generations)
    texts = (free or [], energy or [], technology, area or [], mac_bits, case_node)
    asked = _question(task, base, texts, method, limits, effort)
    searched, finished = _search(asked, method, quiet)
    task = asked.task
    rows = design_rows(searched, compare(searched, task, objective), task, objective, limits)
    given = {"network": network, "base": str(base), "constraints": constraints}
    given |= {"technology": technology, "case_node": case_node}
    record = given | {"method": method} | _record(asked, searched, known)
    names = [axis.name for axis in asked.axes]
    typer.echo(json_text({**record, "rows": rows})) if as_json else print_machines(record, rows, names, quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})
    if not rows[0]["feasible"]:  # the best
        say_not_written(plot)
    elif plot is not None:
        draw_machines(rows, names, plot)
    if not finished:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not any(row["feasible"] for row in rows):
        raise typer.Exit(EXIT_INFEASIBLE)


def _record(asked: Question, searched: list[Searched], known: Network) -> dict[str, Any]:
    """How the machines were searched, how many, and what of the network is in it."""
    from jaxperf.io.codesign.machines import law_notes

    return {
        "objective": asked.objective,
        "seed": asked.seed,
        "generations": asked.generations,
        "layers": sum(asked.task.counts),
        "shapes": len(asked.task.counts),
        "machines": asked.machines,
        "mapped": sum(each.evaluations > 0 for each in searched),
        "evaluations": sum(each.evaluations for each in searched),
        "left_out": known.left_out,
        "notes": [*law_notes(asked.axes, asked.knobs), *asked.task.cases[0].notes, *known.notes],
    }


def _limits(clock: str | None, power: str | None, technology: str | None, area: str | None) -> Budgets:
    """Clock [Hz] and budgets [W, m2]. Raises `InputError` for what is no such quantity, or needs another option."""
    from jaxperf.io.codesign.search import Budgets

    if power is not None and clock is None:
        raise InputError("--power-budget needs --clock: power is energy per cycle times the clock.")
    if area is not None and technology is None:
        raise InputError("--area-budget needs --technology, such as --technology 16nm.")
    given = {"--clock": (clock, "Hz"), "--power-budget": (power, "W"), "--area-budget": (area, "m^2")}
    return Budgets(*(None if text is None else parse_option(each, text, unit) for each, (text, unit) in given.items()))


def _task(base: Path, network: str | None, given: str | None, size: int, batch: int) -> tuple[Task, Network]:
    """The layers of the network, or the nest of the case itself, on the base machine, and what was left out."""
    from jaxperf.io.codesign.search import build_task
    from jaxperf.io.map_network import Layer, Network, network_layers
    from jaxperf.io.timeloop.json_case import load_case, load_machine

    case = (load_case if network is None else load_machine)(base)
    own = Network([Layer((base.stem,), case.problem, case.names)], {})
    known = own if network is None else network_layers(network, size, batch)
    return build_task(case, known.layers, given), known


def _question(
    task: Task, base: Path, texts: Texts, method: str, limits: Budgets, effort: tuple[int, str, int, int]
) -> Question:
    """Everything that can be found wrong with what is free, before anything is searched."""
    from jaxperf.io.codesign.area import read_silicon
    from jaxperf.io.codesign.free import corners_of, read_axes, read_laws, read_ranges
    from jaxperf.io.codesign.machines import build_knobs
    from jaxperf.io.codesign.node import moved_energies, read_case_node
    from jaxperf.io.codesign.search import Question, grid_of
    from jaxperf.loopnest.codesign.energy import LAWS

    free, energy, technology, area, mac_bits, case_node = texts
    case, sweeps = task.cases[0], method == "sweep"
    silicon = read_silicon(technology, area, mac_bits, case.levels)
    before = read_case_node(case_node, silicon)
    if silicon is not None and before is not None:
        task = moved_energies(task, silicon, before, base)
        case = task.cases[0]
    axes = (read_axes if sweeps else read_ranges)(free, case.levels)
    knobs = build_knobs(case, base, axes, read_laws("--energy", energy, case.levels, LAWS))
    asked = Question(task, axes, knobs, base, silicon, limits, *effort)
    machines = grid_of(asked if sweeps else asked._replace(axes=corners_of(axes)))
    return asked._replace(machines=len(machines)) if sweeps else asked


def _search(asked: Question, method: str, quiet: bool) -> tuple[list[Searched], bool]:
    """Machines one after the other, and whether they are all; interrupted, those that were finished. Raises
    `KeyboardInterrupt` for none."""
    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.codesign.gradient import proposed_machines
    from jaxperf.io.codesign.search import swept_machines

    found: list[Searched] = []
    finished = False
    with progress_bar("machines", quiet) as report, contextlib.suppress(KeyboardInterrupt):
        for machine in {"sweep": swept_machines, "gradient": proposed_machines}[method](asked):
            found.append(machine)
            if report is not None:
                report(sum(each.evaluations > 0 for each in found), asked.machines)
        finished = True
    if not found:
        raise KeyboardInterrupt("Interrupted before the first machine was mapped.")
    return found, finished
