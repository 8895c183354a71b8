"""A mixture of experts on one device: sort by expert, grouped products up and down, weighted sum back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from calibration.microbench.operation import Call, Operation, Range, Sizes, as_they_are, random_array


def experts(
    x: Float[Array, "tokens hidden"],
    up: Float[Array, "experts hidden two_inter"],
    down: Float[Array, "experts inter hidden"],
    chosen: Int[Array, "tokens topk"],
    weight: Float[Array, "tokens topk"],
) -> Float[Array, "tokens hidden"]:
    """y_t = sum over the chosen experts e of w_te down_e(silu(gate_e x_t) * up_e x_t) (Shazeer et al. 2017)."""
    topk, inter = chosen.shape[1], down.shape[1]
    order = jnp.argsort(chosen.reshape(-1))
    token = order // topk
    sizes = jnp.bincount(chosen.reshape(-1), length=up.shape[0]).astype(jnp.int32)
    wide = jax.lax.ragged_dot(x[token], up, sizes)
    narrow = jax.lax.ragged_dot(jax.nn.silu(wide[:, :inter]) * wide[:, inter:], down, sizes)
    return jnp.zeros_like(x).at[token].add(narrow * weight.reshape(-1)[order][:, None])


def moe(sizes: Sizes, dtype: str, seed: int) -> Call:
    """Every token to `topk` distinct experts, drawn uniformly."""
    tokens, hidden, inter, count = (sizes[name] for name in ("tokens", "hidden", "inter", "experts"))
    score = np.random.default_rng(seed).random((tokens, count))
    chosen = np.argsort(score, axis=1)[:, : sizes["topk"]].astype(np.int32)
    operands = (
        random_array((tokens, hidden), dtype, seed),
        random_array((count, hidden, 2 * inter), dtype, seed + 1),
        random_array((count, inter, hidden), dtype, seed + 2),
        jnp.asarray(chosen),
        random_array(chosen.shape, dtype, seed + 3),
    )
    return experts, operands


MOE = Operation(
    name="moe",
    family="moe",
    op="moe",
    kernel="jax.lax.ragged_dot",
    sizes={
        "tokens": Range(1, 16384),
        "hidden": Range(128, 8192),
        "inter": Range(64, 16384),
        "topk": (1, 2, 4, 8),
        "experts": (4, 8, 16, 32, 64, 128),
    },
    shape=as_they_are,
    call=moe,
    text={"distribution": "balanced"},
    accepts=lambda sizes: sizes["topk"] <= sizes["experts"],
)
