"""How long a request's decode takes in an open loop, and who decodes beside it (`open_loop` has the equations)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt
from jaxperf.serving.queueing.arrivals import cluster
from jaxperf.serving.queueing.engine import FEWEST, FULL, SHORTEST, Load, Prefill

# Gauss and Hermite's three points of a normal distribution: standard deviations and weights.
POINTS = ((-(3.0**0.5), 1.0 / 6.0), (0.0, 2.0 / 3.0), (3.0**0.5, 1.0 / 6.0))


def step_and_slope(
    step: Callable[[Scalar], Scalar], batch: Scalar, spread: Scalar, slots: Scalar
) -> tuple[Scalar, Scalar]:
    """E t(N + 1), and how it grows with N: at three points of a normal N; no more run than have a slot [s]."""
    deviation = jnp.maximum(safe_sqrt(spread), 1.0)
    most = jnp.maximum(slots - 1.0, 0.0)
    times = [(step(jnp.clip(batch + at * deviation, 0.0, most) + 1.0), at, weight) for at, weight in POINTS]
    mean = sum((weight * time for time, _, weight in times), start=jnp.zeros_like(batch))
    slope = sum((weight * at * time for time, at, weight in times), start=jnp.zeros_like(batch)) / deviation
    return mean, jnp.maximum(slope, 0.0)


def after_first(load: Load) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Tokens after the first, of those requests of each class of outputs that make any, and their share of the class
    [K] [1].

    A class of fewer than two tokens in the mean has requests of one and of two.
    """
    tokens = jnp.maximum(load.output.tokens - 1.0, 0.0)
    return jnp.maximum(tokens, 1.0), jnp.minimum(tokens, 1.0)


def mates(load: Load, batch: Scalar) -> Scalar:
    """Others that decode beside a request because they came about when it did, before it or after [1].

    Of those of its burst a share k = E min(X, Y) / E X of a life is together with theirs, so that Var N is N (1 + k
    (c^2 - 1)) where lives are long (Whitt, Management Science 30, 1984, of G/G/inf); `batch`: N, arrivals in a life.
    """
    together = load.output.together
    return 2.0 * together * cluster(0.5 * batch / together, load.variation)


def clump(load: Load, batch: Scalar, slow: Scalar) -> Scalar:
    """Others that decode beside a request because their prompts were computed in a row with its own [1].

    In steps, prompts that delay them bring the next ones closer: what begins to decode in a row of steps varies
    1 / (1 - rho)^2 times as much as what arrives, rho = `slow` (E X^2 / E X of Borel's number X that a busy period
    serves; the dispersion of Hawkes' process, Biometrika 58, 1971). A request is beside the rest of its row in all its
    steps. `batch`: N [1].
    """
    return load.output.together * (1.0 + mates(load, batch)) * (1.0 / (1.0 - slow) ** 2 - 1.0)


class Row(NamedTuple):
    """Rows of steps with prompts where these go first: `found`: share of the time that prompts add to others' steps,
    rho, `often`: P, of the decode steps that one follows [1]; `vacation`: time of decode steps from one row to the next
    [s]; `longest`: what steps take in a row besides what prompts add to them, with the prompts that come meanwhile,
    G = f M / (1 - rho) [s]."""

    found: Scalar
    often: Scalar
    vacation: Scalar
    longest: Scalar


def rows_of(rate: Scalar, step: Scalar, slow: Scalar, each: Scalar, part: Scalar) -> Row:
    """The rows between decodes of a `step` [s], with prompts that add `each` to a step, of which the rest is `part` for
    each of its prompts [s]: a share `slow` of the time is in rows, rho of it `each`'s."""
    found = slow * each / jnp.maximum(each + part, SHORTEST)
    often = -jnp.expm1(-rate * step)
    vacation = step / jnp.maximum(often, SHORTEST)
    return Row(found, often, vacation, (slow - found) / ((1.0 - slow) * (1.0 - found)) * vacation)


def row_left(row: Row, each: Scalar, number: Scalar) -> Scalar:
    """How long a row still goes on with a mean `number` of prompts waiting, Poisson's x, which add `each` [s].

    Where there is any, as many steps are to come as in a whole row, which is as likely to end after one as another:
    x s / (1 - rho) + G (1 - e^-x).
    """
    return each * number / (1.0 - row.found) - row.longest * jnp.expm1(-number)


