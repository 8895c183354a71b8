"""Disaggregated deployments from settings: their pools, what is sent between them, and one simulated trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64

from jaxperf.core.numerics import as_float
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.serving.fleet.build import load_of, pool_of, shares_of
from jaxperf.serving.fleet.disaggregated import Disaggregated, simulate_whole_disaggregated
from jaxperf.serving.fleet.settings import PoolSettings, PoolsSettings
from jaxperf.serving.fleet.state import Load, Pool
from jaxperf.serving.fleet.transfer import Transfer, network_link, node_link, wire_time
from jaxperf.serving.simulator.state import Requests
from jaxperf.serving.simulator.step_time import AbstractStepTime


@dataclass(frozen=True)
class ServedPool:
    """One pool with what serves it: the deployment of a replica, its step times, and in words where they are from."""

    settings: PoolSettings
    deployment: Deployment
    step_time: AbstractStepTime
    source: str = ""


@dataclass(frozen=True)
class PoolsRun:
    """One simulated trace on two pools. `requests` [N] in the order of the trace, as their client sees them; `there`:
    when the cache of each reached the decode pool, infinite where it did not [s]; of both pools the numbers of the
    requests that each replica was given, in that order, and what came of the replicas."""

    requests: Requests
    there: np.ndarray
    shares: tuple[Sequence[np.ndarray], Sequence[np.ndarray]]
    found: Disaggregated


def simulate_pools(
    settings: PoolsSettings, prefill: ServedPool, decode: ServedPool, model: Transformer, requests: Any
) -> PoolsRun:
    """One trace on a pool for prefill and one for decode, all runs of their steps logged.

    **Arguments:** `requests`: as of `build.simulate_fleet`.
    **Raises:** `InputError` as `pad_traces` and `simulate_disaggregated` do.
    """
    load = load_of([requests])
    first, second = (one_pool(served, load, logged=True) for served in (prefill, decode))
    sent = transfer_of(settings, prefill, decode, model, load)
    found = simulate_whole_disaggregated(first, second, sent, load, settings.first_token == "decode")
    whole = jax.tree.map(lambda values: np.asarray(values)[0], found)
    number = len(requests.arrived)
    crossed = int(np.isfinite(whole.there).sum())
    decoded = shares_of(whole.decode, crossed, decode.settings.replicas)
    return PoolsRun(
        requests=jax.tree.map(lambda values: values[:number], whole.requests),
        there=whole.there[:number],
        shares=(
            shares_of(whole.prefill, number, prefill.settings.replicas),
            [whole.order[numbers] for numbers in decoded],
        ),
        found=whole,
    )


def one_pool(served: ServedPool, load: Load, logged: bool = False) -> Pool:
    """The pool of one lane, as big as its settings say."""
    one = served.settings
    return pool_of(one.scheduler, served.step_time, [one.replicas], one.routing, load, logged)


def transfer_of(
    settings: PoolsSettings, prefill: ServedPool, decode: ServedPool, model: Transformer, load: Load
) -> Transfer:
    """What each prompt of a load with lanes takes on the link between the pools; its latency is the longer of two."""
    link = {"network": network_link, "node": node_link}[settings.link]
    sending, taking = link(prefill.deployment), link(decode.deployment)
    senders = as_float(prefill.settings.scheduler.tensor_parallel)

    def wire(length: Float64[Array, ""]) -> Float64[Array, ""]:
        return wire_time(decode.deployment, model, length, sending, taking, senders)

    lengths = load.requests.prompt.astype(jnp.float64)
    latency = jnp.maximum(sending.latency, taking.latency)
    return Transfer(jax.jit(jax.vmap(jax.vmap(wire)))(lengths), jnp.full(lengths.shape[0], latency))
