"""The engines that `jaxperf colocate` is asked about, simulated: each alone on the device, and all sharing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxperf.cli.engines import Served, placed_in_memory, scheduler_of, step_times_of
from jaxperf.cli.fleets import requests_of
from jaxperf.cli.simulate_said import request_columns, used_options
from jaxperf.io.session_traces import SessionTrace
from jaxperf.serving.colocate.overlap import PHASES, Overlap, Timeline, mean_stretch, overlap_of, timeline_of
from jaxperf.serving.colocate.room import Need, memory_shares
from jaxperf.serving.colocate.speeds import busy_seconds, combinations, speeds_in_turns, speeds_side_by_side
from jaxperf.serving.colocate.steps import MEMORY, StepNeeds, mean_steps, step_needs
from jaxperf.serving.colocate.together import STATES, member_of, simulate_together
from jaxperf.serving.fleet.build import simulate_fleet
from jaxperf.serving.fleet.metrics import columns_of
from jaxperf.serving.simulator.cells import UTILIZATION, utilization_of
from jaxperf.serving.simulator.memory import Footprint, footprint
from jaxperf.serving.simulator.run import Simulated, simulate_requests
from jaxperf.serving.simulator.settings import without_blocks

if TYPE_CHECKING:
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.models.deployment import Deployment
    from jaxperf.models.layers import Transformer
    from jaxperf.serving.simulator.settings import Scheduler
    from jaxperf.serving.simulator.state import Log
    from jaxperf.serving.simulator.step_time import AbstractStepTime

MOST_ROUNDS, CLOSE = 8, 1e-3  # of side by side; CLOSE: of the time of a step
ONE_REPLICA = "least_outstanding"  # any routing gives everything to the only one


@dataclass(frozen=True)
class Question:
    """One engine as it is asked about: its `name`, its settings `data` from the file `where`, and its requests, with
    the columns that they have besides."""

    name: str
    data: Mapping[str, Any]
    where: str
    requests: str
    trace: RequestTrace
    options: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Engine:
    """An engine in its place: with a cache of some size, `served` on the device or a slice of it; `memory`: what it
    takes of that, and what a block; `like`: the same engine with another cache, of which the step times are."""

    question: Question
    served: Served
    scheduler: Scheduler
    deployment: Deployment
    model: Transformer
    memory: Footprint
    like: Engine | None = None

    @cached_property
    def step_times(self) -> tuple[AbstractStepTime, str]:
        """The times of its steps, and where they are from."""
        if self.like is not None:
            return self.like.step_times
        return step_times_of(None, self.scheduler, self.question.trace, self.served)

    @property
    def requests(self) -> SimpleNamespace:
        """Its requests as a simulation takes them."""
        options = used_options(self.scheduler, self.question.options)[0]
        return requests_of(self.question.trace, self.scheduler, options)

    def needs(self, run: Run) -> StepNeeds:
        """What its steps need of the device, as they were in a simulation."""
        return step_needs(self.deployment, self.model, mean_steps(run.log, run.columns))


@dataclass(frozen=True)
class Run:
    """A simulated engine: what became of the requests, `columns`; what is `found`, with an axis of one replica; and its
    `timeline`."""

    columns: Mapping[str, np.ndarray]
    found: Simulated
    timeline: Timeline

    @property
    def log(self) -> Log:
        """The runs of its steps."""
        return _of_replica(self.found.log)


@dataclass(frozen=True)
class Shared:
    """All engines sharing the device in one way: the `runs` of each; how many times as long as alone a step of each
    phase takes, `stretch` [engines, phases]; the share of the time from the first step to the last that each keeps the
    device's memory busy, `bandwidth` [engines] [1]; and `notes`."""

    engines: Sequence[Engine]
    runs: Sequence[Run]
    stretch: np.ndarray
    bandwidth: np.ndarray
    notes: tuple[str, ...] = ()


def engine_of(question: Question, served: Served, share: float | None = None, like: Engine | None = None) -> Engine:
    """An engine in its place.

    **Arguments:** `share`: of the memory, in place of what the settings say; `like`: see `Engine`.
    **Raises:** `InputError` as `scheduler_of` does.
    """
    stated = {} if share is None else {"gpu_memory_utilization": share}
    tokens = question.trace.prompt + question.trace.output
    scheduler = scheduler_of({**question.data, **stated}, served, question.where, tokens)
    placement = placed_in_memory(scheduler, served, tokens)
    deployment, model, *_ = placement
    return Engine(question, served, scheduler, deployment, model, footprint(placement), like)


def simulate_alone(engine: Engine) -> Run:
    """An engine with its device, or its slice, to itself."""
    trace, scheduler, requests = engine.question.trace, engine.scheduler, engine.requests
    if isinstance(trace, SessionTrace):
        run = simulate_fleet(scheduler, engine.step_times[0], requests, 1, ONE_REPLICA)
        return _run_of(run.found.replicas, columns_of(run.requests, trace))
    found = simulate_requests(scheduler, engine.step_times[0], [requests])
    return _run_of(found, request_columns(trace, found))


