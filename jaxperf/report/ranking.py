"""A ranking as text and rows: the winner of each device, why the order is as it is, and who does not qualify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxperf.core.device import stand_in_of
from jaxperf.core.formats import FORMATS
from jaxperf.models.config import ModelConfig
from jaxperf.report.text import (
    console,
    interval,
    layout_words,
    limiter_words,
    milliseconds,
    number,
    table,
)
from jaxperf.serving.explain import Explanation, limiter_shares
from jaxperf.serving.notes import notes_of_many
from jaxperf.serving.provenance import Provenance
from jaxperf.serving.ranking import OBJECTIVES, Ranking
from jaxperf.serving.unit_costs import ENERGY_NOTE

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

RANK_METRICS = (
    "ttft",
    "tpot",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "tokens_per_joule",
    "memory_share",
    "num_devices",
)

PER_JOULE, PER_DOLLAR = "tokens/J", "tokens/$"  # of OBJECTIVES
MOST_REASONS = 12  # sentences about devices that are not ranked; above it they are only named


@dataclass(frozen=True)
class RankingReport:
    """A ranking with what it was asked of; `explained` holds one explanation per ranked device, in order; `origin` is
    where the numbers of all devices asked about come from."""

    model: ModelConfig
    specs: Mapping[str, DeviceSpec]
    fixed: Mapping[str, Any]
    targets: Mapping[str, float]
    ranking: Ranking
    explained: Sequence[Explanation]
    origin: Provenance

    @property
    def targets_text(self) -> str:
        """The targets in words."""
        words = [f"{name.upper()} <= {milliseconds(limit)} ms" for name, limit in self.targets.items()]
        return " and ".join(words) or "no latency target"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row a ranked device, best first."""
        return ranking_rows(self)

    @property
    def notes(self) -> list[str]:
        """Fallbacks of the devices that are ranked, and what is assumed or left out of the model."""
        weights, cache = [self.fixed["weights"]], [self.fixed["kv_cache"]]
        ranked = [self.specs[entry.device] for entry in self.ranking.ranked]
        ranks = max((int(entry.point["tensor_parallel"]) for entry in self.ranking.ranked), default=1)
        energy = [ENERGY_NOTE] if self.ranking.objective == PER_JOULE else []
        return [*notes_of_many(self.model, ranked, weights, cache, ranks=ranks), *_capped(self.ranking), *energy]

    @property
    def provenance(self) -> dict[str, Any]:
        """What the numbers rest on."""
        return {
            "model": self.model.name,
            "fixed": dict(self.fixed),
            "targets_seconds": dict(self.targets),
            "objective": self.ranking.objective,
            "points": self.ranking.points,
            **self.origin.record,
            "notes": self.notes,
            "not_ranked": {entry.device: entry.why for entry in self.ranking.rejected},
        }


def score_interval(report: RankingReport, index: int) -> tuple[float, float]:
    """Low and high end of one device's score, in units of the objective."""
    entry, metrics = report.ranking.ranked[index], report.explained[index].metrics
    metric = OBJECTIVES[report.ranking.objective]
    scale = entry.score / float(metrics[metric])
    return float(metrics[f"{metric}_lower"]) * scale, float(metrics[f"{metric}_upper"]) * scale


def ranking_rows(report: RankingReport) -> list[dict[str, Any]]:
    """One row a ranked device, SI units, interval ends beside each metric."""
    rows = []
    for index, (entry, explanation) in enumerate(zip(report.ranking.ranked, report.explained, strict=True)):
        lower, upper = score_interval(report, index)
        shares = limiter_shares(explanation, "decode")
        rows.append(
            {
                "rank": index + 1,
                "device": entry.device,
                "score": entry.score,
                "score_lower": lower,
                "score_upper": upper,
                **dict(entry.point),
                **{name: float(value) for name, value in explanation.metrics.items()},
                "limited_by": limiter_words(shares, 1),
                "weights_multiplied_in": multiplied_in(report, entry.device),
                **{f"tier_{family}": tier for family, tier in report.origin.tiers[entry.device].items()},
            }
        )
    return rows


def multiplied_in(report: RankingReport, device: str) -> str:
    """The arithmetic the weights really use on a device: their own, or its stand-in."""
    compute = FORMATS[report.fixed["weights"]].compute
    return stand_in_of(report.specs[device], compute) or compute


