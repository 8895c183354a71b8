"""A point function at one point, or over few of them, on the host (`jaxperf.sweeps.host`): traced, never compiled."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import numpy as np
from jax.core import Tracer

from jaxperf.sweeps.host import evaluate_on_host
from jaxperf.sweeps.program import Program, flatten

OFTEN = 64  # calls of 20 to 50 ms each on the host, for the 2 to 6 s that a step of a model takes to compile


def evaluate_once(fn: Any, *arguments: Any) -> Any:
    """`fn(*arguments)` of a function made by `jax.jit`, which is traced once for all arguments of the same types."""
    return evaluate_over(fn, *arguments, along=((),) * len(arguments))


def evaluate_over(fn: Any, *arguments: Any, along: Sequence[tuple[int, ...]]) -> Any:
    """`fn` of a jitted point function over the product of axes, which is traced once for all lengths.

    **Arguments:** `along`: the axes, from 0 on, of the leading dimensions of each argument, in order.
    **Returns:** results with a leading dimension for every axis.
    """
    leaves = [jax.tree.leaves(argument) for argument in arguments]
    lengths: dict[int, int] = {}
    for own, axes in zip(leaves, along, strict=True):
        lengths |= dict(zip(axes, np.shape(own[0]), strict=False)) if own else {}
    traced = fn.trace(*(_first(argument, len(axes)) for argument, axes in zip(arguments, along, strict=True)))
    consts, kinds = list(traced.jaxpr.consts), [each.dtype for each in traced.jaxpr.in_avals]
    held = [frozenset(axes) for own, axes in zip(leaves, along, strict=True) for _ in own]
    given = jax.device_get([leaf for own in leaves for leaf in own])
    with np.errstate(over="ignore"):  # as compiled: infinite where it is beyond what single precision holds
        typed = [np.asarray(value, kind) for value, kind in zip(given, kinds, strict=True)]
    found = evaluate_on_host(_flat(traced.jaxpr), [*consts, *typed], [frozenset[int]()] * len(consts) + held, lengths)
    return jax.tree.unflatten(jax.tree.structure(traced.out_info), found)


def host_first(fn: Any) -> Callable[..., Any]:
    """A jitted point function that is compiled once it was called `OFTEN` times, and where a number is traced; until
    then each call is evaluated on the host."""
    calls = itertools.count()

    def call(*arguments: Any) -> Any:
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments))
        if traced or next(calls) >= OFTEN:
            return fn(*arguments)
        return jax.device_put(evaluate_once(fn, *arguments))

    return call


def _first(argument: Any, dimensions: int) -> Any:
    """The first point of an argument."""
    return jax.tree.map(lambda leaf: leaf[(0,) * dimensions], argument) if dimensions else argument


@functools.lru_cache(maxsize=32)
def _flat(closed: jax.extend.core.ClosedJaxpr) -> Program:
    return flatten(closed)
