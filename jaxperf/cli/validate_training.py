"""`jaxperf validate training [DATA]`: training steps on what the fit never saw, utilizations of one number beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxperf.cli.validate_shared import one_table, tell

if TYPE_CHECKING:
    from calibration.training.evaluate import HeldOut

RUNS = "training/train_e2e.csv"
WHO = ("ours", "constant", "mfu_0.5", "mfu_0.4", "roofline")
FIGURES = ("mean", "median", "p90")
WIDTH = 170


def validate_training(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """The error table of training steps.

    **Arguments:** `data`: one table of measured runs; by default that of the measured data beside the project.
    """
    from jaxperf.cli.compute import start_jax

    start_jax()
    from calibration.datasets.training import read_training
    from calibration.kernels.parameters import load_parameters
    from calibration.training.evaluate import error_rows, hold_out, rank_rows, worst_groups
    from calibration.training.refit import measured_runs
    from jaxperf.cli.measured import step_log
    from jaxperf.io.tables import check_output

    check_output(out)
    path = one_table("training", data, "measured runs", RUNS)
    with step_log(quiet) as progress:
        found = hold_out(measured_runs(read_training(path)), load_parameters(), progress=progress)
    record = {
        "file": path.name,
        "rows": len(found.measured),
        "errors": error_rows(found),
        "ranks": rank_rows(found),
        "worst": worst_groups(found),
        "coverage": coverage_rows(found),
    }
    tell(record, "errors", ("ranks", "worst", "coverage"), out, as_json, quiet, _print)


def coverage_rows(found: HeldOut) -> list[dict[str, Any]]:
    """Share of the rows inside the 90 % interval of their tier, by split, widths as they are stored [1]."""
    import numpy as np

    from calibration.training.refit import training_parameters

    widths = training_parameters(found, {}).widths
    explored = found.explored
    rows = []
    for split, tier in (("group", "known"), ("source", "unseen")):
        width = np.where(explored, widths["exploratory"], widths[tier])
        rows.append({"split": split, "share": float((np.abs(found.residual(split)) <= width).mean())})
    return rows


def _print(record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    heads = ("split", "part", "rows", *(f"{who} mean / median / p90" for who in WHO))
    out.print(table("Held out: error of the measured step time", heads, [_cells(rows) for rows in _by_part(record)]))
    group = "configuration group, sequence"
    heads = (group, "layouts", "Spearman", "true times", "of step times", "regret", "pairs right")
    out.print(table("Order of layouts by device-seconds a token, group held out", heads, _rank_cells(record["ranks"])))
    if not quiet:
        worst = [(row["group"], str(row["rows"]), *(f"{row[name]:.1%}" for name in FIGURES)) for row in record["worst"]]
        out.print(table("Worst configuration groups, held out", ("group", "rows", *FIGURES), worst))
        for row in record["coverage"]:
            out.print(f"in the 90 % interval, {row['split']} held out: {row['share']:.0%}")
        out.print(
            "group: the software and device are known, the configuration is not; source: nothing of a source was seen; "
            "native: no row that Calculon models was seen (its own: mean 14.4 %, median 9.8 %). Exploratory: experts "
            "or a format below 16 bits. constant: the median utilization of the same software and format that was "
            "shown; roofline: utilization 1. Pairs right: of layouts whose measured device-seconds a token differ by "
            "more than the label noise of 5.6 %, those that are predicted in their order. True times: the "
            "correlation that these would have where a measurement scatters by 1.5 %, as patch releases show.",
            soft_wrap=True,
        )


def _rank_cells(ranks: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The groups of layouts, and their mean and median; a group whose order is not defined is left out of these."""
    import numpy as np

    names = ("spearman", "ceiling", "step_spearman", "regret")
    rows = [(row["group"], row["layouts"], [row[name] for name in names], row["right"], row["pairs"]) for row in ranks]
    if ranks:
        values = np.array([row[2] for row in rows])
        layouts, right, pairs = (sum(row[name] for row in ranks) for name in ("layouts", "right", "pairs"))
        weight = np.where(np.isnan(values), np.nan, np.array([row["layouts"] for row in ranks])[:, None])
        by_layouts = np.nansum(weight * values, axis=0) / np.nansum(weight, axis=0)
        for name, summary in (
            ("mean", np.nanmean(values, axis=0)),
            ("mean by layouts", by_layouts),
            ("median", np.nanmedian(values, axis=0)),
        ):
            rows.append((name, layouts, summary.tolist(), right, pairs))
    return [
        (name, str(layouts), f"{cost:.2f}", f"{again:.2f}", f"{step:.2f}", f"{regret:.1%}", f"{right} of {pairs}")
        for name, layouts, (cost, again, step, regret), right, pairs in rows
    ]


def _by_part(record: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of every split and part together, those of single models left out."""
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in record["errors"]:
        if row["split"] == "model" and row["part"] not in ("dense", "exploratory"):
            continue  # dozens of them; in the file
        parts.setdefault((row["split"], row["part"]), []).append(row)
    return list(parts.values())


def _cells(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    own = {row["who"]: row for row in rows}
    figures = (" / ".join(f"{own[who][name]:.1%}" for name in FIGURES) for who in WHO)
    return (rows[0]["split"], rows[0]["part"], str(rows[0]["rows"]), *figures)
