"""Which tiles a grouped product of experts is cut into, by the rules of the software that multiplies."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from calibration.datasets.tuned_experts import WIDEST, files
from calibration.kernels.asked import Shape, does, way
from calibration.kernels.expert_load import Load, whole_rows
from jaxperf.core.numerics import Scalar, next_power_of_two

# Rows and columns of the first candidate for grouped products on Hopper in TensorRT-LLM's and FlashInfer's CUTLASS
# kernels, which run it where nobody tuned them (`get_candidate_tiles_sm90` of cutlass_heuristic.cpp). Its steps are of
# 128 bytes, so that a block fetches eight times as many bytes of rows as of weights.
FIRST = (128.0, 16.0)
FILES = files()


class Tile(eqx.Module):
    """An output tile of a grouped product, the depth of one of its steps, and how many steps are fetched `ahead` (the
    stages of its pipeline less the one that is multiplied) [1]."""

    rows: Float[Array, ""]
    columns: Float[Array, ""]
    depth: Float[Array, ""]
    ahead: Float[Array, ""]


def tile(x: Shape, given: Load, itemsize: Scalar) -> Tile:
    """The tile that the software of a kernel chooses.

    Where the ways name no rule, a library's: the next power of two above an expert's rows, 16 to 128, of 128 columns.
    """
    local = x["experts"] / x["ep"]
    usual = jnp.clip(next_power_of_two(whole_rows(given.rows / given.touched)), 16.0, 128.0)
    chosen = [usual, *(jnp.full_like(usual, each) for each in (128.0, 64.0, 3.0))]
    for name, own in {
        "tiles_by_experts": _by_experts(given.tokens, local, itemsize),
        "tiles_by_tokens": _by_tokens(x, given.tokens, itemsize),
        "tiles_by_copies": _by_copies(given.copies / local),
        "untuned": (*FIRST, 128.0 / itemsize, 3.0),
    }.items():
        named = does(x, name) & ~_tuned(x)
        chosen = [jnp.where(named, mine, other) for mine, other in zip(own, chosen, strict=True)]
    return Tile(*chosen)


def _tuned(x: Shape) -> Bool[Array, ""]:
    """Whether the engine ships tiles for such experts on the device (`x["tuned_files"]`: row of `files`): the best of
    many, so those of a library."""
    layer = x["experts"] / x["ep"] * WIDEST + x["inter"] / x["tp"]
    row = jnp.asarray(FILES)[jnp.asarray(way(x, "tuned_files"), int)]
    return jnp.any(row == layer)


def _by_experts(tokens: Scalar, local: Scalar, itemsize: Scalar) -> tuple[Scalar | float, ...]:
    """`get_default_config` of SGLang's fused_moe_triton_config.py, and of vLLM's fused_moe.py until 0.14: 16 x 32 where
    tokens are no more than experts, else 64 x 64; of 8-bit blocks 64 x 128."""
    few, narrow = tokens <= local, itemsize < 2.0
    return (
        jnp.where(few & ~narrow, 16.0, 64.0),
        jnp.where(narrow, 128.0, jnp.where(few, 32.0, 64.0)),
        jnp.where(narrow, 128.0, jnp.where(few, 64.0, 32.0)),
        2.0,
    )


def _by_tokens(x: Shape, tokens: Scalar, itemsize: Scalar) -> tuple[Scalar | float, ...]:
    """`get_default_config` of later versions of vLLM's fused_moe.py; of 8-bit blocks as recalled."""
    blocks, narrow = does(x, "in_blocks"), itemsize < 2.0
    rows = jnp.where(tokens <= 32.0, 16.0, jnp.where(tokens <= 96.0, 32.0, jnp.where(tokens <= 512.0, 64.0, 128.0)))
    return (
        jnp.where(blocks, jnp.where(tokens <= 64.0, 16.0, 64.0), rows),
        jnp.where(blocks | (tokens > 64.0), 128.0, 64.0),
        jnp.where(narrow | (tokens <= 64.0), 128.0, 64.0),
        jnp.where((tokens <= 32.0) & ~blocks, 3.0, 2.0),
    )


def _by_copies(each: Scalar) -> tuple[Scalar | float, ...]:
    """Marlin's `fused_marlin_moe` (recalled): the least of some heights of which a mean expert's copies fill 0.9."""
    rows = jnp.full_like(each, 64.0)
    for height in (48.0, 32.0, 16.0):
        rows = jnp.where(each < 0.9 * height, height, rows)
    return rows, 128.0, 64.0, 3.0
