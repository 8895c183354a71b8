"""Steady state of one serving engine under a client: time to first token, time per token, throughput.

A client that keeps n requests in flight on an engine that decodes all of them together and prefills a newcomer in a
step of its own has, whatever the order of the work,

    e2e = n t_prefill + (output - 1) t_decode(b)                     (every request waits for the prefills of all)

What the order decides is how much of it is TTFT. Requests that start together (a burst, or equal lengths that never
drift apart) wait for half of the others' prefills before their first token; requests out of step meet the others'
prefills while they decode, and wait only for what is being prefilled when they come. `synchrony` is the share of the
first. Where steps decode and prefill at once, equal lengths make a row: those that were prefilled in one step end in
one step, the next ones in the next. Until the client has answered the first of them (`turn`) the engine decodes on, and
in each of these decode steps the next ones of the row end; they queue behind each other for good, so that whoever
follows finds as many prefill steps before its own as decode steps fit in a turn.
An engine that puts prefill and decode tokens into one step (Sarathi-Serve, OSDI 2024; vLLM v1, TensorRT-LLM)
gains a token for all in each prefill step: the linear layers run once on the union. The mean batch in decode is b = n
D / e2e (Little's law), D the time in decode; with memory for fewer than n requests the others wait for a slot. The
first token is prefill's: requests of one token have no decode, and wait for the others' prefills before it.

Requests that come at a rate whether or not the engine keeps up are `jaxperf.serving.arriving`.

Every function is of one point; the step times are callables of it, so that the same equations serve a model's kernels
and a table of measured steps. Iterations of the fixed points are of a fixed number and differentiable.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, as_float

StepTime = Callable[[Scalar], Scalar]
ITERATIONS = 12
LEAST_MIXING = 1e-6  # below it prefill steps give no tokens: any number of them passes while a request decodes


class Steps(eqx.Module):
    """Step times of one replica: callables of a count [1] that give seconds.

    `decode`: of sequences in decode; `attention`: what of that reads the cache, which a mixed step does as well;
    `prefill`: of prompts prefilled in one step.
    """

    decode: StepTime
    attention: StepTime
    prefill: StepTime


class Load(eqx.Module):
    """What the client asks: `concurrency` requests in flight on the replica [1], of `output` tokens each [1]; `slots`:
    requests there is memory for [1]; `together`: prompts that fit in the token budget of one step [1]; `held`: requests
    in flight that the engine has not in hand though it has room, between client and engine [1]."""

    concurrency: Float[Array, "*batch"] = eqx.field(converter=as_float)
    output: Float[Array, "*batch"] = eqx.field(converter=as_float)
    slots: Float[Array, "*batch"] = eqx.field(converter=as_float)
    together: Float[Array, "*batch"] = eqx.field(converter=as_float)
    held: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)


class Schedule(eqx.Module):
    """How the engine and the client order the work: `mixing`: share of prefill steps that decode too [1]; `synchrony`:
    share of requests that start in one burst, 1 / waves for a client that sends so many waves [1]; `wait`: prefill
    steps of others that a newcomer of no burst and no row finds before its own, 1/2 of one for arrivals at random [1];
    `first`: time to first token that no step explains: network, tokenizer, scheduling [s]; `row`: share of the requests
    of no burst that come back in a row behind each other, as many a step as were prefilled together [1]; `ahead`: steps
    that are fixed before the one that runs has ended, for which a newcomer of a row waits as well [1]; `turn`: from the
    last token of a request until the one that follows it is in the engine's hands [s]."""

    mixing: Float[Array, "*batch"] = eqx.field(converter=as_float)
    synchrony: Float[Array, "*batch"] = eqx.field(converter=as_float)
    wait: Float[Array, "*batch"] = eqx.field(converter=as_float)
    first: Float[Array, "*batch"] = eqx.field(converter=as_float)
    row: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    ahead: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)
    turn: Float[Array, "*batch"] = eqx.field(converter=as_float, default=0.0)


class Steady(eqx.Module):
    """`ttft`, `tpot` (mean after the first token, NaN where there is no other), `e2e` of a request [s]; `throughput`:
    output tokens of the replica [1/s]; `batch`: mean sequences in decode [1]; `prefill_share`: of the time, spent in
    prefill steps [1]."""

    ttft: Float[Array, "*batch"]
    tpot: Float[Array, "*batch"]
    e2e: Float[Array, "*batch"]
    throughput: Float[Array, "*batch"]
    batch: Float[Array, "*batch"]
    prefill_share: Float[Array, "*batch"]


