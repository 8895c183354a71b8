"""Steady state of disaggregated serving: a pool of engines for prompts, another for outputs, the cache sent between.

Two queues in tandem (Splitwise, ISCA 2024; DistServe, OSDI 2024). Requests are given to the engines of a pool in turn,
which makes arrivals at each more even: c_a^2 / engines. An output is asked for at the rate of the prompts.

    ttft = ttft_prefill + transfer,     e2e = ttft + decode,     utilization = the largest of pools and link

An engine sends one cache after the other: with w on its link for each prompt, rho = rate w / prefillers of the time it
is busy, and a cache that comes at random waits rho w (1 + c_w^2) / (2 (1 - rho)) for it (Pollaczek and Khinchine; less
where prompts end one by one, further apart than w).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.serving.queueing.engine import Discipline, Engine, Last, Load, Prefill
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.lengths import Lengths
from jaxperf.serving.queueing.line import Company
from jaxperf.serving.queueing.open_loop import SteadyQueue, steady_state
from jaxperf.serving.queueing.tail import first_token, first_token_tail, per_token_tail, solved, whole_tail


class Sending(NamedTuple):
    """The mean prompt's cache on its way: `wire`, how long it keeps the sender's link busy, and `latency` [s]."""

    wire: Scalar
    latency: Scalar


class Pools(eqx.Module):
    """`prefillers`, `decoders`: engines of each pool [1]; `sending` from one to the other."""

    prefillers: Float[Array, "*batch"] = eqx.field(converter=as_float)
    decoders: Float[Array, "*batch"] = eqx.field(converter=as_float)
    sending: Sending


class SteadyPools(eqx.Module):
    """`prefill`, `decode`: the steady state of an engine of each pool; `transfer`: until a cache is there [s]; `link`:
    share of the time that the link of a prefiller is busy [1]."""

    prefill: SteadyQueue
    decode: SteadyQueue
    transfer: Float[Array, "*batch"]
    link: Float[Array, "*batch"]

    @property
    def ttft(self) -> Float[Array, "*batch"]:
        """Mean time to first token, the cache sent [s]."""
        return self.prefill.ttft + self.transfer

    @property
    def tpot(self) -> Float[Array, "*batch"]:
        """Mean time per token after the first, NaN where the link does not keep up [s]."""
        return jnp.where(self.link < 1.0, self.decode.tpot, jnp.nan)

    @property
    def e2e(self) -> Float[Array, "*batch"]:
        """Mean time of a request [s]."""
        return self.ttft + self.decode.e2e

    @property
    def utilization(self) -> Float[Array, "*batch"]:
        """That of the busier pool, or of the link [1]."""
        return jnp.maximum(jnp.maximum(self.prefill.utilization, self.decode.utilization), self.link)

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """Whether both pools and the link can serve the rate."""
        return self.prefill.stable & self.decode.stable & (self.link < 1.0)


def steady_pools(
    discipline: Discipline, laws: tuple[StepLaw, StepLaw], load: Load, engines: tuple[Engine, Engine], pools: Pools
) -> SteadyPools:
    """The steady state of both pools.

    **Arguments:** `laws`, `engines`: of a prefiller and of a decoder; `load`: over all of them.
    **Returns:** `SteadyPools` of scalars.
    """
    prompts, outputs = pool_loads(load, pools)
    busy = prompts.rate * pools.sending.wire
    return SteadyPools(
        steady_state(discipline, laws[0], prompts, engines[0]),
        steady_state(no_prompts, laws[1], outputs, engines[1]),
        transfer_time(pools.sending, load.prompt, busy),
        busy,
    )


def transfer_time(sending: Sending, prompt: Lengths, busy: Scalar) -> Scalar:
    """Mean time from the end of a prompt until its cache is there, where the link is `busy` for that share of the time;
    NaN where it does not keep up [s]. A cache grows with its prompt."""
    keeps_up = busy < 1.0
    wait = 0.5 * busy * sending.wire * prompt.square / prompt.mean**2 / jnp.where(keeps_up, 1.0 - busy, 1.0)
    return jnp.where(keeps_up, wait + sending.wire + sending.latency, jnp.nan)


def pool_loads(load: Load, pools: Pools) -> tuple[Load, Load]:
    """What an engine of each pool is asked: prompts that make one token, and the outputs."""
    one = Lengths(jnp.ones_like(load.output.tokens), load.output.share, jnp.zeros_like(load.output.tokens))
    prompts = dataclasses.replace(
        load, rate=load.rate / pools.prefillers, output=one, variation=load.unevenness / pools.prefillers
    )
    return prompts, dataclasses.replace(
        load, rate=load.rate / pools.decoders, variation=load.unevenness / pools.decoders
    )


def no_prompts(
    law: StepLaw,
    load: Load,
    engine: Engine,
    decodes: Scalar,
    step: Scalar,
    company: Company,
    ready: Scalar | None,
) -> Prefill:
    """Nothing is prefilled: a request comes with its cache and joins the next step."""
    nothing, none = jnp.zeros_like(load.prompt.tokens), jnp.zeros_like(step)
    last = Last(nothing, nothing, nothing, nothing)
    return Prefill(nothing, nothing, nothing, none, none, jnp.ones_like(step), nothing, none, none, last)


def pools_percentile(state: SteadyPools, load: Load, pools: Pools, level: Scalar | float) -> dict[str, Scalar]:
    """`ttft`, `tpot` and `e2e` that a share `level` of the requests does not exceed [s]; NaN where not stable."""
    prompts, outputs = pool_loads(load, pools)
    first = first_token(state.prefill, prompts, state.transfer)
    known = {"ttft": state.stable, "tpot": state.stable & ~jnp.isnan(state.tpot), "e2e": state.stable}
    found = {
        "ttft": solved(first_token_tail(state.prefill, prompts), state.prefill.ttft, level) + state.transfer,
        "tpot": solved(per_token_tail(state.decode, outputs), state.tpot, level),
        "e2e": solved(whole_tail(state.decode, outputs, first), state.e2e, level),
    }
    return {name: jnp.where(known[name], value, jnp.nan) for name, value in found.items()}
