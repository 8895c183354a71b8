"""What a sweep leaves behind, in words and picture: where its rows are, the best points and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxperf.core.cost import Limiter
from jaxperf.report.sweep_question import BEST_COUNT, LIMITER, REASON, Prepared, codes_of
from jaxperf.report.sweep_rows import rows_of
from jaxperf.report.text import LIMITER_WORDS, console, counted, table
from jaxperf.sweeps import COUNTED, Pareto, Reducer, Selection, Sweep, TopK

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class SweepReport:
    """A finished sweep: `selections` are the best points and the front of `reducers`, in that order; both are empty
    where no metric says which points run. `reasons`: how many points have each value of the metric `reason`, none
    where the sweep does not have it and something runs. `out`: where the rows are, none where they were not written."""

    asked: Prepared
    sweep: Sweep
    reducers: Sequence[Reducer]
    selections: Sequence[Selection]
    reasons: Selection | None
    out: Path | None
    seconds: float

    @property
    def infeasible(self) -> list[tuple[int, list[str]]]:
        """How many points do not run for the same reasons, and these; the most first."""
        if self.reasons is None:
            return []
        bits, rows = (self.reasons.metrics[name].tolist() for name in (REASON, COUNTED))
        found = [(number, self.asked.study.why_not(each)) for each, number in zip(bits, rows, strict=True) if each]
        return sorted(found, key=lambda entry: -entry[0])

    @property
    def front_size(self) -> int | None:
        """Points on the front (or among the best, where one metric decides); 0 where nothing is feasible, None where
        no metric says what is."""
        return len(self.selections[-1]) if self.selections else None


def sweep_record(report: SweepReport) -> dict[str, Any]:
    """Summary of a sweep as plain data, SI units."""
    return {
        "out": report.out and str(report.out),
        "points": report.sweep.plan.points,
        "axes": {one.name: one.size for one in report.sweep.axes},
        "seconds": report.seconds,
        "provenance": report.asked.origin.record,
        "notes": report.asked.said,
        "codes": codes_of(report.asked.study),
        "best": [rows_of(report.sweep, selection)[:BEST_COUNT] for selection in report.selections],
        "front_size": report.front_size,
        "infeasible": [{"points": number, "reasons": reasons} for number, reasons in report.infeasible],
    }


def print_sweep(report: SweepReport, quiet: bool) -> None:
    """Print where the rows are, the best points, and what the numbers rest on."""
    out = console()
    plan = report.sweep.plan
    axes = " x ".join(f"{one.size} {one.name}" for one in report.sweep.axes if one.size > 1) or "one of each axis"
    place = f" -> {report.out}" if report.out else ""
    out.print(f"{counted(plan.points, 'point')} ({axes}) in {report.seconds:.1f} s{place}", soft_wrap=True)
    if report.front_size == 0:
        column = f": see the column `{REASON}` (bits of {report.asked.study.reasons})"
        out.print(f"Nothing is feasible{column if report.out and REASON in report.asked.study.metrics else ''}.")
    if report.infeasible and not quiet:
        for number, reasons in report.infeasible:
            out.print(f"{number:,} of {plan.points:,} points do not run: {'; '.join(reasons)}", soft_wrap=True)
    if report.front_size == 0:
        return
    if quiet:
        return
    if report.front_size is None:
        asked = ", ".join(report.asked.study.metrics)
        out.print(
            f"No best points: none of the metrics ({asked}) says which points run; add '{REASON}', a time or a rate.",
            soft_wrap=True,
        )
    else:
        _print_best(report, out)
    if len(report.selections) > 1:
        out.print(f"{report.front_size:,} points on the Pareto front of {' and '.join(_objectives(report))}")
    out.print(f"from  {report.asked.origin.sentence}", soft_wrap=True)
    for sentence in report.asked.said:
        out.print(f"note  {sentence}", soft_wrap=True)


def _print_best(report: SweepReport, out: Console) -> None:
    """The best rows; an axis of one value is said once below, not in a column."""
    rows = rows_of(report.sweep, report.selections[0])[:BEST_COUNT]
    fixed = {name for one in report.sweep.axes if one.size == 1 for name in one.labels}
    hidden = {REASON, *fixed}
    names = [name for name in rows[0] if name not in hidden and not name.endswith(("_lower", "_upper"))]
    cells = [[_cell(report, name, row[name]) for name in names] for row in rows]
    out.print(table(f"Best by {_first_metric(report)}", names, cells))
    if fixed:
        out.print(
            f"all with {', '.join(f'{name} {rows[0][name]}' for name in rows[0] if name in fixed)}", soft_wrap=True
        )


def _cell(report: SweepReport, name: str, value: Any) -> str:
    if name == LIMITER:
        return LIMITER_WORDS[Limiter(value)]
    return f"{value:.4g}" if name in report.asked.study.facts and isinstance(value, float) else str(value)


def _first_metric(report: SweepReport) -> str:
    first = report.reducers[0]
    return first.metric if isinstance(first, TopK) else " and ".join(_objectives(report))


def _objectives(report: SweepReport) -> list[str]:
    last = report.reducers[-1]
    return list(last.objectives) if isinstance(last, Pareto) else [_first_metric(report)]


def draw_front(report: SweepReport, path: Path) -> None:
    """The Pareto picture of the front's first two metrics."""
    from jaxperf.report.plots import pareto_figure, save

    study, objectives = report.asked.study, _objectives(report)
    columns = report.sweep.rows(report.selections[-1])
    x, y = objectives[:2]
    labels = [str(name) for name in columns.get("device", [""] * len(report.selections[-1]))]
    title = f"{study.model.name} {study.task}: {report.sweep.plan.points:,} points, Pareto front"
    axis_names = [f"{name} [{study.facts[name].unit}]" for name in (x, y)]
    save(pareto_figure(title, labels, columns[x], columns[y], *axis_names), path)
