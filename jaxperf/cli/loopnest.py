"""`jaxperf loopnest CASE`: accesses, cycles and energy of a mapping of a loop nest, as Timeloop counts them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.maestro import ENDING, maestro_layers
from jaxperf.cli.option_checks import check_name
from jaxperf.cli.options import EXIT_INFEASIBLE, AsJson, OutputFile, Plot, Quiet, say_not_written

if TYPE_CHECKING:
    from rich.console import Console

    from jaxperf.io.timeloop.case import Case

TABLES = (".parquet", ".csv", ".csv.gz")
SHOWN = ("tile", "reads", "fills", "updates")
SHOWN_SPARSE = ("tile", "actual_reads", "gated_reads", "skipped_reads", "actual_fills", "actual_updates")

Version = Annotated[
    str | None,
    typer.Option("--timeloop", metavar="VERSION", help="Count as head, 2024 or dosa (default: as the file's writer)."),
]


def loopnest(
    case: Annotated[
        Path,
        typer.Argument(
            metavar="CASE",
            help="A case (.json, Timeloop's .yaml, MAESTRO's .m), a machine such as hbm_pim, or a table of mappings.",
        ),
    ],
    version: Version = None,
    sparse: Annotated[
        Path | None,
        typer.Option("--sparse", metavar="FILE", help="Formats, gating and skipping (sparse_optimizations, .yaml)."),
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option("--hardware", metavar="FILE", help="MAESTRO's file of the machine, for its mapping.")
    ] = None,
    out: OutputFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Cycles, energy and accesses of a mapped loop nest. Energy is by level; a table comes back with predictions."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.io.machines import machine_path
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.loopnest.reuse import RULES
    from jaxperf.report.plots import check_picture

    check_output(out)
    check_picture(plot)
    case = machine_path(case)
    if version is not None:
        check_name("--timeloop", version, tuple(RULES))
    if case.suffix.lower() == ENDING:
        _check_absent(f"{case} is MAESTRO's", {"--timeloop": version, "--sparse": sparse, "--plot": plot})
        return maestro_layers(case, hardware, out, as_json, quiet)
    if hardware is not None:
        raise InputError(f"--hardware goes with MAESTRO's mapping, FILE{ENDING}; {case} has its own machine.")
    rows = _table(case)
    if rows is None:
        given, answer = _one(case, version, sparse)
        typer.echo(json_text(answer)) if as_json else _print_case(answer, quiet)
        if out is not None:
            write_rows(_level_rows(answer), out, {"jaxperf": json_text(answer)})
        if not answer["feasible"]:
            say_not_written(plot)
            raise typer.Exit(EXIT_INFEASIBLE)
        if plot is not None:
            draw_nest(given, answer, plot)
        return
    _check_absent(f"{case} is a table", {"--sparse": sparse, "--plot": plot})
    _predict_table(case, rows, version, out, as_json)


def _check_absent(what: str, given: dict[str, Any]) -> None:
    """Raises `InputError` for options of one case where the input is something else."""
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} goes with one case, a .json or .yaml; {what}.")


def _table(path: Path) -> list[dict[str, Any]] | None:
    """The rows of a table; None where the file holds one case."""
    from jaxperf.io.timeloop.json_case import load_json
    from jaxperf.io.timeloop.tables import read_rows

    if path.name.lower().endswith(TABLES):
        return read_rows(path)
    if path.suffix.lower() != ".json":
        return None
    data = load_json(path)
    return data if isinstance(data, list) else None


def _one(path: Path, version: str | None, sparse: Path | None) -> tuple[Case, dict[str, Any]]:
    from jaxperf.io.timeloop.case import evaluate
    from jaxperf.io.timeloop.sparse_case import load_sparse_case

    case = load_sparse_case(path, sparse)
    return case, evaluate(case, version)


def draw_nest(case: Case, answer: dict[str, Any], plot: Path) -> None:
    """A picture of a case that can run: energy by level, and the roofline of its machine."""
    from jaxperf.report.nest_plots import nest_figure
    from jaxperf.report.plots import save

    title = f"{answer['energy_j'] * 1e6:,.4g} uJ in {answer['cycles']:,.0f} cycles"
    save(nest_figure(title, answer, case.architecture, case.levels), plot)


def _predict_table(
    path: Path, rows: list[dict[str, Any]], version: str | None, out: Path | None, as_json: bool
) -> None:
    from jaxperf.io.tables import json_text, write_rows
    from jaxperf.io.timeloop.tables import GEMMINI, kind_of, predict_rows, summary

    predicted = predict_rows(rows, str(path), version)
    if kind_of(rows, str(path)) is GEMMINI:
        predicted = _with_rtl(rows, predicted)
    record = {"table": str(path), "out": str(out) if out else None, **summary(rows, predicted, str(path))}
    if out is not None:
        together = [{**row, **own} for row, own in zip(rows, predicted, strict=True)]
        written = [_flat(row) for row in together] if out.suffix.lower() == ".csv" else together
        write_rows(written, out, {"jaxperf": json_text(record)})
    if as_json:
        typer.echo(json_text(record if out is not None else {**record, "predictions": predicted}))
    else:
        _print_table(record)
    if not record["predicted"]:
        raise typer.Exit(EXIT_INFEASIBLE)


def _with_rtl(rows: list[dict[str, Any]], predicted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Predictions with the cycles that Gemmini's RTL takes, where the mapping is one."""
    from calibration.gemmini.parameters import load_gemmini
    from calibration.gemmini.predict import rtl_columns

    columns = rtl_columns(rows, load_gemmini())
    return [{**own, **rtl} for own, rtl in zip(predicted, columns, strict=True)]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose objects and lists are JSON, which a cell of text can hold."""
    from jaxperf.io.tables import json_text

    return {name: json_text(cell) if isinstance(cell, dict | list) else cell for name, cell in row.items()}


def _level_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each operand of each level, with whether the mapping can run and why not."""
    runs = {"feasible": answer["feasible"], "reason": "; ".join(answer["reasons"])}
    return [
        {"level": level, "instances": found["instances"], "tensor": tensor, **counts, **runs}
        for level, found in answer["levels"].items()
        for tensor, counts in found["tensors"].items()
    ]


