"""The point function of a sweep, traced once."""

from __future__ import annotations

import hashlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from hwspecs.errors import InputError, did_you_mean
from jaxperf.sweeps.axes import Axis
from jaxperf.sweeps.program import Program, flatten

PointFunction = Callable[..., PyTree]


@dataclass(frozen=True)
class TracedPoint:
    """A point function as a program: the leaves of its arguments, axis by axis, to a tuple of scalars.

    The user's Python runs exactly once, at scalar shapes; everything later evaluates `program`. Arrays it closes over
    are `constants`, its first inputs, passed at run time so that a large table is never compiled into the code.
    """

    program: Program
    constants: tuple[Array, ...]
    metrics: Mapping[str, np.dtype]

    @property
    def bytes_per_point(self) -> int:
        return sum(dtype.itemsize for dtype in self.metrics.values())

    def fingerprint(self) -> str:
        """A hash of the formula and its constants, equal in every process."""
        digest = hashlib.sha256(self.program.fingerprint().encode())
        for constant in self.constants:
            array = np.asarray(constant)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()


def trace_point(fn: PointFunction, axes: Sequence[Axis]) -> TracedPoint:
    """Trace `fn` at one point of the product of `axes`.

    **Raises:** `InputError` if the axes do not match the arguments of `fn`, or an output is not a scalar number.
    """
    _check_arguments(fn, [key for one in axes for key in one.arguments])
    point = tuple(jax.tree.map(_scalar_spec, dict(one.arguments)) for one in axes)

    def flat(*arguments: Mapping[str, PyTree]) -> OrderedDict[str, Array]:
        merged = {key: tree for mapping in arguments for key, tree in mapping.items()}
        return named_scalars(fn(**merged))

    closed, shapes = jax.make_jaxpr(flat, return_shape=True)(*point)
    metrics = {name: np.dtype(shape.dtype) for name, shape in shapes.items()}
    return TracedPoint(flatten(closed), tuple(closed.consts), metrics)


def named_scalars(output: PyTree) -> OrderedDict[str, Array]:
    """The scalars of `output` under dotted names, in the order the function wrote them; a bare scalar is "value".

    **Raises:** `InputError` for an output that is not a scalar number, or two outputs of one name.
    """
    found: OrderedDict[str, Array] = OrderedDict()  # a plain dict would come back from JAX sorted by name
    for parts, leaf in _walk((), output):
        name = ".".join(parts) or "value"
        if name in found:
            raise InputError(f"The point function returns two metrics named '{name}'.")
        found[name] = _scalar(name, leaf)
    if not found:
        raise InputError("The point function returns no metric; return a mapping of names to scalars.")
    return found


def _walk(parts: tuple[str, ...], node: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, Mapping):  # by hand, because JAX sorts mappings by key
        for key, child in node.items():
            yield from _walk((*parts, str(key)), child)
        return
    pairs, _ = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda leaf: isinstance(leaf, Mapping))
    for path, leaf in pairs:
        below = (*parts, *(jax.tree_util.keystr((key,), simple=True) for key in path))
        if isinstance(leaf, Mapping):
            yield from _walk(below, leaf)
        else:
            yield below, leaf


def _scalar(name: str, leaf: Any) -> Array:
    if isinstance(leaf, (str, bytes)) or not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float)):
        raise InputError(f"Metric '{name}' is a {type(leaf).__name__}; a metric must be a number.")
    array = jnp.asarray(leaf)
    if array.shape != ():
        raise InputError(f"Metric '{name}' has shape {array.shape}; a point function returns scalars.")
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise InputError(f"Metric '{name}' has type {array.dtype}; a metric must be a real number or a boolean.")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise InputError(f"Metric '{name}' is complex; return its real and imaginary parts as two metrics.")
    return array.astype(array.dtype)  # a weak type would be another in the next block, which is written over this one


def _scalar_spec(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], jax.dtypes.canonicalize_dtype(leaf.dtype))


def _check_arguments(fn: PointFunction, given: Sequence[str]) -> None:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some callables carry no signature; the call itself will tell
        return
    by_name = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names = [one.name for one in by_name]
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        for name in given:
            if name not in names:
                raise InputError(
                    f"The point function has no argument '{name}' (it has {', '.join(names) or 'none'})."
                    + did_you_mean(name, names)
                )
    missing = [one.name for one in by_name if one.default is one.empty and one.name not in given]
    if missing:
        raise InputError(f"No axis gives the point function's argument {' or '.join(map(repr, missing))}.")
