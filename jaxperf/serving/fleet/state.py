"""What a fleet of replicas carries from turn to turn, which request comes next, and who may go on before it."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.serving.fleet.routing import Router
from jaxperf.serving.simulator.event import finished
from jaxperf.serving.simulator.policies import Policy
from jaxperf.serving.simulator.state import Settings, Sizes, State, initial_state
from jaxperf.serving.simulator.step_time import AbstractStepTime
from jaxperf.serving.simulator.trace import Trace

UNROUTED = -1


class FollowUps(eqx.Module):
    """Requests that another one brings about: request i is sent `delay` [s] after `after` has ended, -1 for none; it
    arrives at its time in the trace, at the earliest. Where `after` is rejected, i is never sent."""

    after: Int32[Array, "*lanes N"]
    delay: Float64[Array, "*lanes N"]


class Load(eqx.Module):
    """What a pool is asked: `requests` N in order of arrival, of which some may be `follow_ups`."""

    requests: Trace
    follow_ups: FollowUps | None = None


class Pool(eqx.Module):
    """Replicas alike behind one router. `replicas` take part, which is a number; there are `places` for so many at
    most, which is structure, as are the policy, the router and the lengths of arrays."""

    settings: Settings
    replicas: Int32[Array, "*lanes"]
    step_time: AbstractStepTime
    policy: Policy = eqx.field(static=True)
    router: Router = eqx.field(static=True)
    places: int = eqx.field(static=True)
    sizes: Sizes = eqx.field(static=True)


class Fleet(eqx.Module):
    """A pool at work, between two turns. `replicas` and `traces` have an axis R: the state of each and the requests
    given to it, in the order in which they were, with `given` of them; `routed`, `place`: the replica of each request N
    and its number there, `UNROUTED` before; `sent`: how many were given to any."""

    replicas: State
    traces: Trace
    given: Int32[Array, "*lanes R"]
    routed: Int32[Array, "*lanes N"]
    place: Int32[Array, "*lanes N"]
    sent: Int32[Array, "*lanes"]


class Coming(eqx.Module):
    """The next request: its number and its time of arrival, as far as it is known; infinite where there is none."""

    number: Int32[Array, ""]
    time: Float64[Array, ""]


def empty_fleet(pool: Pool, load: Load) -> Fleet:
    """Replicas without requests; each has room for all of them."""
    requests = load.requests
    nobody = dataclasses.replace(
        requests,
        prompt=jnp.ones_like(requests.prompt),
        output=jnp.ones_like(requests.output),
        path=None if requests.path is None else jnp.full_like(requests.path, -1),
        brought=None if requests.brought is None else jnp.zeros_like(requests.brought),
    )
    number = requests.arrived.shape[0]
    return Fleet(
        replicas=_repeated(initial_state(pool.settings, nobody, pool.sizes), pool.places),
        traces=_repeated(nobody, pool.places),
        given=jnp.zeros(pool.places, jnp.int32),
        routed=jnp.full(number, UNROUTED, jnp.int32),
        place=jnp.zeros(number, jnp.int32),
        sent=jnp.int32(0),
    )


def coming(load: Load, fleet: Fleet) -> Coming:
    """The earliest request that was not sent yet; the lowest number where several arrive at once."""
    requests = load.requests
    if load.follow_ups is None:
        number = jnp.minimum(fleet.sent, requests.count - 1)
        return Coming(number, jnp.where(fleet.sent < requests.count, requests.arrived[number], jnp.inf))
    after, delay = load.follow_ups.after, load.follow_ups.delay
    before = jnp.maximum(after, 0)
    done = of_requests(fleet.replicas.requests.completed, fleet)[before]
    ended = (fleet.routed[before] != UNROUTED) & (done >= 0.0)
    brought = jnp.where(ended, jnp.maximum(requests.arrived, done + delay), jnp.inf)
    known = jnp.where(after < 0, requests.arrived, brought)
    real = jnp.arange(known.shape[0], dtype=jnp.int32) < requests.count
    known = jnp.where(real & (fleet.routed == UNROUTED), known, jnp.inf)
    number = jnp.argmin(known).astype(jnp.int32)
    return Coming(number, known[number])


def due(load: Load, fleet: Fleet, time: Float64[Array, ""]) -> Bool[Array, " R"]:
    """Which replicas have something left to do before the request that comes at `time`.

    A step that begins before it is begun; what ends at that very moment has ended; the step after it sees the request.
    With follow-ups any completion may bring about an earlier one, so no replica goes beyond the earliest clock of
    those at work, and completions come first.
    """
    state = fleet.replicas
    busy = state.ended < fleet.given
    ready = busy & jnp.any(jax.vmap(finished)(state), axis=-1)
    before = busy & ((state.clock < time) | ((state.clock == time) & ready))
    if load.follow_ups is None:
        return before
    earliest = busy & (state.clock == jnp.min(jnp.where(busy, state.clock, jnp.inf)))
    ends = earliest & ready
    return before & jnp.where(jnp.any(ends), ends, earliest)


def of_requests(values: Array, fleet: Fleet) -> Array:
    """`values` [R, N] of the replicas' requests for each of the fleet's requests [N]; meaningless while unrouted."""
    return values[jnp.maximum(fleet.routed, 0), fleet.place]


def alive(load: Load, fleet: Fleet) -> Bool[Array, ""]:
    """Whether a request is still to come or to be served."""
    return jnp.isfinite(coming(load, fleet).time) | jnp.any(fleet.replicas.ended < fleet.given)


def _repeated(tree: Any, times: int) -> Any:
    return jax.tree.map(lambda values: jnp.broadcast_to(values, (times, *values.shape)), tree)
