"""One turn of a fleet: every replica that may go on does one micro-operation; where none may, a request is routed.

The coupling is exact: a request is routed when all replicas have done what comes before it, and nothing that does not.
Behind the last request a replica was given there always stands the one that comes next, whoever will get it, so that a
run of decodes stops at the first step that ends after its arrival, as it does for a request of the replica's own.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64

from jaxperf.serving.fleet.hits import cached_blocks
from jaxperf.serving.fleet.routing import Router, Seen, prefix_aware
from jaxperf.serving.fleet.state import Coming, Fleet, Load, Pool, coming, due
from jaxperf.serving.simulator.engine import advance
from jaxperf.serving.simulator.policies import Policy
from jaxperf.serving.simulator.policies.base import Plan, View
from jaxperf.serving.simulator.state import Settings, initial_state
from jaxperf.serving.simulator.trace import Trace


def fleet_turn(pool: Pool, load: Load, fleet: Fleet) -> Fleet:
    """The fleet after one turn; unchanged where nothing is left to come or to do."""
    time = coming(load, fleet).time
    fleet = _advanced(pool, fleet, due(load, fleet, time), time)
    following = coming(load, fleet)
    waits = jnp.any(due(load, fleet, following.time))
    return _routed(pool, load, fleet, following, jnp.isfinite(following.time) & ~waits)


@functools.cache
def coupled(policy: Policy, router: Router, places: int, follow_ups: bool) -> Policy:
    """The policy with runs of decodes cut to single steps where what happens during a run matters to others.

    That is every step where a completion elsewhere may bring about a request at any time; and with prefix-aware
    routing steps with a queue, which no arrival ends: the blocks they will take are cached until then.
    """
    if places == 1 or not (follow_ups or router is prefix_aware):
        return policy

    def single_steps(settings: Settings, view: View) -> Plan:
        plan = policy.plan(settings, view)
        longest = jnp.asarray(plan.longest, jnp.int32)
        return plan._replace(longest=jnp.where(view.arrived | follow_ups, 1, longest))

    return dataclasses.replace(policy, plan=single_steps)


def _advanced(pool: Pool, fleet: Fleet, going: Bool[Array, " R"], time: Float64[Array, ""]) -> Fleet:
    """One micro-operation of each replica that is `going`; to the others all their requests seem to have ended."""
    numbers = jnp.arange(fleet.given.shape[0], dtype=jnp.int32)
    arrived = fleet.traces.arrived.at[numbers, fleet.given].set(time, mode="drop")
    seen = jnp.where(going, fleet.given + jnp.isfinite(time).astype(jnp.int32), fleet.replicas.ended)
    traces = eqx.tree_at(lambda one: (one.arrived, one.count), fleet.traces, (arrived, seen))
    step = functools.partial(advance, pool.policy, pool.step_time, pool.settings)
    return dataclasses.replace(fleet, replicas=jax.vmap(step)(traces, fleet.replicas), traces=traces)


def _routed(pool: Pool, load: Load, fleet: Fleet, one: Coming, now: Bool[Array, ""]) -> Fleet:
    """The request given to a replica, where it is time."""
    replica = pool.router(_seen(pool, load, fleet, one))
    place = fleet.given[replica]
    to = jnp.where(now, replica, fleet.given.shape[0])
    number = jnp.where(now, one.number, fleet.routed.shape[0])

    def given(theirs: Array, ours: Array) -> Array:
        return theirs.at[to, place].set(ours[one.number], mode="drop")

    requests = load.requests
    if load.follow_ups is not None:
        requests = dataclasses.replace(requests, arrived=requests.arrived.at[one.number].set(one.time))
    columns = {name: given(theirs, getattr(requests, name)) for name, theirs in _columns(fleet.traces).items()}
    # What a replica records of a request begins as in one that had it from the start.
    fresh = initial_state(pool.settings, requests, pool.sizes).requests
    records = jax.tree.map(given, fleet.replicas.requests, fresh)
    return Fleet(
        replicas=eqx.tree_at(lambda state: state.requests, fleet.replicas, records),
        traces=dataclasses.replace(fleet.traces, **columns),
        given=fleet.given.at[to].add(1, mode="drop"),
        routed=fleet.routed.at[number].set(replica, mode="drop"),
        place=fleet.place.at[number].set(place, mode="drop"),
        sent=fleet.sent + now.astype(jnp.int32),
    )


def _seen(pool: Pool, load: Load, fleet: Fleet, one: Coming) -> Seen:
    """What the router sees when a request comes."""
    state, hits = fleet.replicas, jnp.zeros_like(fleet.given)
    if pool.router is prefix_aware and load.requests.path is not None:
        path, prompt = load.requests.path[one.number], load.requests.prompt[one.number]
        look = functools.partial(cached_blocks, pool.settings, path=path, prompt=prompt)
        hits = jax.vmap(look)(state, fleet.traces)
    live = jnp.arange(fleet.given.shape[0], dtype=jnp.int32) < pool.replicas
    return Seen(fleet.sent, live, fleet.given - state.ended, hits)


def _columns(requests: Trace) -> dict[str, Array]:
    """What a trace says of each request."""
    names = [field.name for field in dataclasses.fields(requests) if field.name not in ("count", "concurrency")]
    return {name: values for name in names if (values := getattr(requests, name)) is not None}
