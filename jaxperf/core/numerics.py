"""Arithmetic that stays exact and differentiable under XLA; the only file that may call `floor` or `ceil`.

XLA may compile `a / broadcast(b)` to `a * (1 / b)`, after which a bare `ceil` gains a unit at exact multiples: a silent
error of up to a whole wave. Every integer quotient of the project goes through `ceil_div` or `floor_div`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

Scalar = Float[Array, ""]
REAL = "iufV"  # kinds of NumPy's dtypes; those that it lacks, such as bfloat16, are of kind V
HUGE = 1e38  # beyond any count
UNTRACED = (int, float, np.generic, np.ndarray)  # numbers that hold no tracer


def as_float(x: Any) -> Array:
    """`x` as an array of the default float type; the converter of every numeric Module field."""
    kind = jnp.result_type(float)
    if isinstance(x, UNTRACED):
        return jnp.asarray(np.asarray(x, kind))  # in a third of the time of what follows
    return jnp.asarray(x, kind)


def one_real(value: Any) -> Any:
    """`value` where it is one real number, traced or not, else None; a whole one of Python, of which JAX refuses the
    large, as the float that it is counted as."""
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) < HUGE:
            return float(value)
        return math.inf if value > 0 else -math.inf
    scalar = isinstance(value, np.number | np.ndarray | jax.Array) and value.ndim == 0 and value.dtype.kind in REAL
    return value if scalar or isinstance(value, float) else None


def plain_number(value: Any) -> Any:
    """One number of NumPy or JAX as Python's; anything else, a traced number too, as it is."""
    untraced = isinstance(value, np.generic | np.ndarray | jax.Array) and not isinstance(value, Tracer)
    return value.item() if untraced and value.ndim == 0 else value


def as_optional_float(x: Any) -> Array | None:
    """`as_float`, except that `None` stays: a leaf the structure does not have."""
    return None if x is None else as_float(x)


def stack(points: Sequence[Any]) -> Any:
    """Pytrees of one structure stacked leaf by leaf along a new leading axis: the values of a sweep axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)


@jax.custom_jvp
def ceil_div(a: Array, b: Array) -> Array:
    """Exact ceil(a / b) of non-negative integers stored as floats.

    Exact for |a| < 2**24 in float32 and 2**53 in float64. The derivative is straight-through: the slope of `a / b`.

    A quotient that rounding carried up to the next integer is the ceiling already, and one that it carried below an
    exact multiple lacks the unit that is added: one comparison repairs both.

    **Arguments:** `a`: any non-negative integer value [1]; `b`: positive integer value [1]; same shape.
    **Returns:** the quotient rounded up [1].
    """
    q = jnp.floor(a / b)
    return q + (q * b < a).astype(q.dtype)


@ceil_div.defjvp
def _(primals, tangents):
    (a, b), (da, db) = primals, tangents
    return ceil_div(a, b), (da - (a / b) * db) / b


@jax.custom_jvp
def floor_div(a: Array, b: Array) -> Array:
    """Exact floor(a / b) of integers stored as floats; `a` may be negative. Derivative as of `ceil_div`."""
    q = jnp.floor(a / b)
    q = q - (q * b > a).astype(q.dtype)
    return q + ((q + 1.0) * b <= a).astype(q.dtype)


@floor_div.defjvp
def _(primals, tangents):
    (a, b), (da, db) = primals, tangents
    return floor_div(a, b), (da - (a / b) * db) / b


def divides(divisor: Array, value: Array) -> Bool[Array, ...]:
    """Whether the integer-valued `divisor` divides the integer-valued `value`."""
    return ceil_div(value, divisor) * divisor == value


@jax.custom_jvp
def next_power_of_two(x: Array) -> Array:
    """The smallest power of two that is at least `x` (positive, normal). Straight-through derivative: slope 1."""
    mantissa, exponent = jnp.frexp(x)  # x = mantissa 2**exponent with mantissa in [0.5, 1); exp2 and log2 are not exact
    exponent = jnp.where(mantissa > 0.5, exponent, exponent - 1)
    # Written into the bits: ldexp multiplies by a power that a GPU rounds (2**11 became 2047.9999999999998).
    kind = jnp.finfo(x.dtype)
    biased = exponent.astype(f"int{kind.bits}") + (1 - int(kind.minexp))
    return jax.lax.bitcast_convert_type(biased << kind.nmant, x.dtype)


@next_power_of_two.defjvp
def _(primals, tangents):
    (x,), (dx,) = primals, tangents
    return next_power_of_two(x), dx


def safe_sqrt(x: Array) -> Array:
    """Square root with a zero derivative at zero, where the true one is infinite and would turn into NaN."""
    positive = x > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def overlap(*times: Array, sharpness: Array | None = None) -> Array:
    """Time of resources that work at the same time: a scale-free p-norm between their sum and their maximum.

    t = max(t_i) * (sum_i (t_i / max)^p)^(1/p); p = 1 is serial execution, p -> inf perfect overlap. At p = 8 two equal
    times give 2^(1/8) - 1 = 9 % more than the maximum (DESIGN section 6).

    **Arguments:** `times` [s]; `sharpness`: p >= 1, or `None` for the exact maximum (structure: decided at trace time).
    **Returns:** combined time [s].
    """
    longest = functools.reduce(jnp.maximum, times)
    if sharpness is None:
        return longest
    safe = jnp.where(longest > 0.0, longest, 1.0)
    ratios = [jnp.where(t > 0.0, t, 0.0) / safe for t in times]
    # x ** p has an infinite or NaN slope at x = 0, so the base is kept away from it and the term masked.
    terms = [jnp.where(r > 0.0, jnp.where(r > 0.0, r, 1.0) ** sharpness, 0.0) for r in ratios]
    total = functools.reduce(jnp.add, terms)
    return jnp.where(longest > 0.0, safe * jnp.where(longest > 0.0, total, 1.0) ** (1.0 / sharpness), 0.0)
