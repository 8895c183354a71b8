"""What a sweep asks of a model, and which of its rows answer it: the best by a metric, the Pareto front of some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.metric import MetricFacts
from jaxperf.report.text import LIMITER_WORDS
from jaxperf.serving.unit_costs import ENERGY_NOTE
from jaxperf.sweeps import Axis, Pareto, Reducer, TopK

if TYPE_CHECKING:
    from jaxperf.io.sweep_file import Keep
    from jaxperf.models.config import ModelConfig

BEST_COUNT = 10
REASON = "reason"  # the metric that is 0 exactly where a point runs
LIMITER = "limiter"  # the metric that is an index into core.cost.Limiter
MOST_BITS = 31  # of a reason
ENERGIES = ("energy_per_token", "tokens_per_joule")
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
    def asking(self, metrics: tuple[str, ...]) -> Question: ...
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

    @property
    def said(self) -> list[str]:
        """The notes, with what an energy among the metrics is."""
        energy = any(name in self.study.metrics for name in ENERGIES)
        return [*self.notes, *([ENERGY_NOTE] if energy else [])]


def codes_of(study: Question) -> dict[str, dict[str, str]]:
    """What the numbers of the metrics `limiter` and `reason`, a sum of bits, mean; of those that are asked for."""
    bits = {1 << place: study.why_not(1 << place) for place in range(MOST_BITS)}
    meant = {
        LIMITER: {str(each.value): words for each, words in LIMITER_WORDS.items()},
        REASON: {str(bit): "; ".join(sentences) for bit, sentences in bits.items() if sentences},
    }
    return {name: codes for name, codes in meant.items() if name in study.metrics}


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


def check_front(reducers: Sequence[Reducer]) -> None:
    """Raises `InputError` where a sweep has no two metrics to trade, and so no Pareto picture."""
    if not reducers or not isinstance(reducers[-1], Pareto):
        raise InputError(
            "A Pareto picture needs a latency and a throughput among the metrics, and keep: all or pareto."
        )