# --- what is said about the answer ------------------------------------------------------------------------------------


def _print_case(answer: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, print_notes, quantity, table

    out = console()
    for reason in answer["reasons"]:
        out.print(f"infeasible: {reason}", soft_wrap=True)
    shown = SHOWN_SPARSE if "operations" in answer else SHOWN
    rows = [
        (level, f"{found['instances']:,.0f}", tensor, *(f"{counts[name]:,.0f}" for name in shown), energy)
        for level, found in reversed(answer["levels"].items())
        for tensor, counts in found["tensors"].items()
        for energy in [quantity(counts["energy_j"], "J", 5)]
    ]
    columns = ("level", "instances", "tensor", *(name.replace("_", " ") for name in shown), "energy")
    out.print(table("Words of one instance; energy of all instances", columns, rows))
    if answer["feasible"]:
        _print_totals(out, answer)
    if "operations" in answer:
        counts = answer["operations"]
        counts = counts | {"never met": answer["macs"] - sum(counts.values())}
        made = "  ".join(f"{name} {count:,.0f}" for name, count in counts.items())
        out.print(f"operations {answer['macs']:,.0f}: {made}", soft_wrap=True)
    print_notes(out, answer["notes"], quiet)
    if not quiet:
        out.print(f"counted as Timeloop {answer['timeloop']} does; --timeloop follows another version", soft_wrap=True)


def _print_totals(out: Console, answer: dict[str, Any]) -> None:
    """Energy by level, and the cost of all; there is none of what cannot run."""
    from jaxperf.report.text import quantity

    total = answer["energy_j"]
    for name, found in reversed(answer["levels"].items()):
        energy = found["energy_j"]
        share = f"{energy / total:6.1%}" if total else ""
        out.print(f"{name:24s} {quantity(energy, 'J', 5):>12s}  {share}", soft_wrap=True)
    out.print(
        f"cycles {answer['cycles']:,.0f}  utilization {answer['utilization']:.2%}  limited by {answer['limiter']}\n"
        f"energy {quantity(answer['energy_j'], 'J', 5)}  {answer['energy_j'] / answer['macs'] * 1e15:,.2f} fJ/MAC"
        f"  EDP {answer['edp_j_cycle']:.4g} J cycle",
        soft_wrap=True,
    )


def _print_table(record: dict[str, Any]) -> None:
    from jaxperf.report.text import console, table

    out = console()
    columns = ("what", "rows", "equal", "within 1 %", "median", "p90", "largest")
    rows = [_error_row(each) for each in record["errors"]]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted ({record['kind']})"
    out.print(table(title, columns, rows) if rows else title)
    for each in record["reasons"]:
        out.print(f"no prediction ({each['rows']:,}): {each['reason']}", soft_wrap=True)
    if record["out"]:
        out.print(f"written: {record['out']}", soft_wrap=True)


def _error_row(each: dict[str, Any]) -> tuple[str, ...]:
    shares = [f"{each[name]:.2%}" for name in ("equal", "within_1_percent")]
    errors = [f"{each[name]:.3%}" for name in ("median", "p90", "largest")]
    return (each["column"], f"{each['rows']:,}", *shares, *errors)
