"""`jaxperf validate rank [DATA]`: the order of measured configurations and what the pick under a target loses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTH = 150
SPLITS = ("model", "group")
NOTE = (
    "held out: the model, or like configurations at all loads (group), were not fitted. tau: of output tokens/s/device "
    "over configurations of equal lengths, measured values within {noise:.0%} being ties. regret: the share of the "
    "best measured rate that keeps the target which the pick loses, all of it where the pick breaks the target. The "
    "pick has the most tokens of those expected to keep the target, else it is the nearest to it; random takes each "
    "alike; expected has the most of our tokens times the chance to keep the target, by the scatter of our errors in "
    "the other folds."
)


def validate_rank(data: Sequence[Path], out: Path | None, as_json: bool, quiet: bool) -> None:
    """Kendall's tau and the regret of the pick, by model and target, beside the roofline's and a random pick.

    **Arguments:** `data`: one table of measured serving; by default that of the measured data beside the project.
    """
    from jaxperf.cli.compute import start_jax

    start_jax()
    from calibration.serving.ranking import NOISE, rank_rows
    from jaxperf.cli.validate_serving import held_out
    from jaxperf.cli.validate_shared import tell

    path, found = held_out("rank", data, out, quiet, SPLITS)
    rows = [row for split in SPLITS for row in rank_rows(found, split)]
    record = {"file": path.name, "configurations": len(found.points), "noise": NOISE, "ranks": rows}
    tell(record, "ranks", ("file", "noise"), out, as_json, quiet, _print)


def _print(record: dict[str, Any], quiet: bool) -> None:
    from calibration.serving.ranking import PICKERS
    from jaxperf.report.text import console, table

    out = console()
    out.width = max(out.width, WIDTH)
    by_group: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in record["ranks"]:
        by_group.setdefault((row["split"], row["target"], row["group"]), {})[row["who"]] = row
    heads = (
        "held out",
        "target",
        "model",
        "lengths",
        "rows",
        "tau ours / roofline",
        "median regret ours",
        *PICKERS[1:],
    )
    cells = [(*key, *_cells(own)) for key, own in by_group.items()]
    out.print(table("Order of configurations by tokens/s/device, and the regret of the pick", heads, cells))
    if not quiet:
        out.print(NOTE.format(noise=record["noise"]), soft_wrap=True)


def _cells(own: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    from calibration.serving.ranking import PICKERS

    ours, line = own[PICKERS[0]], own[PICKERS[1]]
    regrets = (f"{own[who]['median']:.1%}" for who in PICKERS)
    return (str(ours["groups"]), str(ours["configurations"]), f"{ours['tau']:.2f} / {line['tau']:.2f}", *regrets)