def _simulate_together(engines: Sequence[Engine], solo: Sequence[Run], speeds: np.ndarray) -> list[Run]:
    """All of them at once, by the speeds of every combination of their states [combinations, engines].

    **Arguments:** `solo`: each alone, which makes about as many steps.
    """
    members = [
        member_of(engine.scheduler, engine.step_times[0], engine.requests, int(run.found.totals.steps.sum()))
        for engine, run in zip(engines, solo, strict=True)
    ]
    found = simulate_together(members, speeds.reshape(*[STATES] * len(engines), len(engines)))
    traces = [engine.question.trace for engine in engines]
    return [_run_of(own, _with_asked(request_columns(one, own), one)) for own, one in zip(found, traces, strict=True)]


def _with_asked(columns: dict[str, np.ndarray], trace: RequestTrace) -> dict[str, np.ndarray]:
    """With when each request was asked, where that is not when the engine was."""
    asked = getattr(trace, "asked", None)
    return columns if asked is None else {**columns, "asked": asked}


def _run_of(found: Simulated, columns: Mapping[str, np.ndarray]) -> Run:
    return Run(columns, found, timeline_of(_of_replica(found.log)))


def _of_replica(tree: Any) -> Any:
    return jax.tree.map(lambda values: np.asarray(values)[0], tree)


def alone(engine: Engine) -> Shared:
    """One engine by itself."""
    run = simulate_alone(engine)
    overlap, ones = overlap_of([run.timeline]), np.ones((1, len(PHASES)))
    bandwidth = _bandwidth([engine], [run], np.ones(overlap.states.shape), overlap)
    return Shared([engine], [run], ones, bandwidth)


def in_slices(engines: Sequence[Engine], whole: Sequence[Engine]) -> Shared:
    """Every engine on a slice of its own; what it takes of the memory of a slice counts as of the whole device.

    **Arguments:** `whole`: the engines on the whole device, against which their steps are counted.
    """
    runs = [simulate_alone(engine) for engine in engines]
    slower = [
        np.asarray(own.needs(run).time / large.needs(run).time)
        for own, large, run in zip(engines, whole, runs, strict=True)
    ]
    overlap = overlap_of([run.timeline for run in runs])
    bandwidth = _bandwidth(engines, runs, np.ones(overlap.states.shape), overlap) / len(engines)
    return Shared(engines, runs, np.array(slower), bandwidth)


def in_turns(engines: Sequence[Engine], solo: Sequence[Run]) -> Shared:
    """Slices of time among the engines that have work. `solo`: each alone."""
    speeds = speeds_in_turns(combinations(len(engines)))
    return _shared(engines, _simulate_together(engines, solo, speeds), speeds)


def side_by_side(engines: Sequence[Engine], solo: Sequence[Run]) -> Shared:
    """Kernels of all engines at once, as MPS runs them.

    What steps need of the device depends on how many requests are in them, and that on how fast steps are: begun with
    the steps of each engine alone, `solo`, this is repeated until it stays.
    """
    states, shares, rounds = combinations(len(engines)), _shares(engines, solo), 0
    while True:
        rounds += 1
        speeds = speeds_side_by_side(states, shares)
        runs = _simulate_together(engines, solo, speeds)
        before, shares = shares, _shares(engines, runs)
        moved = float(np.abs(shares - before).max())
        if moved < CLOSE:
            return _shared(engines, runs, speeds)
        if rounds == MOST_ROUNDS:
            said = f"after {rounds} rounds what a step needs of the device still moved by {moved:.1%} of it"
            return dataclasses.replace(_shared(engines, runs, speeds), notes=(said,))


def _shared(engines: Sequence[Engine], runs: Sequence[Run], speeds: np.ndarray) -> Shared:
    overlap = overlap_of([run.timeline for run in runs])
    places = np.ravel_multi_index(tuple(overlap.states.T), (STATES,) * len(engines))
    met = speeds[places]
    return Shared(engines, runs, mean_stretch(overlap, met), _bandwidth(engines, runs, met, overlap))


def _bandwidth(engines: Sequence[Engine], runs: Sequence[Run], speeds: np.ndarray, overlap: Overlap) -> np.ndarray:
    """The share of the time that each engine keeps the memory busy, at its speeds in every combination [engines]."""
    if not overlap.span > 0.0:
        return np.zeros(len(engines))
    return busy_seconds(overlap.states, overlap.seconds, speeds, _shares(engines, runs))[:, MEMORY] / overlap.span


def _shares(engines: Sequence[Engine], runs: Sequence[Run]) -> np.ndarray:
    """Of every engine what its steps need of each resource [engines, phases, resources] [1]."""
    return np.stack([np.asarray(engine.needs(run).shares) for engine, run in zip(engines, runs, strict=True)])


def with_memory_divided(engines: Sequence[Engine], served: Served) -> list[Engine]:
    """The engines with caches that fit into one device together.

    **Raises:** `InputError` where they do not fit.
    """
    capacity = float(engines[0].deployment.device.memory_capacity)
    shares = memory_shares(capacity, [_need(engine, capacity) for engine in engines], UTILIZATION)
    return [engine_of(one.question, served, share, one) for one, share in zip(engines, shares, strict=True)]


def _need(engine: Engine, capacity: float) -> Need:
    """What an engine alone on the device takes of its memory, of `capacity` bytes."""
    data, numbers = engine.question.data, engine.scheduler.numbers
    fixed = engine.memory.weights + engine.memory.activations
    if not without_blocks(data):
        return Need(fixed, fixed + numbers["blocks"] * engine.memory.block)
    if data.get("gpu_memory_utilization") is None:
        return Need(fixed, None)
    return Need(fixed, capacity * utilization_of(data, engine.question.where))
