"""Quantization of activations, with one scale a row."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from calibration.microbench.operation import Call, Operation, Range, Sizes, as_they_are, random_array


def quantize_int8(x: Float[Array, "m k"]) -> tuple[Array, Array]:
    """Whole numbers within +-127 and the scale of every row, its largest magnitude over 127."""
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True).astype(jnp.float32) / 127.0
    return jnp.round(x.astype(jnp.float32) / scale).astype(jnp.int8), scale


def quantize_fp8(x: Float[Array, "m k"]) -> tuple[Array, Array]:
    """E4M3 numbers, whose largest is 448, and the scale of every row."""
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True).astype(jnp.float32) / 448.0
    return (x.astype(jnp.float32) / scale).astype(jnp.float8_e4m3fn), scale


def quantize(sizes: Sizes, dtype: str, seed: int) -> Call:
    """From bf16 to the format of the row."""
    function = quantize_int8 if dtype == "int8" else quantize_fp8
    return function, (random_array((sizes["m"], sizes["k"]), "bf16", seed),)


QUANTIZE = Operation(
    name="quantize",
    family="quantize",
    op="scale_matrix",
    kernel="jax.numpy",
    sizes={"m": Range(1, 65536), "k": Range(64, 16384)},
    shape=as_they_are,
    call=quantize,
    dtypes=("int8", "fp8"),
)