def print_ranking(report: RankingReport, quiet: bool) -> None:
    """Print the ranking as text."""
    out = console()
    fixed = report.fixed
    title = (
        f"{report.model.name} by {report.ranking.objective}: {fixed['prompt']} tokens in, {fixed['output']} out, "
        f"weights {fixed['weights']}, {report.targets_text}"
    )
    columns = ("#", "device", report.ranking.objective, "range", "TTFT ms", "TPOT ms", "range", "replica", "batch")
    rows = [_cells(report, index) for index in range(len(report.ranking.ranked))]
    out.print(table(title, (*columns, "memory", "kernels", "decode limited by"), rows) if rows else f"{title}: none")
    if quiet and rows:
        return
    for sentence in _not_ranked(report):
        out.print(f"not ranked  {sentence}", soft_wrap=True)
    if quiet:
        return
    if len(report.ranking.ranked) > 1:
        out.print(f"why         {why_first(report)}", soft_wrap=True)
    for sentence in report.notes:
        out.print(f"note        {sentence}", soft_wrap=True)
    out.print(f"from        {report.ranking.points:,} configurations; {report.origin.sentence}", soft_wrap=True)
    out.print("            steady state of one replica: no queueing, no interference between prefill and decode")


def _capped(ranking: Ranking) -> list[str]:
    """One note where the largest batch that was tried is the best: a larger one may be better still."""
    names = [entry.device for entry in ranking.ranked if int(entry.point["batch"]) == ranking.max_batch]
    if not names:
        return []
    words = "the best batch is the largest considered, more may be better with a larger --max-batch"
    return [f"{words}: {', '.join(names)}"]


def _not_ranked(report: RankingReport) -> list[str]:
    """One sentence a device with why it is not ranked; many are only named, their reasons are in the JSON."""
    rejected = report.ranking.rejected
    if len(rejected) <= MOST_REASONS:
        return [f"{entry.device}: {entry.why}" for entry in rejected]
    names = ", ".join(entry.device for entry in rejected)
    return [f"{len(rejected)} devices, each with its reason in --json: {names}"]


def _cells(report: RankingReport, index: int) -> tuple[str, ...]:
    entry, explanation = report.ranking.ranked[index], report.explained[index]
    metrics = {name: float(value) for name, value in explanation.metrics.items()}
    return (
        str(index + 1),
        entry.device,
        number(entry.score),
        interval(*score_interval(report, index)),
        milliseconds(metrics["ttft"]),
        milliseconds(metrics["tpot"]),
        interval(metrics["tpot_lower"], metrics["tpot_upper"], 1e3),
        f"{int(metrics['num_devices'])} x {layout_words(dict(entry.point))}",
        str(entry.point["batch"]),
        f"{metrics['memory_share']:.0%}",
        report.origin.least(entry.device),
        limiter_words(limiter_shares(explanation, "decode"), 2),
    )


def why_first(report: RankingReport) -> str:
    """One sentence: what the first device has over the second, and whether the intervals decide it."""
    first, second = (report.ranking.ranked[i].device for i in range(2))
    ratio = report.ranking.ranked[0].score / report.ranking.ranked[1].score
    a, b = report.specs[first], report.specs[second]
    facts = _rate_and_price(report) if report.ranking.objective == PER_DOLLAR else {}
    facts |= {
        "memory bandwidth": a.memory_bandwidth.si / b.memory_bandwidth.si,
        "memory": a.memory_capacity.si / b.memory_capacity.si,
        "TDP": a.tdp.si / b.tdp.si,
    }
    compute = multiplied_in(report, first)
    if compute in a.peak_flops and compute in b.peak_flops:
        facts[f"{compute} peak"] = a.peak_flops[compute].si / b.peak_flops[compute].si
    words = ", ".join(f"{value:.2f} x the {name}" for name, value in facts.items())
    tiers = [report.origin.least(device) for device in (first, second)]
    told = f"; its kernels are of the {tiers[0]} tier, those of {second} of the {tiers[1]} tier"
    uneven = told if tiers[0] != tiers[1] else ""
    if score_interval(report, 0)[0] < score_interval(report, 1)[1]:
        doubt = "; the ranges overlap, so the order of close devices is not certain"
    else:
        doubt = ""
    return f"{first} gives {ratio:.2f} x {second}: it has {words}{uneven}{doubt}."


def _rate_and_price(report: RankingReport) -> dict[str, float]:
    """How the first device compares with the second in what a device gives, and in what one costs."""
    rates = [float(each.metrics[OBJECTIVES[PER_DOLLAR]]) for each in report.explained[:2]]
    prices = [rate / entry.score for rate, entry in zip(rates, report.ranking.ranked, strict=False)]
    return {"tokens/s/device": rates[0] / rates[1], "price": prices[0] / prices[1]}
