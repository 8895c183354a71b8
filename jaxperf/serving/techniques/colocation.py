"""Several models on one device at a time: how far each is slowed by what the others take of each resource.

A model that alone takes t for a step and keeps resource r busy for b_r of it needs the share u_r = b_r / t of the
resource for a step at full speed. Side by side (MPS, green contexts; MuxServe, ICML 2024) the speeds x_i <= 1 are
max-min fair: all grow alike until a resource is full, sum_i x_i u_ir = 1; whoever needs that resource stays, the others
grow on (progressive filling: Bertsekas and Gallager, Data Networks, 6.5.2). Time slices: `serving.colocate.speeds`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxperf.core.numerics import Scalar
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.transformer import add_up

LEAST_SHARE = 1e-9  # of a resource: what needs less does not wait for it


def busy_shares(kernels: Kernels, time: Scalar) -> Float[Array, " 3"]:
    """Share of a step's `time` [s] that its kernels keep arithmetic units, memory and links busy, alone [3] [1]."""
    busy = (
        add_up(kernels, lambda cost: cost.compute),
        add_up(kernels, lambda cost: cost.memory),
        add_up(kernels, lambda cost: cost.network),
    )
    return jnp.minimum(jnp.stack(busy) / time, 1.0)


def fair_speeds(shares: Float[Array, "models resources"]) -> Float[Array, " models"]:
    """Speed of each model over its speed alone [models] [1].

    Each round of the filling freezes at least one more model, or ends; there are as many as resources, and one at most
    in which all that is left reaches full speed.
    """
    models, resources = shares.shape
    speeds, growing = jnp.zeros(models), jnp.ones(models, bool)
    for _ in range(resources + 1):
        speeds, growing = _fill(shares, speeds, growing)
    return speeds


def _fill(
    shares: Float[Array, "models resources"], speeds: Float[Array, " models"], growing: Bool[Array, " models"]
) -> tuple[Float[Array, " models"], Bool[Array, " models"]]:
    """All that grow by what the first full resource, or full speed, leaves them; who needs a full one stays."""
    used, asked = speeds @ shares, growing.astype(shares.dtype) @ shares
    some = asked > LEAST_SHARE
    room = jnp.where(some, (1.0 - used) / jnp.where(some, asked, 1.0), jnp.inf)
    step = jnp.maximum(jnp.minimum(jnp.min(room), 1.0 - _level(speeds, growing)), 0.0)
    full = some & (room <= step * (1.0 + LEAST_SHARE))
    stays = jnp.any((shares > LEAST_SHARE) & full[None, :], axis=1)
    speeds = jnp.where(growing, speeds + step, speeds)
    return speeds, growing & ~stays & (speeds < 1.0)


def _level(speeds: Float[Array, " models"], growing: Bool[Array, " models"]) -> Scalar:
    """The speed that all which still grow have reached [1]."""
    return jnp.max(jnp.where(growing, speeds, 0.0))
