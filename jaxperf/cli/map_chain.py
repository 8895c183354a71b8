"""`jaxperf map CASE --chain CHAIN`: a chain of nests that keeps what passes between them on the chip, beside the same
nests one by one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jaxperf.cli.map_said import WORDS
from jaxperf.cli.options import EXIT_INFEASIBLE, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from rich.console import Console

    from jaxperf.io.fused_case import Task
    from jaxperf.io.map_case import Asked
    from jaxperf.loopnest.fused.mapping import Fusion


def map_chain(
    path: Path,
    given: str,
    level: str | None,
    pipelined: bool,
    constraints: str | None,
    wanted: Asked,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Both are searched with the same effort."""
    import time

    from jaxperf.io.fused_case import chain_rows, chain_task, fusion_of
    from jaxperf.io.fused_chain import read_chain
    from jaxperf.io.machines import clock_of
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.io.timeloop.json_case import load_machine

    check_output(out)
    start, clock = time.perf_counter(), clock_of(path)
    task = chain_task(*read_chain(given), load_machine(path), constraints)
    fused, unfused = _searched(task, fusion_of(task, level, pipelined), wanted, quiet)
    if fused["interrupted"] and not fused["evaluations"]:
        raise KeyboardInterrupt  # before anything was searched, so that there is nothing to say
    record = {
        "case": str(path),
        "chain": given,
        "constraints": constraints,
        "objective": wanted.objective,
        "seed": wanted.seed,
        "clock_hz": clock,
        "fused": fused,
        "unfused": unfused,
        "seconds": time.perf_counter() - start,
    }
    typer.echo(json_text(record)) if as_json else _print(record, quiet)
    if out is not None:
        write_rows(chain_rows([("fused", fused), ("unfused", unfused)]), out, {"jaxperf": json_text(record)})
    if fused["interrupted"] or unfused["interrupted"]:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not fused["feasible"]:
        raise typer.Exit(EXIT_INFEASIBLE)


def _searched(task: Task, fusion: Fusion, wanted: Asked, quiet: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers fused and one by one, which are the same where nothing is fused or the user interrupted."""
    from jaxperf.cli.progress import progress_bar
    from jaxperf.io.fused_case import best_chain
    from jaxperf.loopnest.fused.mapping import Fusion

    alone = Fusion(len(task.levels) - 1)
    with progress_bar("mappings", quiet) as report:
        fused = best_chain(task, fusion, wanted, report)
    if fused["interrupted"] or fusion == alone:
        return fused, fused
    with progress_bar("mappings, unfused", quiet) as report:
        return fused, best_chain(task, alone, wanted, report)


# --- what is said about the answer ------------------------------------------------------------------------------------


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, print_notes, table

    out = console()
    fused, unfused = record["fused"], record["unfused"]
    answers = {"fused": fused, "unfused": unfused} if fused is not unfused else {"unfused": unfused}
    rows = [
        (what, *(text(each) if each["feasible"] else "-" for each in answers.values()), _ratio(fused, unfused, number))
        for what, text, number in _lines(record)
    ]
    title = f"Fused at {fused['level']} beside one by one" if len(answers) > 1 else "One by one"
    out.print(table(title, ("", *answers, "ratio"), rows))
    for name, each in answers.items():
        if not each["feasible"]:
            out.print(f"{name}: no mapping that can run was found.")
            for why in each["rejected"]:
                out.print(f"rejected ({why['mappings']:,}): {why['reason']}", soft_wrap=True)
    if fused["feasible"]:
        _print_loops(out, fused)
    if fused["interrupted"] or unfused["interrupted"]:
        out.print("interrupted: the best until then")
    print_notes(out, fused["notes"], quiet)
    if not quiet:
        scored = sum(each["evaluations"] for each in answers.values())
        out.print(f"{scored:,} mappings scored, {record['seconds']:.1f} s with compilation", soft_wrap=True)


def _lines(record: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """What is compared: its name, its text and its number."""
    from jaxperf.report.text import quantity

    clock = record["clock_hz"]
    lines: list[tuple[str, Any, Any]] = [("cycles", lambda a: f"{a['cycles']:,.0f}", lambda a: a["cycles"])]
    if clock is not None:
        lines.append(("time", lambda a: quantity(a["cycles"] / clock, "s", 4), lambda a: a["cycles"]))
    lines += [
        ("energy", lambda a: quantity(a["energy_j"], "J", 4), lambda a: a["energy_j"]),
        ("EDP, J cycle", lambda a: f"{a['edp_j_cycle']:.5g}", lambda a: a["edp_j_cycle"]),
        ("utilization", lambda a: f"{a['utilization']:.1%}", lambda a: a["utilization"]),
    ]
    known = record["fused"] if record["fused"]["feasible"] else record["unfused"]
    for name, found in reversed(known.get("levels", {}).items()):
        lines.append((f"{name} energy", *_of_level(name, "energy_j", lambda value: quantity(value, "J", 4))))
        if found["words"]:
            lines.append((f"{name} words", *_of_level(name, "words", lambda value: f"{value:,.0f}")))
    return lines


def _of_level(name: str, field: str, text: Any) -> tuple[Any, Any]:
    return lambda a: text(a["levels"][name][field]), lambda a: a["levels"][name][field]


def _ratio(fused: dict[str, Any], unfused: dict[str, Any], number: Any) -> str:
    if not (fused["feasible"] and unfused["feasible"]) or not number(unfused):
        return "-"
    return f"{number(fused) / number(unfused):.3g}"


def _print_loops(out: Console, fused: dict[str, Any]) -> None:
    for block in fused["shared"]:
        out.print(f"shared at {block['level']}: {_loops(block['loops'])}", soft_wrap=True)
    outside = {block["level"]: [loop[0] for loop in block["loops"]] for block in fused["shared"]}
    for stage, cost in fused["stages"].items():
        for block in cost["mapping"]:
            loops = [loop for loop in block["loops"] if loop[0] not in outside.get(block["level"], ())]
            if loops:
                out.print(f"{stage} at {block['level']}: {_loops(loops)}", soft_wrap=True)


def _loops(loops: list[Any]) -> str:
    return "  ".join(f"{name} {bound}{WORDS[kind]}" for name, bound, kind in loops) or "none"
