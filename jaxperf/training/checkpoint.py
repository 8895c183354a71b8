"""How often to save, and what saving, failing and doing work again cost: Young (1974) and Daly (2006)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.core.numerics import Scalar, safe_sqrt

NEWTON_STEPS = 8


def optimal_interval(save: Scalar, mtbf: Scalar) -> Scalar:
    """The exact minimum of `slowdown`: tau = M x with (1 - x) e^x = e^(-C / M), by Newton's method [s].

    (x = 1 + W(-e^(-1 - C / M)) of Lambert's W.) Solved for ln(1 - x) + x = -C / M, whose curvature keeps the iteration
    on one side; it starts from sqrt(2 C / M) / (1 + sqrt(2 C / M)), right at both ends.
    """
    ratio = save / mtbf
    root = safe_sqrt(2.0 * ratio)

    def newton(_: int, x: Scalar) -> Scalar:
        return jnp.clip(x + (1.0 - x) / x * (jnp.log1p(-x) + x + ratio), 0.5 * x, 0.5 * (1.0 + x))

    start = jnp.clip(root / (1.0 + root), 1e-9, 1.0 - 1e-9)
    return mtbf * jax.lax.fori_loop(0, NEWTON_STEPS, newton, start)


def slowdown(interval: Scalar, save: Scalar, mtbf: Scalar, restart: Scalar) -> Scalar:
    """Expected time over time of work, failures at any moment included: M e^(R / M) (e^((tau + C) / M) - 1) / tau [1].

    Exact for memoryless failures (Daly 2006, eq. 20).
    """
    return mtbf * jnp.exp(restart / mtbf) * jnp.expm1((interval + save) / mtbf) / interval


class Goodput(eqx.Module):
    """`interval` of work between checkpoints [s]; `share` of the time that is work kept [1], and of what the rest goes
    to: `saving`, `redone` work, `restarting`."""

    interval: Float[Array, "*batch"]
    share: Float[Array, "*batch"]
    saving: Float[Array, "*batch"]
    redone: Float[Array, "*batch"]
    restarting: Float[Array, "*batch"]


def goodput(save: Scalar, mtbf: Scalar, restart: Scalar) -> Goodput:
    """The share of time that is lasting work when checkpoints are taken at the best interval.

    **Arguments:** `save`: time a checkpoint stops the run [s]; `mtbf` of the cluster [s]; `restart` after each failure
    [s].
    """
    interval = optimal_interval(save, mtbf)
    segment, running = (interval + save) / mtbf, jnp.exp(-restart / mtbf)
    # 1 / `slowdown`, its powers turned over so that none overflows where a run hardly ever reaches a checkpoint.
    share = running * jnp.exp(-segment) * interval / (-mtbf * jnp.expm1(-segment))
    saving = share * save / interval
    return Goodput(interval, share, saving, running - share - saving, -jnp.expm1(-restart / mtbf))


def save_time(states: Scalar, bandwidth: Scalar, pause: Scalar) -> Scalar:
    """Time to write `states` [byte] of the whole run to a store of `bandwidth` [byte/s] and wait for it [s].

    **Arguments:** `pause`: what every save costs however little it holds, adapters for instance: ranks that wait for
    each other, files that are opened and committed [s].
    """
    return pause + states / bandwidth
