"""What a sweep leaves behind: the rows asked for on disk, the best points and the Pareto front in words and picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jaxperf
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.metric import MetricFacts, column_units
from jaxperf.io.tables import WRITERS, check_folder_of, check_output, csv_holds, json_metadata, json_text, write_rows
from jaxperf.report.text import console, table
from jaxperf.sweeps import (
    COUNTED,
    SWEEP_KEY,
    Axis,
    Count,
    Pareto,
    Reducer,
    Selection,
    Sweep,
    TopK,
    fingerprint,
    reduce_sweep,
    require_mine,
    stream_parquet,
    write_selection,
)
from jaxperf.sweeps.files import stored_metadata

if TYPE_CHECKING:
    from rich.console import Console

    from jaxperf.io.sweep_file import Keep
    from jaxperf.models.config import ModelConfig

BEST_COUNT = 10
REASON = "reason"  # the metric that is 0 exactly where a point runs
LATENCIES = ("step_time", "tpot", "ttft", "e2e_latency")
THROUGHPUTS = ("tokens_per_second_per_device", "tokens_per_second", "tokens_per_joule")


class Question(Protocol):
    """What a sweep asks of a model: a `serving.study.Study` or a `training.study.TrainingStudy`."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def task(self) -> str: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...
    @property
    def facts(self) -> Mapping[str, MetricFacts]: ...
    @property
    def reasons(self) -> str: ...
    def why_not(self, bits: int) -> list[str]: ...
    def point(self) -> Callable[..., Mapping[str, Any]]: ...


class Origin(Protocol):
    """Where the numbers come from, in one sentence and as plain data."""

    @property
    def sentence(self) -> str: ...
    @property
    def record(self) -> Mapping[str, Any]: ...


class Prepared(NamedTuple):
    """A question with its axes, where the numbers of its answer come from, and what they assume or leave out."""

    study: Question
    axes: Sequence[Axis]
    origin: Origin
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class SweepReport:
    """A finished sweep: `selections` are the best points and the front of `reducers`, in that order; both are empty
    where no metric says which points run. `reasons`: how many points have each value of the metric `reason`, none
    where the sweep does not have it. `out`: where the rows are, none where they were not written."""

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


def reducers_of(study: Question, keep: Keep) -> list[Reducer]:
    """The best rows and the front to keep while streaming: as `keep` asks, else by the study's own metrics.

    Nothing where no metric says which points run: the best of them might be one that does not.

    **Raises:** `InputError` if `keep` names a metric the sweep does not compute or that has no better end.
    """
    directed = [name for name in study.metrics if study.facts[name].better]
    if keep.kind != "all":
        _check_kept(study, keep)
        return [_top(study, keep.metrics[0], keep.count) if keep.kind == "top" else _front(study, keep.metrics)]
    if not _feasible(study):
        return []
    throughput = next((name for name in THROUGHPUTS if name in study.metrics), directed[0] if directed else None)
    latency = next((name for name in LATENCIES if name in study.metrics), None)
    if throughput is None or latency in (None, throughput):
        return [_top(study, throughput or study.metrics[0], BEST_COUNT)]
    return [_top(study, throughput, BEST_COUNT), _front(study, (latency, throughput))]


def _check_kept(study: Question, keep: Keep) -> None:
    for name in keep.metrics:
        if name not in study.metrics:
            hint = did_you_mean(name, study.metrics)
            raise InputError(f"keep: '{name}' is not among the sweep's metrics {', '.join(study.metrics)}.{hint}")
        if study.facts[name].better is None:
            allowed = ", ".join(each for each in study.metrics if study.facts[each].better)
            raise InputError(f"keep: '{name}' has no better end; allowed: {allowed}.")
    if not _feasible(study):
        raise InputError(
            f"keep: add '{REASON}', a time or a rate to the metrics ({', '.join(study.metrics)}), so that only what "
            "runs is kept."
        )


def _feasible(study: Question) -> dict[str, str]:
    """The metric that says which points run, as a reducer takes it; empty without one.

    A time or rate is above zero exactly there and NaN elsewhere, the reason is zero there.
    """
    timed = next((name for name in study.metrics if study.facts[name].interval), None)
    if timed is not None:
        return {"where": timed}
    return {"unless": REASON} if REASON in study.metrics else {}


def _top(study: Question, metric: str, count: int) -> TopK:
    return TopK(metric, count, largest=study.facts[metric].better == "max", **_feasible(study))


def _front(study: Question, metrics: Sequence[str]) -> Pareto:
    return Pareto({name: study.facts[name].better or "min" for name in metrics}, **_feasible(study))


class Kept(NamedTuple):
    """One selection per reducer, how many rows have each `reason`, and where rows were written, if they were."""

    selections: Sequence[Selection]
    reasons: Selection | None
    out: Path | None


