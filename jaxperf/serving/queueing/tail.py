"""Percentiles of an open loop's latencies: a mixture over classes of requests, a gamma distribution in each.

First token: of those that find prompts being computed (a share `meets`), the queue's two moments where a prompt fills a
step, those of a step and the next where many share one (`variances`); of the others the rest of a decode step, uniform;
of those that find no free slot, the wait for one besides; and where others come in the own steps, what they add to the
last of them. Decode of n tokens: the sum of the steps of `decoding`, with the variance that prompts which come make in
rows or beside it (`variances`), and where a prompt fills several steps that of the first passage of work that grows by
a step per token and by prompts at random,

    mean = (n t + U_behind) / (1 - slow),    variance = (sqrt(lambda d^2 mean) + n t' sqrt(2/3 Var N))^2 / (1 - slow)^2

because more arrivals mean both more prompts and more sequences; 2/3: the mean of a process whose correlation falls in a
straight line over a life. The whole request: the first token's mixture with the decode after it, or where outputs vary
more a mixture over outputs. Gamma's tail by Wilson and Hilferty (1931).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.serving.queueing.decoding import after_first, decode_time, full_step
from jaxperf.serving.queueing.engine import Load
from jaxperf.serving.queueing.gamma import gamma_tail
from jaxperf.serving.queueing.open_loop import SteadyQueue
from jaxperf.serving.queueing.variances import beside_prompts, in_rows, shared_steps_variance

HALVINGS = 16
WIDEST = 4.0  # of the logarithm of a percentile over the mean
SHORTEST = 1e-9  # s

Tail = Callable[[Scalar], Scalar]


def percentile(state: SteadyQueue, load: Load, level: Scalar | float) -> dict[str, Scalar]:
    """`ttft`, `tpot` and `e2e` that a share `level` of the requests does not exceed [s]; NaN where not stable.

    Differentiable: the derivative is that of the equation P(X > x) = 1 - level.
    """
    tails = {
        "ttft": (first_token_tail(state, load), state.ttft),
        "tpot": (per_token_tail(state, load), state.tpot),
        "e2e": (whole_tail(state, load, first_token(state, load)), state.e2e),
    }
    found = {name: solved(tail, scale, level) for name, (tail, scale) in tails.items()}
    found["tpot"] = jnp.minimum(found["tpot"], longest_step(state))  # where a gamma distribution goes on
    return {name: jnp.where(jnp.isnan(tails[name][1]), jnp.nan, value) for name, value in found.items()}


class First(NamedTuple):
    """The time to first token: `mean` [s], `variance` [s^2]; `tail` of it and of a time after it, of x and of the mean
    and variance of that time [s, s, s^2]."""

    mean: Scalar
    variance: Scalar
    tail: Callable[[Scalar, Scalar, Scalar], Scalar]


def first_token(state: SteadyQueue, load: Load, sent: Scalar | float = 0.0) -> First:
    """The time to first token, which takes so long to be `sent` besides [s]."""

    def tail(x: Scalar, mean: Scalar, variance: Scalar) -> Scalar:
        return _first_tail(state, load, x - sent, mean, variance)

    return First(state.ttft + sent, first_variance(state, load), tail)


def first_token_tail(state: SteadyQueue, load: Load) -> Tail:
    """P(TTFT > x)."""
    return lambda x: _first_tail(state, load, x, jnp.zeros_like(x), jnp.zeros_like(x))


def _first_tail(state: SteadyQueue, load: Load, x: Scalar, mean: Scalar, variance: Scalar) -> Scalar:
    """P(TTFT + Y > x), Y with this `mean` and `variance` [s, s^2]: what is uniform without it is a gamma distribution
    with it, as far as most of the variance is Y's. Own steps vary inside a class as from a shortest one on."""
    own, share = state.prefill.own, load.prompt.share
    varies = load.prompt.inside(own)
    above = jnp.minimum(safe_sqrt(varies), own)
    mean, variance = mean + above, variance + varies
    busy, rest, found = _found(state, load)
    found = found[0] + state.present * state.formed, found[1]
    waits, often = state.waits, state.wait.often
    later = state.wait.later / jnp.maximum(often, SHORTEST)
    formed = state.formed
    around = state.present * (formed + 0.5 * rest)
    idle = around, state.present * (formed**2 + formed * rest + rest**2 / 3.0) - around**2
    mixed = variance / jnp.maximum(variance + rest**2 / 12.0, SHORTEST**2)
    slot = state.wait.unfinished + formed + state.slot, busy * found[1] + state.erratic * state.slot**2

    def waited(x: Array) -> Array:
        """P(wait before the own steps + Y > x)."""
        even = _uniform_tail(x - mean, formed, rest, state.present)
        even = even + mixed * (gamma_tail(x, mean + idle[0], variance + idle[1]) - even)
        queued = busy * gamma_tail(x, found[0] + mean, found[1] + variance) + (1.0 - busy) * even
        return (1.0 - waits) * queued + waits * gamma_tail(x, slot[0] + mean, slot[1] + variance)

    after = x - (own - above)
    return jnp.sum(share * ((1.0 - often) * waited(after) + often * waited(after - later)))