def decode_time(prefill: Prefill, load: Load, step: Scalar, slow: Scalar, behind: Scalar, tokens: Array) -> Array:
    """Time of `tokens` n after the first: n steps, of which each but the first has the prompts that came before it [s].

    With rho = lambda d (`slow`) and steps t_k = t + rho t_(k-1) where prompts go beside decodes, the first of them
    t + U_behind,

        sum t_k = n t + U_behind g + t rho (n - g) / (1 - rho),     g = (1 - rho^n) / (1 - rho)

    so that prompts which come in the last step delay nothing. Where prompts go first, those that come in a step are
    done before the next: U_behind / (1 - rho) and (n - 1) instead of U_behind g and (n - g).

    A step beside decodes takes no longer than a full one, so what is left behind delays by no more than these steps
    have room for: E min(x, room) of x that is not zero with the probability that any of Poisson's prompts is left, and
    exponential then.
    """
    beside = prefill.beside > 0.0
    growth = -jnp.expm1(tokens * jnp.log(jnp.maximum(slow, SHORTEST))) / (1.0 - slow)
    left = jnp.where(beside, growth, 1.0 / (1.0 - slow))
    later = (tokens - jnp.where(beside, growth, 1.0)) / (1.0 - slow)
    plain = step * (tokens + slow * later)
    delay = jnp.maximum(behind * left, SHORTEST)
    room = jnp.maximum(tokens * full_step(prefill) - plain, 0.0)
    prompts = delay * load.rate / jnp.maximum(slow, SHORTEST)
    kept = -jnp.expm1(jnp.minimum(room / delay, 1.0 / SHORTEST) * jnp.expm1(-prompts))
    short = plain + jnp.where(beside, delay * kept, behind * left)
    chunks = _beside_chunks(prefill, load, step, slow, behind, tokens)
    return jnp.where(beside & (prefill.room < 1.0), chunks, short)


def _beside_chunks(prefill: Prefill, load: Load, step: Scalar, slow: Scalar, behind: Scalar, tokens: Array) -> Array:
    """Time of `tokens` n after the first where a prompt fills several steps, m of them in the mean [s].

    What is left behind changes by the prompts that come less one step's work of each full step, so that with U_n of it
    left after n steps of t, of which those with prompts take F,

        T = (n t + U_0 - U_n) / (1 - slow),     slow = lambda m (F - t)

    One that leaves M/G/1 leaves prompts behind as often as they are there at all, rho = lambda m F (Kleinrock 1975,
    5.6), and far from it the share sigma = lambda m t / (1 - slow) of the steps has any, with the work of Pollaczek and
    Khinchine's queue at the ends of steps; between, U_n falls from the first at the rate it begins with:

        U_inf = (F - t) (sigma E m^2 / (2 m (1 - rho)) + lambda m t / 2)
        U_n = U_inf + (U_0 - U_inf) r^n,     1 - r = (1 - slow) (rho - sigma) (F - t) / (U_0 - U_inf)
    """
    full = jnp.maximum(full_step(prefill), step + SHORTEST)
    busy, come = slow * full / (full - step), slow * step / (full - step)
    busy = jnp.minimum(busy, FULL)
    often = come / (1.0 - slow)
    chunks = load.prompt.square / (load.prompt.mean**2 * prefill.room)
    end = (full - step) * (0.5 * often * chunks / (1.0 - busy) + 0.5 * come)
    excess = jnp.maximum(behind - end, SHORTEST)
    rate = jnp.clip((1.0 - slow) * (busy - often) * (full - step) / excess, 0.0, 1.0 - FEWEST)
    worked = -excess * jnp.expm1(tokens * jnp.log1p(-rate))
    return (tokens * step + worked) / (1.0 - slow)


def full_step(prefill: Prefill) -> Scalar:
    """A step beside decodes that is full of prompts [s]; meaningless where prompts go first."""
    return prefill.packed / jnp.maximum(prefill.beside, SHORTEST)
