"""`jaxperf validate kernels [DATA...]`: the error table, everything that is called unseen held out and refitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.measured import Families, shared_folder
from jaxperf.cli.options import AsJson, OutputFile, Quiet
from jaxperf.cli.validate_batches import validate_batches
from jaxperf.cli.validate_collectives import validate_collectives
from jaxperf.cli.validate_gemmini import validate_gemmini
from jaxperf.cli.validate_graphs import validate_graphs
from jaxperf.cli.validate_power import validate_power
from jaxperf.cli.validate_rank import validate_rank
from jaxperf.cli.validate_serving import validate_serving
from jaxperf.cli.validate_training import validate_training

if TYPE_CHECKING:
    from calibration.evaluate import Cell

WIDTH = 130  # of the table: a narrower terminal wraps it, and no figure is cut
VALIDATORS: Mapping[str, Callable[[Sequence[Path], Path | None, bool, bool], None]] = MappingProxyType(
    {
        "batches": validate_batches,
        "graphs": validate_graphs,
        "collectives": validate_collectives,
        "training": validate_training,
        "serving": validate_serving,
        "rank": validate_rank,
        "power": validate_power,
        "gemmini": validate_gemmini,
    }
)
LEVELS = ("kernels", *VALIDATORS)
# The tables of single kernels in the folder of measured data; the others there hold whole steps or copies of these.
SHARED = ("kernels", "neusight/ops.parquet", "neusight/ops_conv.parquet", "static_batch/gemm_fp8.parquet")
FIGURES = ("median", "mean", "p90", "roofline_median", "roofline_mean", "constant_median", "constant_mean")


def validate(
    level: Annotated[str, typer.Argument(metavar="LEVEL", help=f"What is validated: {', '.join(LEVELS)}.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA", help="Tables of measured kernels, or folders (default: the data beside jaxperf)."
        ),
    ] = None,
    family: Families = None,
    card: Annotated[
        bool, typer.Option("--card", help="kernels: only the table that the parameters carry, without a refit.")
    ] = False,
    params: Annotated[Path | None, typer.Option("--params", help="--card: of these parameters.")] = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Errors on devices, generations and shapes that the fit never saw, with roofline and fitted constant beside."""
    if level not in LEVELS:
        raise InputError(f"Cannot validate '{level}'; allowed: {', '.join(LEVELS)}.{did_you_mean(level, LEVELS)}")
    if level in VALIDATORS:
        if family or card or params is not None:
            raise InputError(f"--family, --card and --params go with validate kernels, not with {level}.")
        return VALIDATORS[level](data or [], out, as_json, quiet)
    if card and (data or family):
        raise InputError("--card is of parameters alone, which --params names; leave DATA and --family out.")
    if params is not None and not card:
        raise InputError("--params goes with --card; without it everything is fitted anew.")
    if card:
        from jaxperf.cli.card import show_card

        return show_card(params, out, as_json)
    from jaxperf.cli.measured import check_families, problems_record, read_measured_tables, start_single_precision

    start_single_precision()
    from calibration.evaluate import evaluate
    from jaxperf.cli.measured import step_log
    from jaxperf.io.tables import check_output, json_text, write_rows

    check_output(out)
    check_families(family or [])
    reads, left_out = read_measured_tables(data or shared_tables(), family or [])
    for sentence in left_out if not quiet else ():
        typer.echo(f"left out: {sentence}", err=True)
    with step_log(quiet) as progress:
        cells, stopped = finished(evaluate(reads, family or None, progress=progress))
    if not cells:
        raise InputError("No cell can be evaluated: it takes usable rows of devices of at least two generations.")
    record = {
        "files": [{"file": Path(read.path).name, "rows": read.rows} for read in reads],
        "pooled": pooled_rows(cells),
        "cells": cell_rows(cells),
        "problems": problems_record(reads),
    }
    if out is not None:
        write_rows(record["cells"], out, {"jaxperf": json_text({key: record[key] for key in ("files", "pooled")})})
    if as_json:
        typer.echo(json_text(record))
    else:
        _print(record, quiet)
    if stopped:
        there = ", ".join(dict.fromkeys(cell.family for cell in cells))
        raise KeyboardInterrupt(f"Interrupted: of the families only these were finished: {there}.")


def finished(families: Iterator[list[Cell]]) -> tuple[list[Cell], bool]:
    """The cells of the families that are finished, and whether a Ctrl-C came before the last was."""
    cells: list[Cell] = []
    try:
        for found in families:
            cells += found
    except KeyboardInterrupt:
        if not cells:
            raise
        return cells, True
    return cells, False


def shared_tables() -> list[Path]:
    """The tables of kernels in `JAXPERF_DATA`, or in the folder of measured data beside the project.

    **Raises:** `InputError` where there is none.
    """
    folder = shared_folder()
    found = [folder / name for name in SHARED if (folder / name).exists()]
    if not found:
        raise InputError(
            f"No measured kernels at '{folder}': give DATA files or folders, or set JAXPERF_DATA to a folder "
            f"that holds {SHARED[0]}/ or {SHARED[1]}."
        )
    return found


def cell_rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The cells as plain rows."""
    import dataclasses

    return [dataclasses.asdict(cell) for cell in cells]


def pooled_rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A row a split: the unweighted mean over families and devices of the medians, ours and the two references'."""
    import dataclasses

    from calibration.evaluate import pooled

    def of(name: str, split: str) -> float:
        return pooled([dataclasses.replace(cell, median=getattr(cell, name)) for cell in cells], split)[0]

    return [
        {
            "split": split,
            "median": of("median", split),
            "roofline_median": of("roofline_median", split),
            "constant_median": of("constant_median", split),
            "groups": pooled(cells, split)[1],
            "rows": sum(cell.rows for cell in cells if cell.split == split),
        }
        for split in dict.fromkeys(cell.split for cell in cells)
    ]


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.cli.measured import print_problems
    from jaxperf.report.text import console, number, table

    out = console()
    out.width = max(out.width, WIDTH)
    names = ("family", "format", "device", "rows", *FIGURES, "coverage90", "half_width")
    heads = ("family", "format", "device", "rows", "median", "mean", "p90", "roofline", "its mean", "constant")
    heads = (*heads, "its mean", "in 90 %", "+-90 %")
    for split in (row["split"] for row in record["pooled"]):
        rows = [cell for cell in record["cells"] if cell["split"] == split]
        cells = [tuple(cell[name] if isinstance(cell[name], str) else "" for name in names[:3]) for cell in rows]
        figures = [(f"{cell['rows']:,}", *(number(cell[name]) for name in names[4:])) for cell in rows]
        built = [(*text, *numbers) for text, numbers in zip(cells, figures, strict=True)]
        out.print(table(f"{split}: errors in percent of the measured time", heads, built))
    pooled = [
        (
            row["split"],
            *(number(row[name]) for name in ("median", "roofline_median", "constant_median")),
            str(row["groups"]),
            f"{row['rows']:,}",
        )
        for row in record["pooled"]
    ]
    heads = ("split", "median", "roofline", "constant", "families x devices", "rows")
    out.print(table("Unweighted mean of the medians of every family on every device, in percent", heads, pooled))
    if not quiet:
        print_problems(out, record["problems"])
