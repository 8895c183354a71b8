"""The points of a search: which rows are tried of a configuration, and what each of them costs in steady state."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jaxperf.core.numerics import as_float
from jaxperf.serving.plan.engines import Candidate, EngineFacts, facts_at, sending
from jaxperf.serving.plan.points import Aim, Traffic, engine_costs, pool_points, replica_points
from jaxperf.serving.plan.request import Columns, Request
from jaxperf.serving.plan.space import CAPS, SHARES, Configuration, padded, pairs, pool_splits, replica_counts
from jaxperf.serving.queueing.engine import Engine

BLOCK = 256  # points of a call
AIMS = ("prefillers", "replicas", "slots", "budget", "share")  # what a row varies, the rate aside


@dataclasses.dataclass(frozen=True)
class Study:
    """A search: what is asked, of which `candidates` with what facts at each level, on how many devices."""

    request: Request
    candidates: Sequence[Candidate]
    levels: Mapping[str, EngineFacts]
    devices: int

    @property
    def facts(self) -> EngineFacts:
        """As fitted or assumed."""
        return self.levels["nominal"]

    @functools.cached_property
    def traffic(self) -> Traffic:
        """The lengths of the requests, and how even their arrivals are."""
        variation = self.request.arrival_variation
        return Traffic(*self.request.lengths(), None if variation == 1.0 else variation)

    def configurations(self, possible: Sequence[int]) -> list[Configuration]:
        """All that is tried of the possible engines."""
        modes = self.request.possible_modes
        both = [Configuration(index) for index in possible] if "aggregated" in modes else []
        return both + (pairs(self.candidates, possible, self.devices) if "disaggregated" in modes else [])

    def engine(self, place: int) -> Engine:
        """The engine of a candidate, without slots and budget."""
        shape = self.candidates[place].engine
        return dataclasses.replace(shape, ahead=float(self.request.forms_ahead(int(shape.stages))))

    def caps(self, engine: int) -> list[float]:
        """Sequences that an engine may run at once, no more than it has memory for."""
        return sorted({float(int(min(cap, self.facts.slots[engine]))) for cap in CAPS})

    def shares(self) -> Sequence[float]:
        """Of what can be served; none where the rate is given."""
        return SHARES if self.request.rate is None else (0.0,)


def aims_of(study: Study, configuration: Configuration) -> Columns:
    """The rows that are tried of one configuration."""
    request, engine = study.request, configuration.engine
    each = study.candidates[engine].devices
    if configuration.prefill is None:
        splits = [(0, count) for count in replica_counts(study.devices, each, request.rate)]
        caps = study.caps(engine)
    else:
        costs = _pool_costs(study, configuration)
        pool = study.candidates[configuration.prefill].devices, each
        splits, caps = pool_splits(study.devices, pool, costs, request.rate), study.caps(engine)[-1:]
    tried = itertools.product(splits, caps, request.budgets, study.shares())
    rows = [(*split, cap, budget, share) for split, cap, budget, share in tried]
    columns = dict(zip(AIMS, np.array(rows, float).reshape(-1, len(AIMS)).T, strict=True))
    return columns | {"rate": np.full(len(rows), request.rate or 0.0)}


def _pool_costs(study: Study, configuration: Configuration) -> tuple[float, float]:
    """Time of a request in a prefiller, on its link if that is longer, and in a decoder [s]."""
    assert configuration.prefill is not None
    places = (configuration.prefill, configuration.engine)
    budget = as_float(max(study.request.budgets))
    engines = [
        dataclasses.replace(study.engine(place), slots=as_float(study.caps(place)[-1]), budget=budget)
        for place in places
    ]
    found = [
        engine_costs(facts_at(study.facts, place).law, engine, study.traffic)
        for place, engine in zip(places, engines, strict=True)
    ]
    wire = sending(*(facts_at(study.facts, place) for place in places)).wire
    return max(float(found[0][0]), float(wire)), float(found[1][1])


def evaluate(facts: EngineFacts, study: Study, configuration: Configuration, aims: Columns) -> Columns:
    """Metrics of every aim of a configuration, with what follows from the number of devices."""
    rows = len(aims["rate"])
    parts = [_points(facts, study, configuration, padded(aims, start, BLOCK)) for start in range(0, rows, BLOCK)]
    columns = {name: np.concatenate([part[name] for part in parts])[:rows] for name in parts[0]}
    prefill = configuration.prefill
    each = 0 if prefill is None else study.candidates[prefill].devices
    devices = aims["replicas"] * study.candidates[configuration.engine].devices + aims["prefillers"] * each
    tokens = columns["rate"] * float(study.traffic.output.mean)
    stable = np.isfinite(columns["tpot"]) | (float(study.traffic.output.mean) <= 1.0)
    return columns | {
        "replicas": aims["replicas"],
        "prefillers": aims["prefillers"],
        "slots": aims["slots"],
        "budget": aims["budget"],
        "devices": devices,
        "tokens_per_second": tokens,
        "tokens_per_second_per_device": np.where(stable, tokens / devices, np.nan),
        "tokens_per_second_per_user": 1.0 / np.where(columns["tpot"] > 0.0, columns["tpot"], np.nan),
    }


def _points(facts: EngineFacts, study: Study, configuration: Configuration, aims: Columns) -> Columns:
    """One block of points: all calls of a mode share a compiled program."""
    aim = Aim(**{name: as_float(values) for name, values in aims.items()})
    engine, level = facts_at(facts, configuration.engine), study.request.level
    shape = study.engine(configuration.engine)
    if configuration.prefill is None:
        return jax.device_get(replica_points(engine.law, shape, study.traffic, aim, level))
    prefill = facts_at(facts, configuration.prefill)
    both = (study.engine(configuration.prefill), shape)
    sent = jax.tree.map(as_float, sending(prefill, engine))
    return jax.device_get(pool_points((prefill.law, engine.law), both, sent, study.traffic, aim, level))
