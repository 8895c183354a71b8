"""Prefill and decode on pools of their own: prompts are computed here, their cache is sent there, and decoded.

Nothing flows back, so the pools are simulated one after the other: the prefill pool makes one token of every request
and forgets it; its cache waits for the replica's link (`transfer`); the decode pool gets a request when its cache is
there, and routes it then. Blocks of the prefill pool are free at the end of the prompt, not of the transfer.

The first token is the prefill's and is told at once (DistServe: Zhong et al., OSDI 2024; Splitwise: Patel et al., ISCA
2024), or the decode's, which computes the last token of the prompt again (vLLM's KV connectors behind a proxy).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from hwspecs.errors import InputError
from jaxperf.serving.fleet.run import SimulatedFleet, simulate_fleets
from jaxperf.serving.fleet.state import Load, Pool
from jaxperf.serving.fleet.transfer import Transfer, arrivals
from jaxperf.serving.simulator.run import enough
from jaxperf.serving.simulator.state import Requests, Status
from jaxperf.serving.simulator.trace import Trace


class Disaggregated(eqx.Module):
    """What came of each lane: its `requests` N, as their client sees them; `there`: when the cache of each was at the
    decode pool, infinite where it did not cross [s]; the two pools, of which `decode` has the requests that crossed in
    the `order` of getting there."""

    requests: Requests
    there: Float64[Array, "*lanes N"]
    order: Int32[Array, "*lanes N"]
    prefill: SimulatedFleet
    decode: SimulatedFleet


def simulate_whole_disaggregated(
    prefill: Pool, decode: Pool, transfer: Transfer, load: Load, first_from_decode: bool = False
) -> Disaggregated:
    """As `simulate_disaggregated`, with arrays as long as `run.simulate_whole` makes them."""
    while True:
        found = simulate_disaggregated(prefill, decode, transfer, load, first_from_decode)
        sizes = (enough(prefill.sizes, found.prefill.replicas), enough(decode.sizes, found.decode.replicas))
        if sizes == (prefill.sizes, decode.sizes):
            return found
        prefill, decode = (
            dataclasses.replace(pool, sizes=size) for pool, size in zip((prefill, decode), sizes, strict=True)
        )


@functools.partial(jax.jit, static_argnames="first_from_decode")
def simulate_disaggregated(
    prefill: Pool, decode: Pool, transfer: Transfer, load: Load, first_from_decode: bool = False
) -> Disaggregated:
    """Simulate lanes of disaggregated deployments.

    **Arguments:** all with a leading axis of lanes, but for the functions of step times; `first_from_decode`: whether
    the decode pool makes the first token. A trace's prefix cache is that of the prefill pool.
    **Raises:** `InputError` for follow-ups: what decodes would bring back to the prefill pool.
    """
    if load.follow_ups is not None:
        raise InputError("requests that follow others are not simulated on pools for prefill and decode.")
    asked = load.requests
    first = simulate_fleets(prefill, Load(dataclasses.replace(asked, output=jnp.ones_like(asked.output))))
    crosses = (first.requests.status == Status.COMPLETED) & (first_from_decode | (asked.output > 1))
    places = functools.partial(arrivals, senders=prefill.places)
    there = jax.vmap(places)(transfer, first.requests.completed, first.routed, crosses)
    order = jnp.argsort(there, axis=-1).astype(jnp.int32)
    second = simulate_fleets(
        decode, Load(jax.vmap(_crossed)(asked, there, order, asked.prompt - int(first_from_decode)))
    )
    merge = functools.partial(_merged, first_from_decode=first_from_decode)
    requests = jax.vmap(merge)(first.requests, second.requests, order, crosses)
    return Disaggregated(requests, there, order, first, second)


def _crossed(
    asked: Trace, there: Float64[Array, " N"], order: Int32[Array, " N"], brought: Int32[Array, " N"]
) -> Trace:
    """What the decode pool is asked: the requests that crossed, as their caches get there."""
    return Trace(
        arrived=there[order],
        prompt=asked.prompt[order],
        output=asked.output[order],
        count=jnp.sum(jnp.isfinite(there), dtype=jnp.int32),
        concurrency=asked.concurrency,
        brought=brought[order],
    )


def _merged(
    first: Requests, second: Requests, order: Int32[Array, " N"], crosses: Bool[Array, " N"], first_from_decode: bool
) -> Requests:
    """Requests as their client sees them."""
    later = jax.tree.map(lambda values: jnp.zeros_like(values).at[order].set(values), second)
    last = jax.tree.map(
        lambda here, there: jnp.where(crosses, there, here),
        *({name: getattr(one, name) for name in ("status", "completed")} for one in (first, later)),
    )
    return dataclasses.replace(
        first,
        **last,
        first_token=jnp.where(crosses, later.first_token, -1.0) if first_from_decode else first.first_token,
        restarts=first.restarts + jnp.where(crosses, later.restarts, 0),
        swaps=_in_both(first.swaps, later.swaps, crosses),
    )


def _in_both(first: Int32[Array, " N"] | None, later: Int32[Array, " N"] | None, crosses: Bool[Array, " N"]) -> Any:
    """What was counted in both pools [N], None where neither counts."""
    if later is None:
        return first
    return jnp.where(crosses, later, 0) + (0 if first is None else first)
