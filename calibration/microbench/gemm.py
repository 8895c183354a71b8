"""Matrix products: one, and a batch in which each has its own right-hand side."""

from __future__ import annotations

import jax.numpy as jnp

from calibration.microbench.operation import Call, Operation, Range, Sizes, as_they_are, random_array


def gemm(sizes: Sizes, dtype: str, seed: int) -> Call:
    """y[m, n] = x[m, k] w[k, n]."""
    left = random_array((sizes["m"], sizes["k"]), dtype, seed)
    return jnp.matmul, (left, random_array((sizes["k"], sizes["n"]), dtype, seed + 1))


def bmm(sizes: Sizes, dtype: str, seed: int) -> Call:
    """y[b, m, n] = x[b, m, k] w[b, k, n]."""
    left = random_array((sizes["batch"], sizes["m"], sizes["k"]), dtype, seed)
    return jnp.matmul, (left, random_array((sizes["batch"], sizes["k"], sizes["n"]), dtype, seed + 1))


GEMM = Operation(
    name="gemm",
    family="gemm",
    op="gemm",
    kernel="jax.numpy.matmul",
    sizes={"m": Range(1, 16384), "n": Range(64, 32768), "k": Range(64, 32768)},
    shape=as_they_are,
    call=gemm,
)
BMM = Operation(
    name="bmm",
    family="bmm",
    op="bmm",
    kernel="jax.numpy.matmul",
    sizes={"batch": Range(2, 256), "m": Range(1, 4096), "n": Range(16, 4096), "k": Range(16, 4096)},
    shape=as_they_are,
    call=bmm,
)