def aggregated(steps: Steps, load: Load, schedule: Schedule) -> Steady:
    """Prefill and decode on the same devices, a closed loop.

    Newcomers of one step are prefilled together: k = 1 + (arrivals in a prefill step), at most `together`; of a row all
    that there is room for. A newcomer of a row finds d = turn / t_decode(b) + 1/2 prefill steps (at least the one that
    runs; none where a turn takes no time) and those of `ahead` before its own, the first d of a row fewer: d (1 - (d +
    1) k / 2 m) in the mean. While a request decodes, N = (m - 1) (1 - synchrony / 2) / k prefill steps pass,
    m = min(concurrency, slots), less those it waited for in a row, but no more than it takes tokens in where prefill
    steps decode too:

        D = (output - 1 - mixing N) t_decode(b) + N (t_prefill(k) + mixing t_attention(b)),   mixing N <= output - 1

    A step that decodes too takes no less than its decodes alone, however short its prompts are.
    What is prefilled beyond these is waited for before the first token: no cycle is shorter than the prefills of all,
    k = `together` at a time, with what decodes in them (the bound of a closed network, Denning and Buzen 1978).

    **Returns:** `Steady` of scalars.
    """
    slots = jnp.maximum(load.slots, 1.0)
    running = jnp.minimum(jnp.maximum(load.concurrency - load.held, 1.0), slots)
    others, after = running - 1.0, jnp.maximum(load.output - 1.0, 0.0)
    most = jnp.clip(load.together, 1.0, running)
    all_prefills = running / most * _full_step(steps, schedule, most, running, after)
    full = jnp.maximum(load.concurrency / slots - 1.0, 0.0)
    # Where requests wait for a slot, the next one is there when a slot falls free: it waits for no step.
    returning = schedule.row * jnp.clip(1.0 - (load.concurrency - running), 0.0, 1.0)

    def times(batch: Scalar, together: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """(one prefill step, decode of a request, first token of one that waits for no slot) [s].

        What no step explains is done while a request waits for its slot, as far as it waits.
        """
        prefill = steps.prefill(together)
        # A client's turn ends in the middle of a step in the mean, and that step is lost.
        missed = jnp.where(schedule.turn > 0.0, jnp.maximum(schedule.turn / steps.decode(batch) + 0.5, 1.0), 0.0)
        in_row = jnp.minimum(missed + schedule.ahead, others / together)
        behind = returning * in_row * (1.0 - 0.5 * (in_row + 1.0) * together / running)
        passing = others * (1.0 - 0.5 * schedule.synchrony) / together - (1.0 - schedule.synchrony) * behind
        met = jnp.minimum(jnp.maximum(passing, 0.0), after / jnp.maximum(schedule.mixing, LEAST_MIXING))
        pure = jnp.maximum(after - schedule.mixing * met, 0.0)
        both = jnp.maximum(prefill + schedule.mixing * steps.attention(batch), schedule.mixing * steps.decode(batch))
        decode = pure * steps.decode(batch) + met * both
        burst = 0.5 * schedule.synchrony * others * prefill / together
        drifts = (1.0 - schedule.row) * schedule.wait * prefill + 0.5 * jnp.minimum(after, 1.0) * steps.decode(batch)
        drifting = (1.0 - schedule.synchrony) * (others / running * drifts + behind * prefill)
        steps_alone = prefill + burst + drifting
        beside = jnp.maximum(schedule.first - full * (steps_alone + decode), 0.0)
        return prefill, decode, jnp.maximum(beside + steps_alone, all_prefills - decode)

    def iterate(_: int, carry: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        batch, together = carry
        prefill, decode, first = times(batch, together)
        cycle = first + decode
        joined = jnp.clip(1.0 + others * prefill / cycle, 1.0, most)
        joined = schedule.row * most + (1.0 - schedule.row) * joined
        in_step = schedule.synchrony * most + (1.0 - schedule.synchrony) * joined
        in_decode = jnp.maximum(running * (schedule.synchrony + (1.0 - schedule.synchrony) * decode / cycle), 1.0)
        return 0.5 * (batch + in_decode), 0.5 * (together + in_step)

    batch, together = jax.lax.fori_loop(0, ITERATIONS, iterate, (running, jnp.ones_like(running)))
    prefill, decode, first = times(batch, together)
    cycle = first + decode
    queue = (load.concurrency / running - 1.0) * cycle
    return _steady(first + queue, decode, load, batch, jnp.minimum(running * prefill / together / cycle, 1.0))


def _full_step(steps: Steps, schedule: Schedule, most: Scalar, running: Scalar, after: Scalar) -> Scalar:
    """A step where all are full of prompts [s]: each request takes its tokens in the mixed ones among running / most
    steps, so that most x after / mixing decode in one of them; in none of those that prefill a burst."""
    alone, mixing = steps.prefill(most), schedule.mixing
    batch = jnp.minimum(most * after / jnp.maximum(mixing, LEAST_MIXING), running)
    mixed = jnp.maximum(alone + mixing * steps.attention(batch), mixing * steps.decode(batch))
    return alone + jnp.where(after > 0.0, 1.0 - 0.5 * schedule.synchrony, 0.0) * (mixed - alone)


def disaggregated(
    steps: Steps, load: Load, schedule: Schedule, prefillers: Scalar, decoders: Scalar, transfer: Scalar
) -> Steady:
    """Prefill on `prefillers` workers, decode on `decoders` others, the cache sent between, a closed loop.

    Prompts that come in a prefill step share the next one, k = 1 + (arrivals in a step), at most `together`. Each pool
    is a queue whose customers come back: no cycle is shorter than concurrency x t_prefill(k) / (k prefillers), k =
    `together`, nor than concurrency x decode of a request / (decoders x slots), the bounds of a closed network (Denning
    and Buzen 1978). What exceeds the cycle without waiting is waited for before the first token, in the one pool or the
    other.

    **Arguments:** `load`: over all workers, `slots` of one decoder [1]; `transfer`: sending the cache of a prompt [s].
    **Returns:** `Steady` of scalars.
    """
    after = jnp.maximum(load.output - 1.0, 0.0)
    share = load.concurrency / prefillers
    others = jnp.maximum(share - 1.0, 0.0)
    most = jnp.clip(load.together, 1.0, jnp.maximum(share, 1.0))
    all_prefills = share / most * steps.prefill(most)
    slots = jnp.maximum(load.slots, 1.0)
    turns = load.concurrency / (decoders * slots)

    def times(batch: Scalar, together: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """(one prefill step, decode of a request, its first token) [s]."""
        prefill, decode = steps.prefill(together), after * steps.decode(batch)
        unqueued = schedule.first + prefill + transfer
        bound = jnp.maximum(all_prefills, turns * decode) - (unqueued + decode)
        busy = jnp.clip(share / together * prefill / (unqueued + decode), 0.0, 1.0)
        burst = 0.5 * schedule.synchrony * others * prefill / together
        drifting = (1.0 - schedule.synchrony) * schedule.wait * busy * prefill
        return prefill, decode, unqueued + jnp.maximum(burst + drifting, bound)

    def iterate(_: int, carry: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        batch, together = carry
        prefill, decode, first = times(batch, together)
        in_decode = load.concurrency * decode / (decode + first) / decoders
        joined = jnp.clip(1.0 + others * prefill / (decode + first), 1.0, most)
        in_step = schedule.synchrony * most + (1.0 - schedule.synchrony) * joined
        return 0.5 * (batch + jnp.clip(in_decode, 1.0, slots)), 0.5 * (together + in_step)

    start = jnp.clip(load.concurrency / decoders, 1.0, slots)
    batch, together = jax.lax.fori_loop(0, ITERATIONS, iterate, (start, jnp.ones_like(most)))
    prefill, decode, first = times(batch, together)
    return _steady(first, decode, load, batch, jnp.minimum(share / together * prefill / (first + decode), 1.0))


def fixed_batch(steps: Steps, load: Load, schedule: Schedule) -> Steady:
    """All requests prefilled together, then decoded together to the end: static batching.

    **Returns:** `Steady` of scalars.
    """
    prefill = schedule.first + steps.prefill(load.concurrency)
    decode = jnp.maximum(load.output - 1.0, 0.0) * steps.decode(load.concurrency)
    return _steady(prefill, decode, load, load.concurrency, prefill / (prefill + decode))


def _steady(first: Scalar, decode: Scalar, load: Load, batch: Scalar, prefill_share: Scalar) -> Steady:
    e2e, decodes = first + decode, load.output > 1.0
    tpot = jnp.where(decodes, decode / jnp.where(decodes, load.output - 1.0, 1.0), jnp.nan)
    return Steady(first, tpot, e2e, load.concurrency * load.output / e2e, batch, prefill_share)
