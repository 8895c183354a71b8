"""A point function at one point, or over few of them, on the host (`jaxperf.sweeps.host`): traced, never compiled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core

from jaxperf.sweeps.host import evaluate_on_host
from jaxperf.sweeps.program import Program, flatten


def evaluate_once(fn: Any, *arguments: Any) -> Any:
    """`fn(*arguments)` of a function made by `jax.jit`, which is traced once for all arguments of the same types."""
    traced = fn.trace(*arguments)
    given = jax.device_get(jax.tree.leaves(arguments))
    found = evaluate_on_host(_flat(traced.jaxpr), [*traced.jaxpr.consts, *given])
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), found)


def evaluate_over(fn: Any, *arguments: Any, along: Sequence[int | None]) -> Any:
    """`fn` of a jitted point function over the product of axes, which is traced once for all lengths.

    **Arguments:** `along`: the axis, from 0 on, of the leading dimension of each argument; None for one that has none.
    **Returns:** results with a leading dimension for every axis.
    """
    points, leaves, held = [], [], []
    lengths: dict[int, int] = {}
    for argument, axis in zip(arguments, along, strict=True):
        own = jax.tree.leaves(argument)
        leaves += own
        held += [axis] * len(own)
        if axis is not None:
            lengths[axis] = len(own[0])
        points.append(argument if axis is None else jax.tree.map(lambda leaf: leaf[0], argument))
    traced = fn.trace(*points)
    none = [frozenset[int]()] * len(traced.jaxpr.consts)
    axes = none + [frozenset() if axis is None else frozenset({axis}) for axis in held]
    found = evaluate_on_host(_flat(traced.jaxpr), [*traced.jaxpr.consts, *jax.device_get(leaves)], axes, lengths)
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), found)


@functools.lru_cache(maxsize=8)
def _flat(closed: jax.extend.core.ClosedJaxpr) -> Program:
    return flatten(closed)
