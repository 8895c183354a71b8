"""A point function at one point, operation by operation, or over few points, compiled as a sweep is.

XLA takes 5 s to compile a serving step of 4,000 operations and 50 s for one of 17,000 with drafts, to run it in
microseconds. One by one they take 50 to 80 us each, and what is compiled is only the hundred kinds of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp

from jaxperf.core.compiler_options import for_few_points
from jaxperf.sweeps.program import Program, flatten
from jaxperf.sweeps.staged import evaluate, hidden_ones


def evaluate_once(fn: Any, *arguments: Any) -> Any:
    """`fn(*arguments)` of a function made by `jax.jit`, which is traced once for all arguments of the same types."""
    traced = fn.trace(*arguments)
    given = [jnp.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    found = _flat(traced.jaxpr).evaluate([*traced.jaxpr.consts, *given])
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), found)


def evaluate_over(fn: Any, *arguments: Any, along: Sequence[int | None]) -> Any:
    """`fn` of a jitted point function over the product of axes, which is compiled once for all of the same lengths.

    **Arguments:** `along`: the axis, from 0 on, of the leading dimension of each argument; None for one that has none.
    **Returns:** results with a leading dimension for every axis.
    """
    points, leaves, held, lengths = [], [], [], {}
    for argument, axis in zip(arguments, along, strict=True):
        own = jax.tree.leaves(argument)
        leaves += own
        held += [axis] * len(own)
        if axis is not None:
            lengths[axis] = len(own[0])
        points.append(argument if axis is None else jax.tree.map(lambda leaf: leaf[0], argument))
    traced = fn.trace(*points)
    call = _compiled(traced.jaxpr, tuple(held), tuple(sorted(lengths.items())))
    found = call(traced.jaxpr.consts, leaves, hidden_ones(str(jnp.result_type(float))))
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), found)


@functools.lru_cache(maxsize=8)
def _compiled(
    closed: jax.extend.core.ClosedJaxpr, held: tuple[int | None, ...], lengths: tuple[tuple[int, int], ...]
) -> Callable[..., list[jax.Array]]:
    program, none = _flat(closed), [frozenset[int]()] * len(closed.consts)
    axes = none + [frozenset() if axis is None else frozenset({axis}) for axis in held]

    def every(consts: Sequence[Any], leaves: Sequence[Any], ones: jax.Array) -> list[jax.Array]:
        return evaluate(program, [*consts, *leaves], axes, dict(lengths), ones)

    return jax.jit(every, compiler_options=for_few_points())


@functools.lru_cache(maxsize=8)
def _flat(closed: jax.extend.core.ClosedJaxpr) -> Program:
    return flatten(closed)
