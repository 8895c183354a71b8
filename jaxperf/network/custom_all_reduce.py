"""All-reduce of serving engines for small buffers: peers read each other's memory, without rings.

One-shot: every rank reads all peers' buffers, alpha + (n-1) S / B. Two-shot: a reduce-scatter, then an all-gather,
2 alpha + 2 (n-1)/n S / B (`alpha_beta`). Which of them runs is a rule of thresholds (vLLM, csrc/custom_all_reduce.cuh,
whose kernels SGLang shares); above a limit the engine calls the library (`CustomAllreduce.max_size`, 8 MiB).
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.network.alpha_beta import Hop, direct_all_reduce, one_shot_all_reduce

KIB = 1024.0
ONE_SHOT_PAIR = 8192.0 * KIB  # two ranks: one-shot up to the limit, because it moves no more bytes than two-shot
ONE_SHOT_FOUR = 512.0 * KIB
ONE_SHOT_EIGHT = 256.0 * KIB
LIMIT = 8192.0 * KIB


def one_shot_limit(ranks: Scalar) -> Scalar:
    """The size below which the engine takes one shot [byte]."""
    small_group = jnp.where(ranks <= 4.0, ONE_SHOT_FOUR, ONE_SHOT_EIGHT)
    return jnp.where(ranks <= 2.0, ONE_SHOT_PAIR, small_group)


def custom_all_reduce_time(
    ranks: Scalar, size: Scalar, hop: Hop, library: Scalar, limit: Scalar
) -> tuple[Scalar, Scalar]:
    """Time of an engine's all-reduce [s], and its kind: 0 one-shot, 1 two-shot, 2 the library.

    **Arguments:** `hop`: alpha of one barrier among the ranks, B of a rank in one direction; `library`: time that the
    library takes instead [s]; `limit`: the least size for which it is called [byte].
    """
    one, small = size < one_shot_limit(ranks), size < limit
    direct = jnp.where(one, one_shot_all_reduce(ranks, size, hop), direct_all_reduce(ranks, size, hop))
    kind = jnp.where(small, jnp.where(one, 0, 1), 2)
    return jnp.where(ranks > 1.0, jnp.where(small, direct, library), 0.0), kind
