"""Each operation of a traced program in NumPy, on operands with a leading dimension for every axis of a grid."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

Rule = Callable[..., Any]  # of the parameters, the number of axes and the operands


def _divide(x: Any, y: Any) -> Any:
    """Of whole numbers the quotient without its fraction."""
    if np.issubdtype(x.dtype, np.floating):
        return np.divide(x, y)
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))


def _power(x: Any, y: Any) -> Any:
    return np.power(x, y).astype(x.dtype)


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


SAME: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "ceil": np.ceil,
    "cos": np.cos,
    "div": _divide,
    "eq": np.equal,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": _logistic,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "pow": _power,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "stop_gradient": np.asarray,
    "sub": np.subtract,
    "tanh": np.tanh,
    "xor": np.bitwise_xor,
}
REDUCED = {"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod}
REDUCED |= {"reduce_and": np.all, "reduce_or": np.any}
ALONG = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}


def aligned(given: Sequence[Any], count: int) -> Sequence[Any]:
    """Values of the same own rank: a number beside arrays is the same for all that each of them holds."""
    ranks = [value.ndim for value in given] if count else [0]
    rank = max(ranks)
    if min(ranks) == rank:
        return given
    return [np.reshape(x, (*x.shape[:count], *(1,) * (rank - np.ndim(x)), *x.shape[count:])) for x in given]


def _selected(params: Any, count: int, which: Any, *cases: Any) -> Any:
    at, *values = aligned((which, *cases), count)
    return np.where(at, values[1], values[0]) if at.dtype == np.bool_ else np.choose(at, values, mode="clip")


def _rounded(params: Any, count: int, x: Any) -> Any:
    even = params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return np.rint(x) if even else np.trunc(x + np.copysign(np.asarray(0.5, x.dtype), x))


def _largest(params: Any, count: int, x: Any) -> Any:
    (axis,) = params["axes"]
    return np.argmax(x, axis=axis + count).astype(params["index_dtype"])


def _product(params: Any, count: int, x: Any, y: Any) -> Any:
    """The sum over some axes of both, alike at all of the batch's; the fast way where one is the same at all points."""
    (over_x, over_y), (batch_x, batch_y) = params["dimension_numbers"]
    kind = params["preferred_element_type"] or x.dtype
    if math.prod(y.shape[:count]) == 1 and not batch_x:
        found = np.tensordot(x, y.reshape(y.shape[count:]), ([axis + count for axis in over_x], over_y))
        return found.astype(kind)
    names = iter(string.ascii_letters)
    of_x = [next(names) for _ in x.shape[count:]]
    same = dict(zip((*over_y, *batch_y), (*over_x, *batch_x), strict=True))
    of_y = [of_x[same[axis]] if axis in same else next(names) for axis in range(y.ndim - count)]
    kept = [each for axis, each in enumerate(of_x) if axis not in (*over_x, *batch_x)]
    kept += [each for axis, each in enumerate(of_y) if axis not in same]
    wanted = "".join([*(of_x[axis] for axis in batch_x), *kept])
    return np.einsum(f"...{''.join(of_x)},...{''.join(of_y)}->...{wanted}", x, y).astype(kind)


def _converted(params: Any, count: int, x: Any) -> Any:
    kind = np.dtype(params["new_dtype"])
    if np.issubdtype(x.dtype, np.floating) and np.issubdtype(kind, np.integer):
        return _whole(kind, x)
    return x.astype(kind)


def _whole(kind: np.dtype, x: Any) -> Any:
    """The nearest integer there is, as in XLA; in 64 bits the largest is no float."""
    ends = np.iinfo(kind)
    inside = np.clip(np.nan_to_num(x, nan=0.0), ends.min, ends.max)
    return np.where(inside >= ends.max, ends.max, np.where(inside >= ends.max, 0.0, inside).astype(kind))


def _seen_as(params: Any, count: int, x: Any) -> Any:
    kind = np.dtype(params["new_dtype"])
    return np.asarray(x).view(kind) if kind.itemsize == x.dtype.itemsize else None


def _integer_power(params: Any, count: int, x: Any) -> Any:
    return np.power(x, np.asarray(params["y"], x.dtype)) if np.issubdtype(x.dtype, np.floating) else None


