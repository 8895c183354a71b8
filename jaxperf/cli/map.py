"""`jaxperf map CASE`: the best mapping of a loop nest on a machine, and how far from the best possible it can be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.options import EXIT_INFEASIBLE, EXIT_INTERRUPTED, AsJson, Quiet

if TYPE_CHECKING:
    from jaxperf.io.map_case import Asked
    from jaxperf.io.timeloop_case import Case

ENDINGS = (".yaml", ".yml", ".parquet", ".csv", ".json")

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
Size = Annotated[int, typer.Option("--size", metavar="N", help="Of a network: side of its image, or tokens.")]
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Of a network: images or sequences.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="FILE", help="Also write the mapping: Timeloop's .yaml, or a table of loops."),
]


def map_nest(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="A case as of jaxperf loopnest; its mapping is unused.")],
    bounds: Bounds = None,
    constraints: Limits = None,
    objective: Objective = "edp",
    seed: Seed = 0,
    generations: Generations = 400,
    prove: Nodes = None,
    network: Network = None,
    size: Size = 224,
    batch: Batch = 1,
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search the mappings of a loop nest for the least EDP, energy or cycles, and bound how far it is from the best."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.io.map_case import Asked
    from jaxperf.io.tables import check_output, json_text
    from jaxperf.loopnest.search import OBJECTIVES

    check_output(out, ENDINGS)
    if objective not in OBJECTIVES:
        hint = did_you_mean(objective, OBJECTIVES)
        raise InputError(f"--objective: '{objective}' is not one of {', '.join(OBJECTIVES)}.{hint}")
    numbers = {"--generations": (generations, 1), "--seed": (seed, 0), "--size": (size, 1), "--batch": (batch, 1)}
    for option, (value, least) in (numbers | ({} if prove is None else {"--prove": (prove, 0)})).items():
        if not least <= value < 2**31:
            raise InputError(f"{option} is {value}; it must be an integer from {least}.")
    if out is not None and out.exists() and case.exists() and out.samefile(case):
        raise InputError(f"{out} is the input; write to another file.")
    if network is not None:
        from jaxperf.cli.map_network import map_network

        if bounds is not None:
            raise InputError("--bounds: the layers of --network have their own; leave one of the two away.")
        wanted = Asked(objective, seed, generations, prove or 0)
        return map_network(case, network, size, batch, constraints, wanted, out, as_json, quiet)
    wanted = Asked(objective, seed, generations, 1_000_000 if prove is None else prove)
    answer, found = _search(case, bounds, constraints, wanted, quiet)
    typer.echo(json_text(answer)) if as_json else _print(answer, quiet)
    if found is not None and out is not None:
        _write(out, answer, found)
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
    from jaxperf.io.timeloop import load_case

    start = time.perf_counter()
    case = load_case(path)
    if bounds is not None:
        case = other_bounds(case, bounds)
    case, limits = constrained(case, given)
    with progress_bar("mappings", quiet) as report:
        answer, mapped = best_mapping(case, limits, wanted, report=report)
    asked = {"case": str(path), "constraints": given, "objective": wanted.objective, "seed": wanted.seed}
    return {**asked, **answer, "seconds": time.perf_counter() - start}, mapped


def _write(out: Path, answer: dict[str, Any], case: Case) -> None:
    from jaxperf.io.map_case import write_text
    from jaxperf.io.tables import json_text, write_rows

    if out.suffix in (".yaml", ".yml"):
        from jaxperf.io.timeloop_write import mapping_yaml

        write_text(mapping_yaml(case), out)
        return
    loops = [
        {"level": block["level"], "loop": name, "bound": bound, "kind": kind}
        for block in answer["mapping"]
        for name, bound, kind in block["loops"]
    ]
    write_rows(loops, out, {"jaxperf": json_text(answer)})


# --- what is said about the answer ------------------------------------------------------------------------------------

WORDS = {"t": "", "x": " across X", "y": " across Y"}


def _print(answer: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, quantity, table

    out = console()
    if answer["mapping"]:
        rows = [
            (
                block["level"],
                ", ".join(block["keep"]),
                "  ".join(f"{name} {bound}{WORDS[kind]}" for name, bound, kind in block["loops"]),
                quantity(answer["levels"][block["level"]]["energy_j"], "J", 5),
            )
            for block in answer["mapping"]
        ]
        out.print(table("Best mapping, loops outermost first", ("level", "keeps", "loops", "energy"), rows))
        out.print(
            f"EDP {answer['edp_j_cycle']:.6g} J cycle  energy {quantity(answer['energy_j'], 'J', 5)}  "
            f"cycles {answer['cycles']:,.0f}  utilization {answer['utilization']:.2%}  limited by {answer['limiter']}",
            soft_wrap=True,
        )
    else:
        out.print("No mapping that can run was found.")
    if answer["gap"] is not None:
        out.print(
            f"no mapping allowed has less {answer['objective']} than {answer['bound']:.6g}: {_gap(answer)}",
            soft_wrap=True,
        )
    if answer["interrupted"]:
        out.print("interrupted: the best until then")
    if quiet and answer["mapping"]:
        return
    for note in answer.get("notes", ()):
        out.print(f"note: {note}", soft_wrap=True, markup=False)
    out.print(f"{answer['evaluations']:,} mappings scored, {answer['seconds']:.1f} s with compilation", soft_wrap=True)
    for each in answer["rejected"]:
        out.print(f"rejected ({each['mappings']:,}): {each['reason']}", soft_wrap=True, markup=False)


def _gap(answer: dict[str, Any]) -> str:
    how = "every factoring was bounded" if answer["factorings_bounded"] else "a simple bound, the space is large"
    return f"at most {answer['gap']:.2%} to gain ({how})"
