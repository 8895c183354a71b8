"""`jaxperf validate kernels [DATA...]`: the error table, everything that is called unseen held out and refitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli import processes
from jaxperf.cli.measured import NO_GPU, shared_folder

if TYPE_CHECKING:
    from calibration.datasets import KernelTable, Read

WIDTH = 130  # of the table: a narrower terminal wraps it, and no figure is cut
# The tables of single kernels in the folder of measured data; the others there hold whole steps or copies of these.
SHARED = (
    "kernels",
    "neusight/ops.parquet",
    "neusight/ops_conv.parquet",
    "llmcompass/llmcompass_measured.csv",
    "static_batch/gemm_fp8.parquet",
)
FIGURES = ("median", "mean", "p90", "roofline_median", "roofline_mean", "constant_median", "constant_mean")
NOTHING = "No cell can be evaluated: it takes usable rows of devices of at least two generations."
ErrorRows = list[dict[str, Any]]


def validate_kernels(
    data: Sequence[Path], families: Sequence[str], whole: bool, out: Path | None, as_json: bool, quiet: bool
) -> None:
    """Fit every family anew with all that is held out, and print the errors of every split.

    `whole`: only of generations held out, each by a fit as long as the one that ships.
    """
    from jaxperf.cli.measured import (
        check_families,
        problems_record,
        read_measured_tables,
        say_left_out,
        start_single_precision,
    )

    cores = processes.usable_cores()
    with processes.on_core(cores[0]):  # as `calibrate`: figures are alike on any number of cores
        start_single_precision()
        from calibration.kernels.calibrate import not_gpus
        from jaxperf.io.tables import check_output, json_text, write_rows

        check_output(out)
        check_families(families)
        reads, left_out = read_measured_tables(data or shared_tables(), families)
        if not quiet:
            say_left_out([*left_out, *(f"{name}: {NO_GPU}." for name in not_gpus(reads))])
        errors, stopped = finished(_evaluated(reads, families, whole, quiet, cores))
    if not errors:
        raise InputError(NOTHING)
    record = {
        "files": [{"file": Path(read.path).name, "rows": read.rows} for read in reads],
        "whole_folds": whole,
        "pooled": pooled_rows(errors),
        "cells": errors,
        "problems": problems_record(reads),
    }
    if out is not None:
        about = {key: record[key] for key in ("files", "whole_folds", "pooled")}
        write_rows(errors, out, {"jaxperf": json_text(about)})
    if as_json:
        typer.echo(json_text(record))
    else:
        _print(record, quiet)
    if stopped:
        there = ", ".join(dict.fromkeys(row["family"] for row in errors))
        raise KeyboardInterrupt(f"Interrupted: of the families only these were finished: {there}.")


def _evaluated(
    reads: Sequence[Read], families: Sequence[str], whole: bool, quiet: bool, cores: Sequence[int]
) -> Iterator[ErrorRows]:
    """Error rows of the families as they are finished: one in this process, several each in its own."""
    import pyarrow.parquet as pq

    from calibration.kernels.evaluate import evaluate
    from jaxperf.cli.measured import only_families, step_log

    as_asked = ["--whole-folds"] if whole else []
    own = processes.own_cores(len({table.family for read in reads for table in read.tables}), cores)
    with step_log(quiet) as progress:

        def elsewhere(tables: Mapping[str, KernelTable]) -> Iterator[ErrorRows]:
            commands = {
                name: [
                    *("validate", "kernels", *_files(only_families(reads, [name]))),
                    *("--family", name, *as_asked, "--quiet"),
                ]
                for name in processes.most_rows_first(tables.values())
            }
            for place in processes.written(commands, own, progress, NOTHING, ".parquet"):
                yield pq.read_table(place).to_pylist()

        yield from evaluate(reads, families, progress=progress, apart=elsewhere if len(own) > 1 else None, whole=whole)


def _files(reads: Sequence[Read]) -> list[str]:
    return [str(Path(read.path).resolve()) for read in reads]


def finished(families: Iterator[ErrorRows]) -> tuple[ErrorRows, bool]:
    """The rows of the families that are finished, and whether a Ctrl-C came before the last was."""
    rows: ErrorRows = []
    try:
        for found in families:
            rows += found
    except KeyboardInterrupt:
        if not rows:
            raise
        return rows, True
    return rows, False


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


def pooled_rows(errors: ErrorRows) -> ErrorRows:
    """A row a split: the unweighted mean over families and devices of the medians, ours and the two references'."""
    from calibration.kernels.card import MEDIANS, pooled

    found = []
    for split in dict.fromkeys(row["split"] for row in errors):
        whole, rows = pooled(errors, split), sum(row["rows"] for row in errors if row["split"] == split)
        found.append(
            {"split": split, **{name: whole[name] for name in MEDIANS}, "groups": whole["cells"], "rows": rows}
        )
    return found


def _print(record: dict[str, Any], quiet: bool) -> None:
    from calibration.kernels.card import MEDIANS
    from jaxperf.cli.measured import print_problems
    from jaxperf.report.text import console, number, table

    out = console()
    out.width = max(out.width, WIDTH)
    names = ("family", "format", "device", "rows", *FIGURES, "coverage90", "half_width")
    heads = ("family", "format", "device", "rows", "median", "mean", "p90", "roofline", "its mean", "constant")
    heads = (*heads, "its mean", "in 90 %", "+-90 %")
    for split in (row["split"] for row in record["pooled"]):
        rows = [cell for cell in record["cells"] if cell["split"] == split]
        cells = [tuple(cell[name] for name in names[:3]) for cell in rows]
        figures = [(f"{cell['rows']:,}", *(number(cell[name]) for name in names[4:])) for cell in rows]
        built = [(*text, *numbers) for text, numbers in zip(cells, figures, strict=True)]
        out.print(table(f"{split}: errors in percent of the measured time", heads, built))
    pooled = [
        (
            row["split"],
            *(number(row[name]) for name in MEDIANS),
            str(row["groups"]),
            f"{row['rows']:,}",
        )
        for row in record["pooled"]
    ]
    heads = ("split", "median", "roofline", "constant", "families x devices", "rows")
    out.print(table("Unweighted mean of the medians of every family on every device, in percent", heads, pooled))
    if not quiet:
        print_problems(out, record["problems"])
