"""`jaxperf map CASE`: the best mapping of a loop nest on a machine, and how far from the best possible it can be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.option_checks import check_integers, check_name, check_without, given_options
from jaxperf.cli.options import EXIT_INFEASIBLE, EXIT_INTERRUPTED, AsJson, Plot, Quiet, say_not_written

if TYPE_CHECKING:
    from jaxperf.io.map_case import Asked
    from jaxperf.io.timeloop.case import Case

ENDINGS = (".yaml", ".yml", ".parquet", ".csv", ".json")
NODES = 1_000_000  # of the proof of one nest
APART = {  # a chain has its own loops and no proof, a network many nests; a bound is of one choice of what is kept
    "--chain": ("--network", "--bounds", "--prove", "--bypass", "--compare", "--method", "--plot"),
    "--network": ("--bounds", "--plot"),
    "--bypass": ("--prove", "--compare"),
}
NEEDS = {
    "--fuse": "--chain",
    "--pipelined": "--chain",
    "--compare": "--network",
    "--size": "--network",
    "--batch": "--network",
}

Bounds = Annotated[
    str | None,
    typer.Option("--bounds", metavar="M=64,R=7", help="Other bounds of the problem's loops than the case has."),
]
Limits = Annotated[
    str | None,
    typer.Option(
        "--constraints",
        metavar="NAME|FILE",
        help="What the machine allows, by a shipped name such as eyeriss_like or a .json file (default: anything).",
    ),
]
Objective = Annotated[str, typer.Option("--objective", metavar="NAME", help="What to minimize: edp, energy or cycles.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of the random search.")]
Search = Annotated[str, typer.Option("--method", metavar="NAME", help="How to search: evolution, gradient or random.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="Of a network: the best of every method after as many evaluations.")
]
Bypass = Annotated[
    bool, typer.Option("--bypass", help="Also search what each level keeps where constraints do not say; no bound.")
]
Generations = Annotated[int, typer.Option("--generations", metavar="N", help="Of the search at most.")]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--prove",
        metavar="N",
        help="Nodes of the proof at most, 0 for the simple bound alone (default: 1000000; of a network 0).",
    ),
]
Network = Annotated[
    str | None,
    typer.Option("--network", metavar="MODEL", help="Map every layer of a model, such as resnet-50, on the machine."),
]
Size = Annotated[
    int,
    typer.Option(
        "--size", metavar="N", help="Of a network: side of its image (denoisers: of the latent map), or tokens."
    ),
]
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Of a network: images or sequences.")]
Chain = Annotated[
    str | None,
    typer.Option(
        "--chain",
        metavar="CHAIN",
        help="Map a fused chain on the machine: attention:heads=8,queries=1024,dim=64, mlp:..., or Einsums in a .yaml.",
    ),
]
Fuse = Annotated[
    str | None,
    typer.Option(
        "--fuse", metavar="LEVEL", help="Of a chain: where its intermediate arrays stay (default: next to last)."
    ),
]
Pipelined = Annotated[
    bool, typer.Option("--pipelined", help="Of a chain: all stages at once, each on units of its own.")
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="FILE", help="Also write the mapping: Timeloop's .yaml, or a table of loops."),
]


def map_nest(
    context: typer.Context,
    case: Annotated[
        Path, typer.Argument(metavar="CASE", help="A case as of jaxperf loopnest, or a machine such as hbm_pim.")
    ],
    bounds: Bounds = None,
    constraints: Limits = None,
    objective: Objective = "edp",
    seed: Seed = 0,
    method: Search = "evolution",
    bypass: Bypass = False,
    generations: Generations = 400,
    prove: Nodes = None,
    network: Network = None,
    size: Size = 224,
    batch: Batch = 1,
    compare: Compare = False,
    chain: Chain = None,
    fuse: Fuse = None,
    pipelined: Pipelined = False,
    out: Out = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search mappings of a loop nest for the least EDP. Or energy or cycles; and bound how far it is from the best."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.io.machines import machine_path
    from jaxperf.io.map_case import Asked
    from jaxperf.io.tables import check_output
    from jaxperf.loopnest.mapper import METHODS
    from jaxperf.loopnest.search import OBJECTIVES
    from jaxperf.report.plots import check_picture

    _check_together(set(given_options(context).values()))
    check_output(out, ENDINGS)
    check_picture(plot)
    case = machine_path(case)
    check_name("--objective", objective, OBJECTIVES)
    check_name("--method", method, tuple(METHODS))
    numbers = {"--generations": (generations, 1), "--seed": (seed, 0), "--size": (size, 1), "--batch": (batch, 1)}
    check_integers(numbers | ({} if prove is None else {"--prove": (prove, 0)}))
    nodes = prove if prove is not None else NODES if network is None else 0
    wanted = Asked(objective, seed, generations, nodes, method, bypass)
    if chain is not None:
        from jaxperf.cli.map_chain import map_chain

        map_chain(case, chain, fuse, pipelined, constraints, wanted, out, as_json, quiet)
    elif compare and network is not None:
        from jaxperf.cli.map_compare import map_compare

        map_compare(case, network, size, batch, constraints, wanted, out, as_json, quiet)
    elif network is not None:
        from jaxperf.cli.map_network import map_network

        map_network(case, network, size, batch, constraints, wanted, out, as_json, quiet)
    else:
        _map_one(case, bounds, constraints, wanted, out, plot, as_json, quiet)


def _check_together(given: set[str]) -> None:
    """Raises `InputError` for options of which one leaves nothing to do for the other."""
    for option, others in APART.items():
        for other in others:
            if {option, other} <= given:
                raise InputError(f"{other} does not go with {option}; leave one of the two away.")
    for option, needed in NEEDS.items():
        if needed not in given:
            check_without(needed, (option,), given)


def _map_one(
    case: Path,
    bounds: str | None,
    constraints: str | None,
    wanted: Asked,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """The nest of the case itself, mapped, bounded and said."""
    from jaxperf.cli.loopnest import draw_nest
    from jaxperf.cli.map_said import print_mapped
    from jaxperf.io.tables import json_text

    answer, found = _search(case, bounds, constraints, wanted, quiet)
    if answer["interrupted"] and not answer["evaluations"]:
        raise KeyboardInterrupt  # before anything was searched, so that there is nothing to say
    typer.echo(json_text(answer)) if as_json else print_mapped(answer, quiet)
    if found is not None and out is not None:
        _write(out, answer, found)
    if found is not None and plot is not None:
        draw_nest(found, answer, plot)
    if found is None:
        say_not_written(out, plot, why="no mapping that can run was found")
    if answer["interrupted"]:
        raise typer.Exit(EXIT_INTERRUPTED)
    if found is None:
        raise typer.Exit(EXIT_INFEASIBLE)


def _search(
    path: Path, bounds: str | None, given: str | None, wanted: Asked, quiet: bool
) -> tuple[dict[str, Any], Case | None]:
    """The answer as plain data, and the case with the mapping found."""
    import time

    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.map_case import best_mapping, constrained, other_bounds
    from jaxperf.io.timeloop.json_case import load_case

    start = time.perf_counter()
    case = load_case(path)
    if bounds is not None:
        case = other_bounds(case, bounds)
    case, limits = constrained(case, given)
    try:
        with progress_bar("mappings", quiet) as report:
            answer, mapped = best_mapping(case, limits, wanted, report=report)
    except InputError as error:
        raise InputError(f"{path}{'' if bounds is None else f', --bounds {bounds}'}: {error}") from None
    asked = {"case": str(path), "constraints": given, "objective": wanted.objective, "seed": wanted.seed}
    return {**asked, **answer, "seconds": time.perf_counter() - start}, mapped


def _write(out: Path, answer: dict[str, Any], case: Case) -> None:
    from jaxperf.io.tables import json_text, write_rows
    from jaxperf.io.whole_file import write_text

    if out.suffix.lower() in (".yaml", ".yml"):
        from jaxperf.io.timeloop.write import mapping_yaml

        write_text(mapping_yaml(case), out)
        return
    loops = [
        {"level": block["level"], "loop": name, "bound": bound, "kind": kind}
        for block in answer["mapping"]
        for name, bound, kind in block["loops"]
    ]
    write_rows(loops, out, {"jaxperf": json_text(answer)})