def per_token_tail(state: SteadyQueue, load: Load) -> Tail:
    """P(TPOT > x) among requests of more than one token."""
    several, tokens, mean, variance = _decode_moments(state, load)
    share = load.output.share * several
    share = share / jnp.maximum(jnp.sum(share), SHORTEST)
    return lambda x: jnp.sum(share * gamma_tail(x, mean / tokens, variance / tokens**2))


def longest_step(state: SteadyQueue) -> Scalar:
    """The longest step of a decode that gets a token in every step [s]; infinite where prompts go first."""
    longest = jnp.maximum(full_step(state.prefill), state.step)
    return jnp.where(state.prefill.beside > 0.0, longest, jnp.inf)


def whole_tail(state: SteadyQueue, load: Load, first: First) -> Tail:
    """P(E2E > x): the time to first token as it is, and the mean output's after it; as far as outputs of different
    lengths vary more than that, two moments of the first and the classes of outputs as they are."""
    several, _, mean, variance = _decode_moments(state, load)
    inside = load.output.variance * (state.step / (1.0 - state.slow)) ** 2
    share, mean, variance = load.output.share, several * mean, several * variance + inside
    average = jnp.sum(share * mean)
    between = jnp.maximum(jnp.sum(share * mean**2) - average**2, 0.0)
    whole = jnp.sum(share * variance) + between
    resolved = first.variance / (first.variance + between + SHORTEST**2)

    def tail(x: Scalar) -> Scalar:
        classes = jnp.sum(share * gamma_tail(x, mean + first.mean, variance + first.variance))
        return classes + resolved * (first.tail(x, average, whole) - classes)

    return tail


def _uniform_tail(x: Array, least: Scalar, spread: Scalar, present: Scalar) -> Array:
    """P(X > x) of what is uniform over `spread` from `least` on with probability `present`, else nothing."""
    inside = jnp.clip(1.0 - (x - least) / jnp.maximum(spread, SHORTEST), 0.0, 1.0)
    return jnp.where(x < 0.0, 1.0, present * inside)


def _found(state: SteadyQueue, load: Load) -> tuple[Scalar, Scalar, tuple[Scalar, Scalar]]:
    """Share of arrivals that find prompts, longest rest of a step for the others [s], and (mean, variance) of what the
    first find [s, s^2]; others that come meanwhile are as many as the work found."""
    wait = state.wait
    stretch = 1.0 + jnp.sum(load.prompt.share * wait.shared) / jnp.maximum(wait.unfinished, SHORTEST)
    busy = jnp.clip(state.meets, 1e-3, 0.98)
    rest = state.step / state.ways
    others = 0.5 * (1.0 - busy) * state.present * rest
    mean = jnp.maximum(wait.unfinished - others, 0.0) / busy * stretch
    queue = jnp.maximum(wait.square / busy - (wait.queued / busy) ** 2, 0.0)
    idle = jnp.maximum(wait.idle - others, 0.0) / busy
    one_by_one = (queue + (2.0 * idle) ** 2 / 12.0) * stretch**2
    alone = 1.0 / jnp.maximum(state.prefill.room, 1.0)
    together = shared_steps_variance(state, load)
    return busy, rest * stretch, (mean, together + alone * (one_by_one - together))


