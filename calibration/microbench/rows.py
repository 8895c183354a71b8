"""Operations row by row: norms, softmax, and the look-up of embeddings."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from calibration.microbench.operation import Call, Operation, Range, Sizes, as_they_are, random_array

VOCABULARY = 8192  # rows of the embedding table
_SIZES = {"rows": Range(1, 65536), "columns": Range(64, 16384)}


def rmsnorm(x: Float[Array, "rows columns"], weight: Float[Array, " columns"]) -> Float[Array, "rows columns"]:
    """x w / sqrt(mean x^2) (Zhang and Sennrich 2019), the mean in 32 bits."""
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(mean + 1e-6).astype(x.dtype)) * weight[None]


def layernorm(x: Float[Array, "rows columns"], weight: Float[Array, " columns"]) -> Float[Array, "rows columns"]:
    """(x - mean) w / sqrt(variance) (Ba et al. 2016), both moments in 32 bits."""
    wide = x.astype(jnp.float32)
    centered = wide - jnp.mean(wide, axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + 1e-6)
    return (centered * scale).astype(x.dtype) * weight[None]


def look_up(table: Float[Array, "words columns"], words: Int[Array, " rows"]) -> Float[Array, "rows columns"]:
    """Rows of a table."""
    return jnp.take(table, words, axis=0)


def _norm(function: Callable[..., Array]) -> Callable[[Sizes, str, int], Call]:
    def call(sizes: Sizes, dtype: str, seed: int) -> Call:
        x = random_array((sizes["rows"], sizes["columns"]), dtype, seed)
        return function, (x, random_array((sizes["columns"],), dtype, seed + 1))

    return call


def softmax(sizes: Sizes, dtype: str, seed: int) -> Call:
    """Softmax over the columns of every row."""
    return jax.nn.softmax, (random_array((sizes["rows"], sizes["columns"]), dtype, seed),)


def embedding(sizes: Sizes, dtype: str, seed: int) -> Call:
    """One row of the table a token, drawn uniformly."""
    words = np.random.default_rng(seed).integers(0, VOCABULARY, sizes["rows"], np.int32)
    return look_up, (random_array((VOCABULARY, sizes["columns"]), dtype, seed), jnp.asarray(words))


RMSNORM = Operation("rmsnorm", "norm", "rmsnorm", "jax.numpy", _SIZES, as_they_are, _norm(rmsnorm))
LAYERNORM = Operation("layernorm", "norm", "layernorm", "jax.numpy", _SIZES, as_they_are, _norm(layernorm))
SOFTMAX = Operation("softmax", "softmax", "softmax", "jax.nn.softmax", _SIZES, as_they_are, softmax)
EMBEDDING = Operation(
    "embedding",
    "embedding",
    "embedding",
    "jax.numpy.take",
    {"rows": Range(1, 65536), "columns": Range(64, 4096)},
    as_they_are,
    embedding,
)
