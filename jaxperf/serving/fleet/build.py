"""Pools and loads from what people write: a scheduler, its step times, a routing, and a trace of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.serving.fleet.routing import ROUTINGS, Router
from jaxperf.serving.fleet.run import SimulatedFleet, simulate_whole
from jaxperf.serving.fleet.settings import check_stages
from jaxperf.serving.fleet.state import FollowUps, Load, Pool
from jaxperf.serving.simulator.run import SHORTEST, check_brought, power_of_two
from jaxperf.serving.simulator.settings import Scheduler
from jaxperf.serving.simulator.state import Requests, Sizes
from jaxperf.serving.simulator.step_time import AbstractStepTime
from jaxperf.serving.simulator.trace import pad_traces

LOGGED = 8  # runs of steps for each request, to begin with


@dataclass(frozen=True)
class FleetRun:
    """One simulated fleet. `requests` [N] in the order of the trace, `shares`: the numbers of those that each replica
    was given, in that order; `found`: what came of the replicas, with a leading axis of them."""

    requests: Requests
    shares: Sequence[np.ndarray]
    found: SimulatedFleet


def simulate_fleet(
    scheduler: Scheduler, step_time: AbstractStepTime, requests: Any, replicas: int, routing: str
) -> FleetRun:
    """One trace on replicas behind a router, all runs of their steps logged.

    **Arguments:** `requests`: in order of arrival `arrived` [s], `prompt`, `output` [tokens], arrays of one length,
    perhaps with a `path` [requests, blocks] of nodes, and `after` and `delay` as `FollowUps` has them.
    **Raises:** `InputError` for an unknown routing and as `pad_traces` does.
    """
    load = load_of([requests])
    pool = pool_of(scheduler, step_time, [replicas], routing, load, logged=True)
    whole = jax.tree.map(lambda values: np.asarray(values)[0], simulate_whole(pool, load))
    number = len(requests.arrived)
    shares = shares_of(whole, number, replicas)
    return FleetRun(jax.tree.map(lambda values: values[:number], whole.requests), shares, whole)


def shares_of(found: SimulatedFleet, number: int, replicas: int) -> list[np.ndarray]:
    """The numbers of the requests that each replica was given, in that order; of one lane with `number` requests."""
    routed, place = found.routed[:number], found.place[:number]
    own = [np.flatnonzero(routed == replica) for replica in range(replicas)]
    return [numbers[np.argsort(place[numbers])] for numbers in own]


def load_of(traces: Sequence[Any]) -> Load:
    """Traces as lanes, padded so that such of different lengths share a compiled program.

    **Raises:** `InputError` as `pad_traces` does.
    """
    size = power_of_two(max(SHORTEST, *(len(trace.arrived) for trace in traces)))
    return Load(pad_traces(traces, size), follow_ups_of(traces, size))


def pool_of(
    scheduler: Scheduler,
    step_time: AbstractStepTime,
    replicas: Sequence[int],
    routing: str,
    load: Load,
    logged: bool = False,
) -> Pool:
    """A pool with a lane for each number of replicas, with room for the requests of the load.

    **Raises:** `InputError` for a routing that is not known, numbers of replicas below one, and pipeline stages.
    """
    check_stages(scheduler)
    if min(replicas) < 1:
        raise InputError(f"{min(replicas)} replicas cannot serve anything; there must be one at least.")
    requests = load.requests
    check_brought(scheduler, requests)
    size = requests.arrived.shape[-1]
    sizes = Sizes(slots=min(power_of_two(scheduler.numbers["cap"]), size), log=LOGGED * size if logged else 0)
    if requests.path is not None:
        sizes = sizes._replace(nodes=power_of_two(int(requests.path.max()) + 1), groups=2 * size)
    sizes = sizes._replace(ahead=scheduler.ahead)
    return Pool(
        settings=scheduler.arrays(len(replicas)),
        replicas=jnp.asarray(replicas, jnp.int32),
        step_time=step_time,
        policy=scheduler.policy,
        router=router_of(routing),
        places=max(replicas),
        sizes=sizes,
    )


def router_of(name: str) -> Router:
    """The router of that name. Raises `InputError` for an unknown one."""
    if name not in ROUTINGS:
        raise InputError(f"'{name}' is no routing.{did_you_mean(name, ROUTINGS)} Known: {', '.join(ROUTINGS)}.")
    return ROUTINGS[name]


def follow_ups_of(traces: Sequence[Any], size: int) -> FollowUps | None:
    """What follows what in traces with `after` and `delay`, padded to so many requests; None where none does."""
    if getattr(traces[0], "after", None) is None:
        return None

    def padded(name: str, fill: float) -> np.ndarray:
        rows = [np.asarray(getattr(trace, name)) for trace in traces]
        return np.stack([np.pad(row, (0, size - len(row)), constant_values=fill) for row in rows])

    return FollowUps(jnp.asarray(padded("after", -1), jnp.int32), jnp.asarray(padded("delay", 0.0), jnp.float64))
