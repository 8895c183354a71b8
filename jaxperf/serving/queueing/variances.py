"""How much the times vary that requests spend in steps with prompts: before their first token, and after it.

A step with prompts takes f + s k. What comes in one step is computed in the next, so that lengths of steps follow each
other by T' = f + S(N), N of Poisson's lambda T: a share rho = lambda s of what one is longer goes on to the next.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.serving.queueing.arrivals import cluster
from jaxperf.serving.queueing.decoding import rows_of
from jaxperf.serving.queueing.engine import FULL, SHORTEST, Load, mean_over
from jaxperf.serving.queueing.open_loop import SteadyQueue


def shared_steps_variance(state: SteadyQueue, load: Load) -> Scalar:
    """Variance of the rest of a step with prompts and of the next one, which all that came in it share [s^2].

    An arrival meets a step of length T as often as it is long, and comes anywhere in it, U of it before the end:

        Var (U T + S(N(T))) = (1/3 + rho + rho^2) E T^3 / E T - (1/2 + rho)^2 (E T^2 / E T)^2 + lambda E s^2 E T^2 / E T

    The moments of T are those of a random sum of k prompts: k - 1 are p - 1 in the mean, D of that their variance, and
    as skew as a negative binomial number with both.

    Where arrivals are even, one that comes in a step seldom comes long before its end, nor do others: of the share s /
    E T of it that a prompt makes, the rest is `finds` as long, and others come so often. What else is in the step goes
    on whenever they come, and so does an exponential length (the squared coefficient of variation is `uneven`).
    """
    wait, share = state.wait, state.prefill.share / state.overlap
    each, square, cube = _moments(load, share)
    found = wait.entered
    mean = jnp.maximum(state.prefill.floor / state.ways + wait.prompts * each, SHORTEST)
    dispersion = wait.company.dispersion
    number, lengths = (wait.prompts - 1.0) * dispersion, square - each**2
    variance = number * each**2 + wait.prompts * lengths
    third = number * each * ((2.0 * dispersion - 1.0) * each**2 + 3.0 * lengths)
    third = third + wait.prompts * (cube - 3.0 * each * square + 2.0 * each**3)
    met = mean + variance / mean
    squared = mean**2 + 3.0 * variance + third / mean
    come = dispersion * (1.0 - found**2) * load.rate * square * met  # bursts vary more than Poisson's
    equal = jnp.minimum(each / mean, 1.0) * jnp.maximum(1.0 - wait.uneven, 0.0)
    finds = 1.0 - jnp.maximum(1.0 - wait.finds, 0.0) * equal
    rest = (1.0 / 3.0 + found + found**2) * squared - (0.5 + found) ** 2 * met**2
    return finds**2 * rest + finds * come


def in_rows(state: SteadyQueue, load: Load, tokens: Array, mean: Array) -> Float[Array, " K"]:
    """Variance of the time that rows of steps with prompts take from decodes of `tokens`, which wait for them [s^2].

    A row goes on with a probability that hardly depends on how long it has been, so that its M steps are geometric: E
    M^2 = 2 M^2 - M. One begins in a share P of the decode steps, and in q = 1 - e^-x of all cases one is under way,
    with x prompts left behind. With G of `Row.longest`

        (sqrt a + sqrt b)^2,    a = lambda E s^2 mean / (1 - rho)^2,
        b = G^2 ((n - 1) P (2 - 1/M - P) + q (2 - 1/M - q))

    where the prompts themselves vary by a, and more of them make longer rows.
    """
    delays, prompts = state.prefill.delay / state.overlap, state.wait.prompts
    each, square, _ = _moments(load, delays)
    part = state.prefill.stall / prompts / state.overlap
    row = rows_of(load.rate, state.step, state.slow, each, part)
    steps = jnp.maximum(load.rate * row.vacation / (prompts * (1.0 - state.slow)), 1.0)
    behind, twice = -jnp.expm1(-state.left), 2.0 - 1.0 / steps
    own = square * (load.rate * mean + state.left) / (1.0 - row.found) ** 2
    long = row.longest**2 * ((tokens - 1.0) * row.often * (twice - row.often) + behind * (twice - behind))
    bursts = _bursts(state, load)
    more = jnp.maximum(bursts, 0.0) * load.rate * mean * ((each + part) / (1.0 - state.slow)) ** 2
    return (safe_sqrt(own) + safe_sqrt(long)) ** 2 * (1.0 + jnp.minimum(bursts, 0.0)) + more


def beside_prompts(state: SteadyQueue, load: Load, tokens: Array, mean: Array, number: Array) -> Float[Array, " K"]:
    """Variance of n steps in a row that have prompts and decodes, with what the `number` of sequences adds [s, s^2].

    Prompts that come with m steps to go make them s (1 - rho^m) / (1 - rho) longer; those left behind, which vary D
    times as much as Poisson's, have n of them. Many sequences and many prompts come together.
    """
    each, square, _ = _moments(load, state.prefill.share / state.overlap)
    found = jnp.minimum(load.rate * each, FULL)
    power = jnp.exp(tokens * jnp.log(jnp.maximum(found, SHORTEST)))
    growth = (1.0 - power) / (1.0 - found)
    later = (1.0 - (2.0 * growth - (1.0 - power**2) / (1.0 - found**2)) / tokens) / (1.0 - found) ** 2
    come = load.rate * (square + _bursts(state, load) * each**2) * mean * jnp.maximum(later, 0.0)
    left = state.left * state.wait.company.dispersion * square * growth**2
    return (safe_sqrt(come) + number / (1.0 - state.slow)) ** 2 + left


def _moments(load: Load, values: Float[Array, " K"]) -> tuple[Scalar, Scalar, Scalar]:
    """Mean, mean square and mean cube over prompts of what each class has, lengths in a class included."""
    inside = load.prompt.inside(values)
    moments = values, values**2 + inside, values**3 + 3.0 * values * inside
    mean, square, cube = (mean_over(load.prompt, each) for each in moments)
    return mean, square, cube


def _bursts(state: SteadyQueue, load: Load) -> Scalar:
    """Of the variance of a number of arrivals over its mean, what is beyond Poisson's [1]."""
    return 2.0 * cluster(0.5 * state.batch, load.variation)
