"""The points of a plan: one engine layout, or a pair of them in two pools, at many loads in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.serving.queueing.arrivals import float_or_none, split_variation
from jaxperf.serving.queueing.engine import Engine, Load, chunked
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.lengths import Lengths
from jaxperf.serving.queueing.open_loop import SteadyQueue, steady_state
from jaxperf.serving.queueing.pools import (
    Pools,
    Sending,
    SteadyPools,
    no_prompts,
    pool_loads,
    pools_percentile,
    steady_pools,
)
from jaxperf.serving.queueing.saturated import request_cost
from jaxperf.serving.queueing.tail import percentile

Columns = dict[str, Array]
LATENCIES = ("ttft", "tpot", "e2e")


class Traffic(eqx.Module):
    """Lengths of `prompt` and `output`; `variation`: squared coefficient of variation of the time between arrivals [1],
    None for Poisson's."""

    prompt: Lengths
    output: Lengths
    variation: Float[Array, ""] | None = eqx.field(converter=float_or_none, default=None)

    def at(self, rate: Scalar | float, engines: Scalar | float = 1.0) -> Load:
        """So many requests of these lengths a second at each of the `engines`, which are given them at random."""
        variation = None if self.variation is None else split_variation(self.variation, engines)
        return Load(rate, self.prompt, self.output, variation)


class Aim(eqx.Module):
    """One row of a call: the `share` of what can be served, or where that is 0 the `rate` over all engines [1/s];
    engines that make outputs (`replicas`), and that make prompts only (`prefillers`, 0 where there are none) [1];
    `slots` of an engine and its `budget` of tokens in a step [1]."""

    share: Float[Array, " rows"]
    rate: Float[Array, " rows"]
    replicas: Float[Array, " rows"]
    prefillers: Float[Array, " rows"]
    slots: Float[Array, " rows"]
    budget: Float[Array, " rows"]

    def engine(self, engine: Engine) -> Engine:
        """An engine with the row's slots and budget."""
        return dataclasses.replace(engine, slots=self.slots, budget=self.budget)


@jax.jit
def engine_costs(law: StepLaw, engine: Engine, traffic: Traffic) -> tuple[Scalar, Scalar]:
    """Time of a request in an engine that makes prompts only, and in one that makes outputs only [s]."""
    at_once = Sending(as_float(0.0), as_float(0.0))
    prompts, outputs = pool_loads(traffic.at(1.0), Pools(1.0, 1.0, at_once))
    return request_cost(chunked, law, prompts, engine), request_cost(no_prompts, law, outputs, engine)


@jax.jit
def replica_points(law: StepLaw, engine: Engine, traffic: Traffic, aims: Aim, level: Scalar | float) -> Columns:
    """Engines that do both, each with an equal share of the requests.

    **Returns:** columns of every aim: `rate` over all engines [1/s], mean latencies and those at `level` (named
    `ttft_at` ...) [s], `batch` of an engine [1], `utilization` [1], and the engine's time of a request by what it is
    for, `prompts` and `outputs` [s].
    """

    def point(aim: Aim) -> Columns:
        own = aim.engine(engine)
        cost = request_cost(chunked, law, traffic.at(1.0), own)
        load = traffic.at(jnp.where(aim.share > 0.0, aim.share / cost, aim.rate / aim.replicas), aim.replicas)
        state = steady_state(chunked, law, load, own)
        prompts = jnp.minimum(state.prefill.packed / own.ways, cost)
        return {
            "rate": load.rate * aim.replicas,
            **_latencies(state, percentile(state, load, level)),
            "batch": state.batch,
            "utilization": state.utilization,
            "prompts": prompts,
            "outputs": cost - prompts,
        }

    return jax.vmap(point)(aims)


@jax.jit
def pool_points(
    laws: tuple[StepLaw, StepLaw],
    engines: tuple[Engine, Engine],
    sending: Sending,
    traffic: Traffic,
    aims: Aim,
    level: Scalar | float,
) -> Columns:
    """Engines for prompts and engines for outputs, `sending` caches from one to the other; columns as of
    `replica_points`, the times of a request each in its own pool."""

    def point(aim: Aim) -> Columns:
        own = (aim.engine(engines[0]), aim.engine(engines[1]))
        pools = Pools(aim.prefillers, aim.replicas, sending)
        prompts, outputs = engine_costs(laws[0], own[0], traffic)[0], engine_costs(laws[1], own[1], traffic)[1]
        most = jnp.minimum(aim.prefillers / jnp.maximum(prompts, sending.wire), aim.replicas / outputs)
        load = traffic.at(jnp.where(aim.share > 0.0, aim.share * most, aim.rate))
        state = steady_pools(chunked, laws, load, own, pools)
        return {
            "rate": load.rate,
            **_latencies(state, pools_percentile(state, load, pools, level)),
            "batch": state.decode.batch,
            "utilization": state.utilization,
            "prompts": prompts,
            "outputs": outputs,
        }

    return jax.vmap(point)(aims)


def _latencies(state: SteadyQueue | SteadyPools, at: Mapping[str, Scalar]) -> Columns:
    means = {name: getattr(state, name) for name in LATENCIES}
    return means | {f"{name}_at": at[name] for name in LATENCIES}