def write_kept(
    built: Sweep,
    asked: Prepared,
    keep: Keep,
    reducers: Sequence[Reducer],
    out: Path,
    progress: Callable[[int, int], None] | None,
    overwrite: bool,
) -> Kept:
    """Write every row (resumable) or only the selected ones.

    **Raises:** `InputError` where `out` holds something else and is not to be overwritten.
    """
    study, origin = asked.study, asked.origin
    wanted = [*reducers, *([Count(REASON)] if REASON in study.metrics else [])]
    metadata = {
        "jaxperf.version": jaxperf.__version__,
        "jaxperf.model": study.model.name,
        "jaxperf.task": study.task,
        "jaxperf.efficiencies": origin.sentence,
        "jaxperf.provenance": json_text(origin.record),
    }
    if keep.kind == "all":
        stored = stream_parquet(
            built,
            out,
            metadata=metadata,
            units=column_units(study.facts),
            progress=progress,
            reducers=wanted,
            overwrite=overwrite,
        )
        return Kept(*_apart(stored.selections, len(reducers)), out)
    mine = fingerprint(built, metadata | {"keep": str(keep)})
    if not overwrite:
        _require_same_file(out, mine)
    selections = reduce_sweep(built, wanted, progress)
    kept = selections[0]
    if not len(kept) and out.exists():
        return Kept(*_apart(selections, len(reducers)), None)
    metadata[SWEEP_KEY] = json_text(mine)
    if out.suffix.lower() == ".parquet":
        write_selection(built, kept, out, metadata=metadata, units=column_units(study.facts))
    else:
        rows, columns = _rows(built, kept), list(built.rows(kept))
        if out.suffix.lower() == ".csv" and not overwrite:
            _require_same_csv(out, rows, columns)
        write_rows(rows, out, metadata, columns)
    return Kept(*_apart(selections, len(reducers)), out)


def _require_same_file(out: Path, mine: Mapping[str, str]) -> None:
    """Refuse to replace what another sweep wrote, or no sweep, before anything is computed; a CSV does not tell."""
    if out.exists() and out.suffix.lower() != ".csv":
        stored = stored_metadata(out) if out.suffix.lower() == ".parquet" else json_metadata(out)
        require_mine(out, stored.get(SWEEP_KEY), mine)


def _require_same_csv(out: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Refuse to replace other rows; of which sweep a CSV is, its rows alone tell."""
    if out.exists() and not csv_holds(out, rows, columns):
        raise InputError(f"'{out}' holds other rows: name another path, delete it, or ask to overwrite it.")


def _apart(selections: Sequence[Selection], reducers: int) -> tuple[Sequence[Selection], Selection | None]:
    """Those of the reducers, and what was counted beside them."""
    return selections[:reducers], next(iter(selections[reducers:]), None)


def check_place(keep: Keep, out: Path) -> None:
    """Refuse a place that cannot be written before anything is computed.

    **Raises:** `InputError`.
    """
    if keep.kind != "all":
        check_output(out)
    elif out.suffix.lower() in WRITERS and out.suffix.lower() != ".parquet":
        raise InputError(f"Cannot write '{out}': all rows of a sweep go to a .parquet file or to a folder.")
    else:
        check_folder_of(out)


def sweep_record(report: SweepReport) -> dict[str, Any]:
    """Summary of a sweep as plain data, SI units."""
    return {
        "out": report.out and str(report.out),
        "points": report.sweep.plan.points,
        "axes": {one.name: one.size for one in report.sweep.axes},
        "seconds": report.seconds,
        "provenance": report.asked.origin.record,
        "notes": list(report.asked.notes),
        "best": [_rows(report.sweep, selection)[:BEST_COUNT] for selection in report.selections],
        "front_size": report.front_size,
        "infeasible": [{"points": number, "reasons": reasons} for number, reasons in report.infeasible],
    }


def _rows(sweep: Sweep, selection: Selection) -> list[dict[str, Any]]:
    columns = sweep.rows(selection)
    return [{name: column[index].item() for name, column in columns.items()} for index in range(len(selection))]


def print_sweep(report: SweepReport, quiet: bool) -> None:
    """Print where the rows are, the best points, and what the numbers rest on."""
    out = console()
    plan = report.sweep.plan
    axes = " x ".join(f"{one.size} {one.name}" for one in report.sweep.axes if one.size > 1) or "one of each axis"
    place = f" -> {report.out}" if report.out else ""
    out.print(f"{plan.points:,} points ({axes}) in {report.seconds:.1f} s{place}", soft_wrap=True)
    if report.front_size == 0:
        out.print(f"Nothing is feasible: see the column `reason` (bits of {report.asked.study.reasons}).")
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
    for sentence in report.asked.notes:
        out.print(f"note  {sentence}", soft_wrap=True)


def _print_best(report: SweepReport, out: Console) -> None:
    """The best rows; an axis of one value is said once below, not in a column."""
    rows = _rows(report.sweep, report.selections[0])[:BEST_COUNT]
    fixed = {name for one in report.sweep.axes if one.size == 1 for name in one.labels}
    hidden = {REASON, "limiter", *fixed}
    names = [name for name in rows[0] if name not in hidden and not name.endswith(("_lower", "_upper"))]
    cells = [[_cell(report, name, row[name]) for name in names] for row in rows]
    out.print(table(f"Best by {_first_metric(report)}", names, cells))
    if fixed:
        out.print(
            f"all with {', '.join(f'{name} {rows[0][name]}' for name in rows[0] if name in fixed)}", soft_wrap=True
        )


def _cell(report: SweepReport, name: str, value: Any) -> str:
    return f"{value:.4g}" if name in report.asked.study.facts and isinstance(value, float) else str(value)


def _first_metric(report: SweepReport) -> str:
    first = report.reducers[0]
    return first.metric if isinstance(first, TopK) else " and ".join(_objectives(report))


def _objectives(report: SweepReport) -> list[str]:
    last = report.reducers[-1]
    return list(last.objectives) if isinstance(last, Pareto) else [_first_metric(report)]


def check_front(reducers: Sequence[Reducer]) -> None:
    """Raises `InputError` where a sweep has no two metrics to trade, and so no Pareto picture."""
    if not reducers or not isinstance(reducers[-1], Pareto):
        raise InputError(
            "A Pareto picture needs a latency and a throughput among the metrics, and keep: all or pareto."
        )


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
