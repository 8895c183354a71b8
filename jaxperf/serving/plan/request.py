"""What a plan of a serving system is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.config import ModelConfig
from jaxperf.serving.plan.engines import Candidate, EngineFacts, Reach
from jaxperf.serving.plan.space import CAPS, Configuration
from jaxperf.serving.queueing.lengths import Lengths, lengths_as
from jaxperf.serving.simulator.settings import LARGEST

MODES = ("aggregated", "disaggregated")
TARGETS = ("ttft", "tpot", "e2e")
LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LONGEST = 2**24  # tokens

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Request:
    """What is asked: lengths are means in tokens, `spread` their coefficient of variation (0: all alike), `arrival_cv`
    that of the time between two requests (1: Poisson); `slo`: limits [s] that a share `LEVELS[at]` of the requests
    keeps; `rate`: requests a second to serve, None for as many as the devices can; `budgets` of tokens in a step that
    are tried; `ahead`: whether steps are formed while the one before is computed (`forms_ahead`)."""

    model: ModelConfig
    prompt: int
    output: int
    slo: Mapping[str, float]
    weights: Sequence[str]
    kv_cache: str = "bf16"
    spread: float = 0.0
    arrival_cv: float = 1.0
    at: str = "p90"
    rate: float | None = None
    budgets: Sequence[int] = (2048, 8192)
    modes: Sequence[str] = MODES
    top: int = 5
    largest_engine: int = 8
    ahead: bool = False

    def __post_init__(self) -> None:
        """Raises `InputError` naming what is out of range and what is allowed."""
        _choice("--at", self.at, list(LEVELS))
        if not self.modes:
            raise InputError(f"--modes: none is given; allowed: {', '.join(MODES)}.")
        for mode in self.modes:
            _choice("--modes", mode, MODES)
        if not self.possible_modes:
            raise InputError("--modes: with --output 1 a pool for outputs has nothing to make; allowed: aggregated.")
        for name, value, largest in (("--prompt", self.prompt, LONGEST), ("--output", self.output, LONGEST)):
            _within(name, value, 1, largest)
        for budget in self.budgets:
            _within("--budget", budget, max(CAPS), LARGEST)
        _within("--spread", self.spread, 0.0, 10.0)
        _within("--arrival-cv", self.arrival_cv, 0.1, 10.0)
        _within("--top", self.top, 1, 1000)
        if self.rate is not None:
            _within("--rate", self.rate, 1e-6, 1e9)

    @property
    def possible_modes(self) -> list[str]:
        """The modes that are tried; a pool for outputs needs outputs of more than the first token."""
        single = self.output == 1 and self.spread == 0.0
        return [mode for mode in self.modes if not (single and mode == "disaggregated")]

    @property
    def level(self) -> float:
        """Share of the requests that keeps the limits."""
        return LEVELS[self.at]

    @property
    def reach(self) -> Reach:
        """How far the steps of its engines go."""
        return Reach(self.prompt, self.output, max(self.budgets), max(CAPS))

    @property
    def arrival_variation(self) -> float:
        """Squared coefficient of variation of the time between two requests to the whole system."""
        return self.arrival_cv**2

    def forms_ahead(self, stages: int) -> bool:
        """Whether an engine of so many pipeline stages forms its steps ahead: with one, as the simulator does."""
        return self.ahead and stages == 1

    def lengths(self) -> tuple[Lengths, Lengths]:
        """Of prompts and outputs."""
        return tuple(lengths_as(kind) for kind in self.kinds())  # type: ignore[return-value]

    def kinds(self) -> tuple[Mapping[str, float | str], Mapping[str, float | str]]:
        """The distributions of prompts and outputs, as a workload states them."""
        if self.spread == 0.0:
            return {"kind": "fixed", "value": self.prompt}, {"kind": "fixed", "value": self.output}
        return tuple({"kind": "lognormal", "mean": mean, "cv": self.spread} for mean in (self.prompt, self.output))  # type: ignore[return-value]


@dataclass(frozen=True)
class Choice:
    """One configuration at its best point: `row`, metrics by name; `lower` and `upper` of them by what the kernels
    leave open; `terms`: device-seconds of a request by what they are for [s]; `bound`: the limit that ends its load;
    `simulated`: latencies by the simulator, where it was asked [s]."""

    configuration: Configuration
    row: Mapping[str, float]
    lower: Mapping[str, float]
    upper: Mapping[str, float]
    terms: Mapping[str, float]
    bound: str
    simulated: Mapping[str, float] = field(default_factory=dict)

    def order(self) -> tuple[float, float, float]:
        """Most requests/s of all devices first, then most tokens/s of each that is used, where a rate is asked for or
        devices are left over; of those that are equal in three digits the shortest E2E."""
        served, used = (float(f"{self.row[name]:.3g}") for name in ("rate", "tokens_per_second_per_device"))
        return -served, -used, self.row["e2e"]

    def missed(self, slo: Mapping[str, float]) -> list[str]:
        """The limits that the simulator says are not kept."""
        return [name for name, limit in slo.items() if self.simulated.get(f"{name}_at", 0.0) > limit]


@dataclass(frozen=True)
class Refused:
    """A configuration without a point that qualifies, and why."""

    configuration: Configuration
    why: str


@dataclass(frozen=True)
class Answer:
    """The plan for one device and number of them: facts of the `candidates` at the `levels` of what is fitted or
    assumed, `choices` best first, all that was `refused`, the `front` of all points in tokens/s/device and
    tokens/s/user, and the `nearest` row to the limits where no point keeps them, with the factor by which it misses
    them; `tried` points; `interrupted`: whether Ctrl-C ended it, all else then of what was done."""

    device: str
    devices: int
    candidates: Sequence[Candidate]
    levels: Mapping[str, EngineFacts]
    choices: Sequence[Choice]
    refused: Sequence[Refused]
    front: Columns
    configurations: Sequence[Configuration]
    nearest: tuple[Mapping[str, float], float] | None
    tried: int
    interrupted: bool = False

    @property
    def facts(self) -> EngineFacts:
        """Of every candidate, as fitted or assumed."""
        return self.levels["nominal"]


def _choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"{option}: unknown '{value}'; allowed: {', '.join(allowed)}.{did_you_mean(value, allowed)}")


def _within(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(f"{option}: {_exact(value)} must be from {_exact(low)} to {_exact(high)}.")


def _exact(value: float) -> str:
    """A count with all its digits, another number in a few."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
