"""The run of `jaxperf measure`: kernel after kernel, what is kept where it is stopped, and what it says at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hwspecs.errors import InputError

if TYPE_CHECKING:
    from calibration.microbench.operation import JaxDevice
    from calibration.microbench.run import Measurement, Plan

WIDTH = 90  # of the table: a narrower terminal wraps it, and no figure is cut


def run(plan: Plan, device: JaxDevice, out: Path, as_json: bool, quiet: bool) -> None:
    """Measures the points of a plan, writes table and card, and prints what there is.

    **Raises:** `InputError` where not one kernel was measured, or nothing can be written; `KeyboardInterrupt` that says
    what is kept.
    """
    from calibration.microbench.card import baseline, caches_flush, outcome
    from calibration.microbench.meter import meter_of
    from calibration.microbench.run import measure as measured
    from jaxperf.cli.progress import progress_bar

    meter = meter_of(device) if plan.meter else None
    wanted = plan.points()
    start = {"command": _command(), **baseline(plan, device, meter)}
    flush = caches_flush(plan, device)
    done: list[Measurement] = []
    stopped = None
    try:
        with progress_bar("measuring", quiet) as report:
            for each in measured(plan, wanted, device, flush, meter):
                done.append(each)
                if report:
                    report(len(done), len(wanted))
    except KeyboardInterrupt:
        stopped = "interrupted"
    if stopped is None and len(done) < len(wanted):
        stopped = "budget used up"
    rows = [each.row for each in done if each.row is not None]
    if not rows:
        if stopped == "interrupted":
            raise KeyboardInterrupt("Interrupted before the first kernel was measured; nothing is written.")
        reason = done[0].problem if done else "the budget ended before the first kernel; give a longer --budget."
        raise InputError(f"Not one kernel was measured: {reason}")
    card = start | outcome(plan, wanted, done, stopped)
    _save(rows, card, out)
    if stopped == "interrupted":
        raise KeyboardInterrupt(f"Interrupted: {len(rows)} of {len(wanted)} kernels are measured and kept in '{out}'.")
    _print(rows, card, out, as_json, quiet)


def _save(rows: Sequence[dict[str, Any]], card: dict[str, Any], out: Path) -> None:
    """Where the disk has no room for the table, it goes to standard output: it took long to measure."""
    from calibration.microbench.store import save
    from jaxperf.io.tables import write_csv

    before = out.stat() if out.exists() else None
    try:
        save(rows, card, out)
    except InputError as error:
        if out.exists() and out.stat() != before:  # the card alone is missing
            raise
        write_csv(rows, list(rows[0]), sys.stdout)
        raise InputError(f"{error} Standard output has the {len(rows)} kernels measured, as CSV.") from None


def _command() -> str:
    """The command as the card states it, with the names of files but not where they lay."""
    return shlex.join(["jaxperf", *(Path(word).name if "/" in word else word for word in sys.argv[1:])])


def _print(rows: Sequence[dict[str, Any]], card: dict[str, Any], out: Path, as_json: bool, quiet: bool) -> None:
    from calibration.microbench.store import card_path, summary
    from jaxperf.io.tables import json_text
    from jaxperf.report.text import console, table

    if as_json:
        typer.echo(json_text({"written": [str(out), str(card_path(out))], **card, "families": summary(rows)}))
        return
    screen = console()
    screen.width = max(screen.width, WIDTH)
    columns = ("family", "op", "dtype", "operands", "rows", "shortest", "longest", "spread", "median/fastest")
    cells = [
        (
            *(each[name] for name in columns[:4]),
            f"{each['rows']:,}",
            f"{each['shortest_us']:,.4g} us",
            f"{each['longest_us']:,.4g} us",
            f"{each['spread']:.0%}",
            f"{each['median_over_fastest']:.2f}",
        )
        for each in summary(rows)
    ]
    title = f"{card['kernels_measured']:,} of {card['kernels_planned']:,} kernels measured on {card['device']}"
    screen.print(table(title, columns, cells))
    if not quiet:
        floor = card["dispatch_floor_us"]
        counted = "in every time" if card["clock"] == "host" else "in no time (the device's clock)"
        screen.print(
            f"{counted}: the dispatch of a call, {floor['median']:.1f} us (fastest {floor['fastest']:.1f}); "
            f"memory streams at {card['stream_bandwidth'] / 1e9:.1f} GB/s; load {card['before']['load']} before, "
            f"{card['after']['load']} after",
            soft_wrap=True,
        )
        for sentence in (*card["problems"], *filter(None, (card["stopped"], card["collectives"]))):
            screen.print(f"note: {sentence}", soft_wrap=True)
    screen.print(f"written: {out} and {card_path(out)}", soft_wrap=True)