def _broadcast(params: Any, count: int, x: Any) -> Any:
    own, places = np.shape(x)[count:], params["broadcast_dimensions"]
    sizes = dict(zip(places, own, strict=True))
    shape = params["shape"]
    batch = np.shape(x)[:count]
    laid = np.reshape(x, (*batch, *(sizes.get(place, 1) for place in range(len(shape)))))
    return np.broadcast_to(laid, (*batch, *shape))


def _reshaped(params: Any, count: int, x: Any) -> Any:
    return None if params["dimensions"] is not None else np.reshape(x, (*x.shape[:count], *params["new_sizes"]))


def _squeezed(params: Any, count: int, x: Any) -> Any:
    return np.squeeze(x, tuple(int(axis) + count for axis in params["dimensions"]))


def _reduced(reduce: Callable[..., Any], params: Any, count: int, x: Any) -> Any:
    return reduce(x, axis=tuple(int(axis) + count for axis in params["axes"]))


def _along(accumulate: Callable[..., Any], params: Any, count: int, x: Any) -> Any:
    return None if params["reverse"] else accumulate(x, axis=params["axis"] + count)


def _slice(params: Any, count: int, x: Any) -> Any:
    starts, ends = params["start_indices"], params["limit_indices"]
    steps = params["strides"] or (1,) * len(starts)
    return x[(slice(None),) * count + tuple(map(slice, starts, ends, steps))]


def _joined(params: Any, count: int, *parts: Any) -> Any:
    """Parts that not all hold the same axes."""
    batch = np.broadcast_shapes(*(np.shape(part)[:count] for part in parts))
    full = [np.broadcast_to(part, (*batch, *np.shape(part)[count:])) for part in parts]
    return np.concatenate(full, axis=params["dimension"] + count)


def stacked(params: Any, count: int, *parts: Any) -> Any:
    """Parts of one own shape along a new axis."""
    return np.stack(np.broadcast_arrays(*parts), axis=params["axis"] + count)


def _counted(params: Any, count: int) -> Any:
    shape, axis = params["shape"], params["dimension"]
    line = np.arange(shape[axis], dtype=params["dtype"])
    laid = line.reshape(*(1,) * count, *(size if place == axis else 1 for place, size in enumerate(shape)))
    return np.broadcast_to(laid, (*(1,) * count, *shape))


def _reversed(params: Any, count: int, x: Any) -> Any:
    return np.flip(x, tuple(axis + count for axis in params["dimensions"]))


def _transposed(params: Any, count: int, x: Any) -> Any:
    return np.transpose(x, (*range(count), *(axis + count for axis in params["permutation"])))


def _dynamic_slice(params: Any, count: int, x: Any, *starts: Any) -> Any:
    """Indices of the points, each of its own row, then those of the slice, which begins where all of it is inside."""
    sizes, whole = params["slice_sizes"], x.shape[count:]
    rank = len(sizes)
    at = [np.arange(size).reshape(_only(axis, count + rank)) for axis, size in enumerate(x.shape[:count])]
    for place, (start, size, length) in enumerate(zip(starts, sizes, whole, strict=True)):
        first = np.clip(start, 0, length - size).reshape(*np.shape(start), *(1,) * rank)
        at.append(first + np.arange(size).reshape(_only(count + place, count + rank)))
    return x[tuple(at)]


def _only(axis: int, rank: int) -> tuple[int, ...]:
    """The shape of an array of this rank that lies along one axis."""
    return tuple(-1 if place == axis else 1 for place in range(rank))


# None where the rule does not say what becomes of these operands.
RULES: dict[str, Rule] = {
    "argmax": _largest,
    "bitcast_convert_type": _seen_as,
    "broadcast_in_dim": _broadcast,
    "concatenate": _joined,
    "convert_element_type": _converted,
    "dot_general": _product,
    "dynamic_slice": _dynamic_slice,
    "integer_pow": _integer_power,
    "iota": _counted,
    "reshape": _reshaped,
    "rev": _reversed,
    "round": _rounded,
    "select_n": _selected,
    "slice": _slice,
    "squeeze": _squeezed,
    "stack": stacked,
    "transpose": _transposed,
}
RULES |= {name: functools.partial(_reduced, reduce) for name, reduce in REDUCED.items()}
RULES |= {name: functools.partial(_along, accumulate) for name, accumulate in ALONG.items()}
