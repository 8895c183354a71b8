"""JAX's abstract values as the values of a program, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError
from jaxperf.io.program import Value

# Names of formats here by those of NumPy; integers and masks keep their own.
FORMATS = {
    "float64": "fp64",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    **dict.fromkeys(
        ("float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        "fp8",
    ),
}
PACKED = {"int2": 0.25, "uint2": 0.25, "int4": 0.5, "uint4": 0.5, "float4_e2m1fn": 0.5}  # bytes; NumPy pads them to one


def value_of(aval: Any) -> Value:
    """Shape and format of an abstract value; a token or another thing without a shape takes no memory."""
    shape = getattr(aval, "shape", ())
    dtype = getattr(aval, "dtype", None)
    if dtype is None:
        return Value((), "token", 0.0)
    size = PACKED.get(str(dtype), float(getattr(dtype, "itemsize", 8)))  # a random key is two 32-bit words
    try:
        return Value(tuple(int(extent) for extent in shape), FORMATS.get(str(dtype), str(dtype)), size)
    except Exception:  # a symbolic extent of jax.export does not become a number
        raise InputError(f"a dimension of {aval} is not a number; give every shape in numbers.") from None


def struct(shape: Sequence[int], dtype: str) -> jax.ShapeDtypeStruct:
    """An argument of this shape and NumPy type name."""
    return jax.ShapeDtypeStruct(tuple(shape), np.dtype(jnp.dtype(dtype)))
