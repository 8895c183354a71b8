"""Elementwise operations: the sum of two arrays, and an activation."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from calibration.microbench.operation import Call, Operation, Range, Sizes, random_array

_SIZES = {"rows": Range(1, 65536), "columns": Range(64, 16384)}


def add(sizes: Sizes, dtype: str, seed: int) -> Call:
    """x + y: two arrays read, one written."""
    shape = (sizes["rows"], sizes["columns"])
    return jnp.add, (random_array(shape, dtype, seed), random_array(shape, dtype, seed + 1))


def gelu(sizes: Sizes, dtype: str, seed: int) -> Call:
    """The tanh form of GELU: one array read, one written."""
    return jax.nn.gelu, (random_array((sizes["rows"], sizes["columns"]), dtype, seed),)


def add_shape(sizes: Sizes) -> dict[str, int]:
    """The columns of `add`."""
    elements = sizes["rows"] * sizes["columns"]
    return {"elements_in": 2 * elements, "elements_out": elements, "rows": sizes["rows"]}


def gelu_shape(sizes: Sizes) -> dict[str, int]:
    """The columns of `gelu`."""
    elements = sizes["rows"] * sizes["columns"]
    return {"elements_in": elements, "elements_out": elements, "rows": sizes["rows"]}


ADD = Operation("add", "elementwise", "add", "jax.numpy.add", _SIZES, add_shape, add)
GELU = Operation("gelu", "elementwise", "gelu", "jax.nn.gelu", _SIZES, gelu_shape, gelu)
