"""The search for a serving system: every layout at every load, aggregated and in two pools, by its steady state."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.efficiency import LEVELS
from jaxperf.core.feasible import sentences
from jaxperf.core.numerics import as_float
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.serving.estimate import check_tensor_splits
from jaxperf.serving.plan_engines import Candidate, EngineFacts, engine_facts, facts_at
from jaxperf.serving.plan_points import LATENCIES, Aim, Traffic, engine_costs, pool_points, replica_points
from jaxperf.serving.plan_request import Answer, Choice, Columns, Refused, Request
from jaxperf.serving.plan_space import CAPS, SHARES, Configuration, padded, pairs, pool_splits, replica_counts
from jaxperf.serving.ranking import layouts
from jaxperf.sweeps.pareto import non_dominated

Progress = Callable[[int, int], None]
BLOCK = 256  # points of a call
MOST_DEVICES, MOST_AT_A_RATE = (
    4096,
    256,
)  # with a rate every number of engines is tried, in two pools every pair of them
ALIKE = 0.999  # of the most tokens/s/device: then the shorter E2E is better
AIMS = ("prefillers", "replicas", "slots", "budget", "share")  # what a row varies, the rate aside


def plan(
    request: Request, name: str, device: CalibratedDevice, devices: int, progress: Progress | None = None
) -> Answer:
    """Every configuration of `devices` devices, its best point under the limits, and the front of all points.

    Ctrl-C ends the search with the configurations that are done.

    **Raises:** `InputError` where the devices divide the model in no way, or are too many to try all divisions of.
    """
    most = MOST_DEVICES if request.rate is None else MOST_AT_A_RATE
    if devices > most:
        given = "" if request.rate is None else " with --rate"
        raise InputError(f"--n: {devices:,} devices are too many{given}; at most {most:,}.")
    engines = min(devices, request.largest_engine)
    candidates = [Candidate(each, weights) for each in layouts(request.model, engines) for weights in request.weights]
    check_tensor_splits(request.model, [each.layout["tensor_parallel"] for each in candidates])
    levels = engine_facts(request.model, device, candidates, request.reach, request.kv_cache, LEVELS)
    study, facts = Study(request, candidates, levels, devices), levels["nominal"]
    possible = [index for index in range(len(candidates)) if facts.reason[index] == 0 and facts.slots[index] >= 1.0]
    configurations = study.configurations(possible)
    found, interrupted = _all_points(study, configurations, progress)
    configurations, points = configurations[: len(found)], _joined(found)
    choices, refused = _verdicts(study, configurations, points)
    refused = [*_impossible(candidates, facts, possible), *refused]
    choices = sorted(choices, key=Choice.order)[: request.top]
    return Answer(
        device=name,
        devices=devices,
        candidates=candidates,
        levels=levels,
        choices=[_with_ends(study, choice) for choice in choices],
        refused=refused,
        front=_front(points),
        configurations=configurations,
        nearest=None if choices else _nearest(request, points),
        tried=len(points.get("rate", ())),
        interrupted=interrupted,
    )


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
        """The lengths of the requests."""
        prompt, output = self.request.lengths()
        return Traffic(prompt, output)

    def configurations(self, possible: Sequence[int]) -> list[Configuration]:
        """All that is tried of the possible engines."""
        modes = self.request.modes
        both = [Configuration(index) for index in possible] if "aggregated" in modes else []
        return both + (pairs(self.candidates, possible, self.devices) if "disaggregated" in modes else [])

    def caps(self, engine: int) -> list[float]:
        """Sequences that an engine may run at once, no more than it has memory for."""
        return sorted({float(int(min(cap, self.facts.slots[engine]))) for cap in CAPS})

    def shares(self) -> Sequence[float]:
        """Of what can be served; none where the rate is given."""
        return SHARES if self.request.rate is None else (0.0,)


def _all_points(
    study: Study, configurations: Sequence[Configuration], progress: Progress | None
) -> tuple[list[Columns], bool]:
    """The points of each configuration until Ctrl-C, no columns where it has none; whether it came."""
    found: list[Columns] = []
    try:
        for configuration in configurations:
            aims = _aims(study, configuration)
            found.append(evaluate(study.facts, study, configuration, aims) if len(aims["rate"]) else {})
            if progress is not None:
                progress(len(found), len(configurations))
    except KeyboardInterrupt:
        return found, True
    return found, False


def _joined(found: Sequence[Columns]) -> Columns:
    """All points one after the other, with the number of their configuration."""
    parts = [each | {"configuration": np.full(len(each["rate"]), at)} for at, each in enumerate(found) if each]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _aims(study: Study, configuration: Configuration) -> Columns:
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
    """Time of a request in a prefiller and in a decoder [s]."""
    assert configuration.prefill is not None
    places = (configuration.prefill, configuration.engine)
    budget = as_float(max(study.request.budgets))
    engines = [
        dataclasses.replace(study.candidates[place].engine, slots=as_float(study.caps(place)[-1]), budget=budget)
        for place in places
    ]
    found = [
        engine_costs(facts_at(study.facts, place).law, engine, study.traffic)
        for place, engine in zip(places, engines, strict=True)
    ]
    return float(found[0][0]), float(found[1][1])


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
    shape = study.candidates[configuration.engine].engine
    if configuration.prefill is None:
        return jax.device_get(replica_points(engine.law, shape, study.traffic, aim, level))
    prefill = facts_at(facts, configuration.prefill)
    both = (study.candidates[configuration.prefill].engine, shape)
    transfer = as_float(prefill.transfer)
    return jax.device_get(pool_points((prefill.law, engine.law), both, transfer, study.traffic, aim, level))


def _missed(request: Request, points: Columns) -> np.ndarray:
    """The largest factor by which each point misses a limit, below 1 where it keeps all [rows]."""
    factors = [points[f"{name}_at"] / limit for name, limit in request.slo.items()]
    unlimited = np.where(np.isfinite(points["ttft"]), 0.0, np.nan)
    return np.where(np.isnan(unlimited), np.inf, np.max([unlimited, *factors], axis=0))


def _verdicts(
    study: Study, configurations: Sequence[Configuration], points: Columns
) -> tuple[list[Choice], list[Refused]]:
    """The best point of each configuration, or why there is none."""
    choices, refused = [], []
    if not points:
        return choices, [Refused(each, NO_ROOM) for each in configurations]
    missed = _missed(study.request, points)
    for place, configuration in enumerate(configurations):
        rows = np.flatnonzero(points["configuration"] == place)
        kept = rows[missed[rows] <= 1.0]
        if len(kept):
            served = points["tokens_per_second_per_device"][kept]
            equal = kept[served >= ALIKE * served.max()]
            best = equal[np.argmin(points["e2e"][equal])]
            row = {name: values[best].item() for name, values in points.items()}
            choices.append(Choice(configuration, row, {}, {}, _terms(study, configuration, row), _bound(study, row)))
        else:
            refused.append(Refused(configuration, _why_not(study.request, points, rows, missed)))
    return choices, refused


NO_ROOM = "no division of the devices serves the rate"


def _why_not(request: Request, points: Columns, rows: np.ndarray, missed: np.ndarray) -> str:
    """One sentence: what the best point of a configuration fails on."""
    if not len(rows) or not np.isfinite(missed[rows]).any():
        return NO_ROOM if not len(rows) else "overloaded: it cannot serve the rate"
    best = rows[np.argmin(missed[rows])]
    failed = [
        f"{name} {points[f'{name}_at'][best] * 1e3:.3g} ms, limit {limit * 1e3:.3g} ms"
        for name, limit in request.slo.items()
        if points[f"{name}_at"][best] > limit
    ]
    return f"nearest {request.at}: {'; '.join(failed)}"


def _terms(study: Study, configuration: Configuration, row: Mapping[str, float]) -> dict[str, float]:
    """Device-seconds of a request: what its prompt and its output take, and what is idle so that limits are kept."""
    engine = study.candidates[configuration.engine].devices
    prefill = engine if configuration.prefill is None else study.candidates[configuration.prefill].devices
    used = {"prompts": prefill * row["prompts"], "outputs": engine * row["outputs"]}
    return used | {"idle": max(row["devices"] / row["rate"] - sum(used.values()), 0.0)}


def _bound(study: Study, row: Mapping[str, float]) -> str:
    """The limit that a point is nearest to; "rate" where the load is given, "load" where no limit is near."""
    if study.request.rate is not None:
        return "rate"
    factors = {name: row[f"{name}_at"] / limit for name, limit in study.request.slo.items()}
    nearest = max(factors, key=lambda name: factors[name], default="")
    return nearest if row["utilization"] < max(SHARES) - 0.01 and nearest else "load"


def _with_ends(study: Study, choice: Choice) -> Choice:
    """The choice with the interval of its latencies at the same rate."""
    levels = {level: _at_rate(study, choice, choice.row["rate"], facts) for level, facts in study.levels.items()}
    names = [*LATENCIES, *(f"{name}_at" for name in LATENCIES)]
    values = {name: [row[name] for row in levels.values()] for name in names}
    # An engine that is slower than thought may not keep up: then there is no upper end.
    lower = {name: float(np.nanmin(each)) for name, each in values.items()}
    upper = {name: float(np.max(each)) for name, each in values.items()}
    return dataclasses.replace(choice, lower=lower, upper=upper)


def _at_rate(study: Study, choice: Choice, rate: float, facts: EngineFacts) -> dict[str, float]:
    """The metrics of a choice at another rate, or with other facts."""
    row = {**choice.row, "share": 0.0, "rate": rate}
    aims = {name: np.array([row[name]]) for name in ("rate", *AIMS)}
    found = evaluate(facts, study, choice.configuration, aims)
    return {name: values[0].item() for name, values in found.items()}


def eased(study: Study, choice: Choice, factor: float) -> Choice:
    """The choice at a share `factor` of its rate."""
    row = _at_rate(study, choice, choice.row["rate"] * factor, study.facts)
    row |= {"configuration": choice.row["configuration"]}
    terms = _terms(study, choice.configuration, row)
    return _with_ends(study, dataclasses.replace(choice, row=row, terms=terms, simulated={}))


def _front(points: Columns) -> Columns:
    """The points that no other beats in both tokens/s/device and tokens/s/user, fastest for the user first."""
    if not points:
        return {}
    goals = [points[f"tokens_per_second_per_{who}"] for who in ("device", "user")]
    rows = np.flatnonzero(np.isfinite(goals[0]) & np.isfinite(goals[1]))
    rows = rows[non_dominated([-goal[rows] for goal in goals])]
    order = rows[np.argsort(-goals[1][rows])]
    return {name: values[order] for name, values in points.items()}


def _nearest(request: Request, points: Columns) -> tuple[Mapping[str, float], float] | None:
    """The point that misses the limits by least, and the factor."""
    missed = _missed(request, points) if points else np.array([])
    if not len(missed) or not np.isfinite(missed).any():
        return None
    best = int(np.argmin(missed))
    return {name: values[best].item() for name, values in points.items()}, float(missed[best])


def _impossible(candidates: Sequence[Candidate], facts: EngineFacts, possible: Sequence[int]) -> list[Refused]:
    """The engines that cannot run at all."""
    found = []
    for index in range(len(candidates)):
        if index not in possible:
            why = "; ".join(sentences(int(facts.reason[index]))) or "no memory for one sequence"
            found.append(Refused(Configuration(index), why))
    return found
