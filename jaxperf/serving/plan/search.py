"""The search for a serving system: every layout at every load, aggregated and in two pools, by its steady state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.efficiency import LEVELS
from jaxperf.core.sustained import CalibratedDevice
from jaxperf.serving.estimate import check_tensor_splits
from jaxperf.serving.plan.engines import Candidate, EngineFacts, engine_facts
from jaxperf.serving.plan.points import LATENCIES
from jaxperf.serving.plan.request import Answer, Choice, Columns, Request
from jaxperf.serving.plan.space import SHARES, Configuration
from jaxperf.serving.plan.study import AIMS, Study, aims_of, evaluate
from jaxperf.serving.plan.verdicts import front_of, impossible, nearest, terms_of, verdicts
from jaxperf.serving.ranking import layouts

Progress = Callable[[int, int], None]
MOST_DEVICES = 4096
FINER = 30  # loads between two of `SHARES` that the best are tried at
MOST_AT_A_RATE = 256  # where every number of engines is tried, in two pools every pair of them


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
    choices, refused = verdicts(study, configurations, points)
    refused = [*impossible(candidates, facts, possible), *refused]
    choices = sorted(_filled_up(study, choices), key=Choice.order)[: request.top]
    return Answer(
        device=name,
        devices=devices,
        candidates=candidates,
        levels=levels,
        choices=[_with_ends(study, choice) for choice in choices],
        refused=refused,
        front=front_of(points),
        configurations=configurations,
        nearest=None if choices else nearest(request, points),
        tried=len(points.get("rate", ())),
        interrupted=interrupted,
    )


def _all_points(
    study: Study, configurations: Sequence[Configuration], progress: Progress | None
) -> tuple[list[Columns], bool]:
    """The points of each configuration until Ctrl-C, no columns where it has none; whether it came."""
    found: list[Columns] = []
    try:
        for configuration in configurations:
            aims = aims_of(study, configuration)
            found.append(evaluate(study.facts, study, configuration, aims) if len(aims["rate"]) else {})
            if progress is not None:
                progress(len(found), len(configurations))
    except KeyboardInterrupt:
        return found, True
    return found, False


def _filled_up(study: Study, choices: Sequence[Choice]) -> list[Choice]:
    """The choices with those that may be shown at the largest load that keeps the limits, between the one that was
    tried and the next."""
    if study.request.rate is not None or not choices:
        return list(choices)
    served = sorted((choice.row["rate"] for choice in choices), reverse=True)
    least = served[: study.request.top][-1]
    return [
        _filled(study, choice) if choice.row["rate"] * _room(choice) > least and _room(choice) > 1.0 else choice
        for choice in choices
    ]


def _room(choice: Choice) -> float:
    """The next load over the choice's own, 1 at the largest that is tried [1]."""
    used = choice.row["utilization"]
    return max(min(used + SHARES[0], SHARES[-1]) / used, 1.0)


def _filled(study: Study, choice: Choice) -> Choice:
    rates = choice.row["rate"] * np.linspace(1.0, _room(choice), FINER, endpoint=False)
    row = {**choice.row, "share": 0.0}
    aims = {name: np.full(FINER, row[name]) for name in AIMS} | {"rate": rates}
    points = evaluate(study.facts, study, choice.configuration, aims)
    found, _ = verdicts(study, [choice.configuration], points | {"configuration": np.zeros(FINER, int)})
    if not found:
        return choice
    return dataclasses.replace(found[0], row={**found[0].row, "configuration": choice.row["configuration"]})


def _joined(found: Sequence[Columns]) -> Columns:
    """All points one after the other, with the number of their configuration."""
    parts = [each | {"configuration": np.full(len(each["rate"]), at)} for at, each in enumerate(found) if each]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _with_ends(study: Study, choice: Choice) -> Choice:
    """The choice with the interval of its latencies at the same rate."""
    levels = {level: _at_rate(study, choice, choice.row["rate"], facts) for level, facts in study.levels.items()}
    names = [*LATENCIES, *(f"{name}_at" for name in LATENCIES)]
    values = {name: [row[name] for row in levels.values()] for name in names}
    # An engine that is slower than thought may not keep up: then there is no upper end.
    lower = {name: float(np.fmin.reduce(each)) for name, each in values.items()}
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
    terms = terms_of(study, choice.configuration, row)
    return _with_ends(study, dataclasses.replace(choice, row=row, terms=terms, simulated={}))
