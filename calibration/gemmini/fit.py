"""The pace of Gemmini, fitted to cycles of its RTL.

    minimize  sum_r w_r huber(log(cycles_r / measured_r) / noise) + 1/2 |u|^2 / deviation^2

by L-BFGS (Liu and Nocedal 1989; Huber 1964) over u, from which every scalar of `GemminiPace` is made within its bounds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from calibration.gemmini.rows import RtlRows
from jaxperf.loopnest.gemmini import GemminiPace, Tiling, gemmini_cycles

NOISE = 0.1  # residual beyond which a row counts for less [log 1]
DEVIATION = 1.5  # of the prior about the middle of the bounds [logit]
STEPS = 60
# Least and most of each scalar: no instruction is shorter than one row or waits for more than the array is deep; a
# request takes a cycle to issue and no more than a trip to the DRAM.
BOUNDS = {
    "rows": (1.0, 16.0),
    "request": (1.0, 64.0),
    "stride": (0.0, 64.0),
    "store": (1.0, 64.0),
    "exposed": (0.0, 1.0),
    "sharpness": (1.0, 8.0),
}


def pace_of(fitted: Float[Array, " 6"]) -> GemminiPace:
    """The scalars within their bounds: the middle at zero."""
    share = jax.nn.sigmoid(fitted)
    bounds = enumerate(BOUNDS.items())
    return GemminiPace(**{name: low + (high - low) * share[place] for place, (name, (low, high)) in bounds})


@jax.jit
def cycles_of(pace: GemminiPace, tilings: Tiling) -> Float[Array, " rows"]:
    """Cycles of every row."""
    return jax.vmap(gemmini_cycles, in_axes=(0, None))(tilings, pace)


def fit_paces(rows: RtlRows, weights: np.ndarray) -> list[GemminiPace]:
    """The pace fitted with every row of `weights` [fits, rows]."""
    tilings, target = jax.tree.map(jnp.asarray, (rows.tilings, np.log(rows.measured)))
    with jax.numpy_dtype_promotion("standard"):  # optax adds integers of different widths
        found = jax.jit(jax.vmap(_fitted, in_axes=(0, None, None)))(jnp.asarray(weights), tilings, target)
    return [jax.tree.map(float, pace_of(each)) for each in found]


def _fitted(weights: Array, tilings: Tiling, target: Array) -> Float[Array, " 6"]:
    def loss(fitted: Array) -> Array:
        residual = (jnp.log(cycles_of(pace_of(fitted), tilings)) - target) / NOISE
        return jnp.sum(weights * optax.losses.huber_loss(residual)) + jnp.sum((fitted / DEVIATION) ** 2) / 2.0

    solver = optax.lbfgs()
    value_and_slope = optax.value_and_grad_from_state(loss)

    def step(carry: tuple[Array, optax.OptState], _: None) -> tuple[tuple[Array, optax.OptState], None]:
        fitted, state = carry
        value, slope = value_and_slope(fitted, state=state)
        change, state = solver.update(slope, state, fitted, value=value, grad=slope, value_fn=loss)
        return (jnp.asarray(optax.apply_updates(fitted, change)), state), None

    start = jnp.zeros(len(BOUNDS))
    return jax.lax.scan(step, (start, solver.init(start)), length=STEPS)[0][0]
