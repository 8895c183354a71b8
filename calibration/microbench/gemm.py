"""Matrix products: one, and a batch in which each has its own right-hand side."""

from __future__ import annotations

import functools

import jax
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


def gemm_fp8(sizes: Sizes, dtype: str, seed: int) -> Call:
    """y[m, n] = x[m, k] w[n, k] of E4M3 numbers, summed in fp32 and written in bf16."""
    product = functools.partial(
        jax.lax.dot_general, dimension_numbers=(((1,), (1,)), ((), ())), preferred_element_type=jnp.bfloat16
    )
    left = random_array((sizes["m"], sizes["k"]), dtype, seed)
    return product, (left, random_array((sizes["n"], sizes["k"]), dtype, seed + 1))


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
# Of GPUs: JAX gives the product to cuBLAS, whose rows of 8-bit numbers are of whole 16 bytes.
GEMM_FP8 = Operation(
    name="gemm_fp8",
    family="gemm",
    op="gemm",
    kernel="jax.lax.dot_general",
    sizes=GEMM.sizes,
    shape=as_they_are,
    call=gemm_fp8,
    dtypes=("fp8",),
    accepts=lambda sizes: sizes["n"] % 16 == 0 and sizes["k"] % 16 == 0,
)
