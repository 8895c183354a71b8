"""The efficiencies that a plan takes, and what they leave open."""

from __future__ import annotations

from dataclasses import dataclass

from hwspecs.schema import DeviceSpec
from jaxperf.training.efficiencies import TrainingEfficiencies, assumed_training_efficiencies
from jaxperf.training.host import host_note, with_host


@dataclass(frozen=True)
class Rates:
    """What efficiencies a plan takes: `nominal`; the step's interval from `slow` and `fast` ones, or from a fitted
    half-`width` of its logarithm; the `tier` they are of, in words; what is taken of the `host`, where it matters."""

    nominal: TrainingEfficiencies
    tier: str
    slow: TrainingEfficiencies | None = None
    fast: TrainingEfficiencies | None = None
    width: float | None = None
    host: str = ""


def assumed_rates(spec: DeviceSpec | None = None) -> Rates:
    """The assumed efficiencies with their assumed ends; with what a device's `spec` tells of its host."""
    levels = {level: assumed_training_efficiencies(level) for level in ("nominal", "low", "high")}
    if spec is not None:
        levels = {level: with_host(each, spec, level) for level, each in levels.items()}
    nominal, slow, fast = levels.values()
    host = "" if spec is None else host_note(spec, nominal)
    return Rates(nominal, "assumed, not fitted (docs/training.md has their ranges)", slow, fast, host=host)
