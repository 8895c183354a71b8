"""What is said of a quantity that a sweep reports: its unit, its meaning, and which end of it is better."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hwspecs.errors import InputError, did_you_mean


@dataclass(frozen=True)
class MetricFacts:
    """Unit (SI, "1" for counts), one-line meaning, whether an interval belongs to it, and which end is better."""

    unit: str
    meaning: str
    interval: bool
    better: Literal["min", "max"] | None = None


def check_metrics(task: str, metrics: Sequence[str], allowed: Collection[str]) -> None:
    """Raises `InputError` unless every metric is one that `task` can report."""
    for name in metrics:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise InputError(f"Task {task} has no metric '{name}'; allowed: {', '.join(allowed)}.{hint}")


def column_units(facts: Mapping[str, MetricFacts]) -> dict[str, str]:
    """Unit of each metric, and of `NAME_lower` and `NAME_upper` where an interval belongs to it."""
    ends = {f"{name}_{end}": each for name, each in facts.items() if each.interval for end in ("lower", "upper")}
    return {name: each.unit for name, each in {**facts, **ends}.items()}
