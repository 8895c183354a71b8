"""Many replicas at once: a loop over tiles of lanes, each advanced together until its last request has ended."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwspecs.errors import InputError
from jaxperf.core.compiler_options import loops_are_quick
from jaxperf.serving.simulator.engine import advance
from jaxperf.serving.simulator.modes import WHOLE_BATCHES
from jaxperf.serving.simulator.policies import Policy
from jaxperf.serving.simulator.prefix import PrefixCache
from jaxperf.serving.simulator.settings import Scheduler
from jaxperf.serving.simulator.state import Log, Requests, Settings, Sizes, State, Totals, initial_state
from jaxperf.serving.simulator.step_time import AbstractStepTime
from jaxperf.serving.simulator.trace import OPEN, Trace, pad_traces

TILE = 64  # lanes advanced together, where each turn of a loop costs calls: more of them leave the cache of a core
SHORTEST = 64  # requests a trace is padded to: shorter ones would gain nothing from a program of their own


class Simulated(eqx.Module):
    """What came of each lane: its requests, sums over its steps, and the log of its runs."""

    requests: Requests
    totals: Totals
    log: Log
    events: Array
    cache: PrefixCache | None


@functools.partial(jax.jit, static_argnames=("policy", "sizes"))
def simulate(policy: Policy, step_time: AbstractStepTime, settings: Settings, trace: Trace, sizes: Sizes) -> Simulated:
    """Simulate lanes of requests on replicas of their own, all with one policy and one function of step times.

    The predicate of the loop is not batched: it asks whether any lane of the tile is alive. Mapping the loop over
    lanes instead would select between old and new state for each of its parts in each turn.

    **Arguments:** `settings`, `trace`: a leading axis of lanes.
    **Returns:** `Simulated` with the same leading axis. Clocks are 64-bit floats: JAX must be in 64 bits.
    """

    def tile(lanes: tuple[Settings, Trace]) -> Simulated:
        some, theirs = lanes
        return _tile(policy, step_time, some, theirs, sizes)

    return in_tiles(tile, (settings, trace), lanes_together())


def lanes_together() -> int:
    """How many lanes share a loop: one where a turn costs no calls, as lanes that are done then cost nothing."""
    return 1 if loops_are_quick() and jax.default_backend() == "cpu" else TILE


def in_tiles(function: Callable, lanes: Any, size: int) -> Any:
    """`function` of so many lanes at a time; the last tile is filled up with copies of the last lane."""
    number = jax.tree.leaves(lanes)[0].shape[0]
    size = min(size, number)
    padding = -number % size

    def tiled(values: Array) -> Array:
        whole = jnp.concatenate([values, jnp.repeat(values[-1:], padding, axis=0)])
        return whole.reshape(-1, size, *values.shape[1:])

    found = jax.lax.map(function, jax.tree.map(tiled, lanes))
    return jax.tree.map(lambda values: values.reshape(number + padding, *values.shape[2:])[:number], found)


def simulate_requests(
    scheduler: Scheduler, step_time: AbstractStepTime, shares: Sequence[Any], concurrency: int = OPEN
) -> Simulated:
    """Replicas with one scheduler, each with requests of its own, and all runs of their steps logged.

    Sizes are rounded up to powers of two, so that traces of different lengths share a compiled program.

    **Arguments:** `shares`: of each replica `arrived` [s], `prompt` and `output` [tokens], arrays of one length, in
    order of arrival, and what `pad_traces` knows besides; `concurrency`: requests that the client of each replica
    keeps under way.
    **Returns:** `Simulated` with a leading axis of replicas; the requests of each are followed by padding.
    **Raises:** `InputError` as `pad_traces` does, and for prompts brought to a scheduler that does not take them.
    """
    trace, sizes = padded(scheduler, shares, concurrency)
    while True:
        found = simulate(scheduler.policy, step_time, scheduler.arrays(len(shares)), trace, sizes)
        needed = enough(sizes, found)
        if needed == sizes:
            return jax.tree.map(np.asarray, found)
        sizes = needed


def padded(scheduler: Scheduler, shares: Sequence[Any], concurrency: int = OPEN) -> tuple[Trace, Sizes]:
    """The requests of each replica as lanes of one length, and sizes to begin with. Arguments are those of
    `simulate_requests`, and what it raises, an `InputError` for prompts that a scheduler cannot have."""
    size = power_of_two(max(SHORTEST, *(len(share.arrived) for share in shares)))
    trace = pad_traces(shares, size, concurrency)
    check_brought(scheduler, trace)
    slots = min(power_of_two(scheduler.numbers["cap"]), size)
    stages = scheduler.pipeline_parallel
    sizes = Sizes(slots=slots, log=(8 if stages == 1 else 8 * 8) * size, stages=stages)  # of pipelines every step
    sizes = sizes._replace(ahead=scheduler.ahead)
    if trace.path is not None:
        sizes = sizes._replace(nodes=power_of_two(int(trace.path.max()) + 1), groups=2 * size)
    return trace, sizes


def check_brought(scheduler: Scheduler, trace: Trace) -> None:
    """Raises `InputError` for prompts that were computed elsewhere, where the scheduler does not take such."""
    if trace.brought is None:
        return
    if scheduler.name in WHOLE_BATCHES:
        raise InputError(f"sched {scheduler.name} does not take prompts that were computed elsewhere.")
    if scheduler.ahead and trace.path is not None:
        raise InputError(
            "async_scheduling is true, prompts were computed elsewhere and prefixes are cached: of the three two are "
            "simulated together; set enable_prefix_caching to false."
        )


def enough(sizes: Sizes, found: Simulated) -> Sizes:
    """The sizes a simulation would have needed, in powers of two; the same where it had them. No log stays none."""
    runs = int(found.log.count.max()) if sizes.log else 0
    groups = 0 if found.cache is None else int(found.cache.groups.max()) - 1
    return sizes._replace(
        log=sizes.log if runs <= sizes.log else power_of_two(runs),
        groups=sizes.groups if groups <= sizes.groups else power_of_two(groups),
    )


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number` >= 1."""
    return 1 << (number - 1).bit_length()


def _tile(policy: Policy, step_time: AbstractStepTime, settings: Settings, trace: Trace, sizes: Sizes) -> Simulated:
    state = jax.vmap(lambda one, requests: initial_state(one, requests, sizes))(settings, trace)

    def alive(state: State) -> Array:
        return jnp.any(state.ended < trace.count)

    def step(state: State) -> State:
        return jax.vmap(functools.partial(advance, policy, step_time))(settings, trace, state)

    state = jax.lax.while_loop(alive, step, state)
    return Simulated(state.requests, state.totals, state.log, state.events, state.cache)