def first_variance(state: SteadyQueue, load: Load) -> Scalar:
    """Variance of the time to first token [s^2]."""
    share, own = load.prompt.share, state.prefill.own
    busy, rest, (mean, variance) = _found(state, load)
    average = jnp.sum(share * own)
    between = jnp.sum(share * (own**2 + load.prompt.inside(own))) - average**2
    queue = busy * (variance + (1.0 - busy) * mean**2) + (1.0 - busy) * rest**2 / 12.0
    slot = state.waits * (1.0 - state.waits + state.erratic) * state.slot**2
    later = jnp.sum(share * state.wait.later**2 * (1.0 / jnp.maximum(state.wait.often, SHORTEST) - 1.0))
    return jnp.maximum(between, 0.0) + queue + slot + later


def _decode_moments(
    state: SteadyQueue, load: Load
) -> tuple[Float[Array, " K"], Float[Array, " K"], Float[Array, " K"], Float[Array, " K"]]:
    """By class of output: share of requests with tokens after the first, how many those have, mean and variance of the
    time they take [1, 1, s, s^2]."""
    tokens, several = after_first(load)
    shortest = tokens * state.step
    mean = decode_time(state.prefill, load, state.step, state.slow, state.behind, tokens)
    open_share = 1.0 - state.slow
    prompts = safe_sqrt(state.squares * mean)
    sequences = tokens * state.slope * safe_sqrt(2.0 / 3.0 * state.spread)
    delay = state.squares / jnp.maximum(state.slow, SHORTEST)  # E d^2 / E d: what one prompt left behind varies by
    fills = ((prompts + sequences) ** 2 + state.behind * delay) / open_share**2
    variance = jnp.where(state.prefill.room >= 1.0, beside_prompts(state, load, tokens, mean, sequences), fills)
    # A decode that gets a token in every step has them between one decode step and one full step apart, so its
    # variance is within Bhatia and Davis' bound (2000), but for that of the number of sequences.
    beside = state.prefill.beside > 0.0
    longest = tokens * jnp.where(beside, longest_step(state), 0.0)
    bound = jnp.maximum(longest - mean, 0.0) * jnp.maximum(mean - shortest, 0.0) + sequences**2
    rows = (safe_sqrt(in_rows(state, load, tokens, mean)) + sequences / open_share) ** 2
    variance = state.kept**2 * jnp.where(beside, jnp.minimum(variance, bound), rows)
    return several, tokens, shortest + state.kept * (mean - shortest), variance


def solved(tail: Tail, scale: Scalar, level: Scalar | float) -> Scalar:
    """x with tail(x) = 1 - level [s]: a bracket in log x is halved; a last step of Newton's has the derivative."""
    wanted = 1.0 - level
    fixed = jax.lax.stop_gradient(jnp.where(scale > 0.0, scale, 1.0))

    def halve(_: int, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = 0.5 * (low + high)
        above = tail(fixed * jnp.exp(middle)) > wanted
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    far = jnp.full_like(fixed, WIDEST)
    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (-far, far))
    x = jax.lax.stop_gradient(fixed * jnp.exp(0.5 * (low + high)))
    slope = jax.lax.stop_gradient(jax.grad(tail)(x))
    step = (tail(x) - wanted) / jnp.where(slope < 0.0, slope, -jnp.inf)
    # Where the tail is flat, as between two classes of prompts at light load, the step is of any length.
    inside = jax.lax.stop_gradient(jnp.clip(step, x * jnp.expm1(low - high), x * jnp.expm1(high - low)) - step)
    return x - (step + inside)
