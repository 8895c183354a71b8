"""A traced program on host arrays, operation by operation in NumPy: nothing is compiled, which few points never repay.

XLA takes seconds to compile a serving step of 4,000 operations, and in JAX each of them takes 50 us by itself; in NumPy
it takes 1. What IEEE 754 rounds exactly has the same bits either way; powers, logarithms and sums may differ in the
last place. What NumPy has no word for, branches and loops of unknown length are left to JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxperf.core.loop_operands import scan_operands
from jaxperf.sweeps.host_rules import RULES, SAME, aligned, stacked
from jaxperf.sweeps.program import Equation, Fixed, Operand, Program, flatten

Axes = frozenset[int]
TURNS = 64  # of a loop; longer ones are compiled


def evaluate_on_host(
    program: Program, inputs: Sequence[Any], axes: Sequence[Axes] | None = None, shape: Mapping[int, int] | None = None
) -> list[np.ndarray]:
    """All outputs of a program at one point, or over the grid of some axes.

    **Arguments:** `inputs`: arrays with one leading dimension per axis they depend on, in order; `axes`: those axes;
    `shape`: length of each axis of the grid, by its number from 0 on.
    **Returns:** one array of the grid's shape, then its own, per output.
    """
    lengths = tuple((shape or {})[axis] for axis in sorted(shape or {}))
    held = axes or [frozenset()] * len(inputs)
    given = [_with_every_axis(np.asarray(each), own, len(lengths)) for each, own in zip(inputs, held, strict=True)]
    with np.errstate(all="ignore"):  # branches that are not taken divide by zero
        found = _evaluated(program, given, len(lengths))
    return [np.broadcast_to(value, (*lengths, *np.shape(value)[len(lengths) :])) for value in found]


def _with_every_axis(value: np.ndarray, held: Axes, count: int) -> np.ndarray:
    """A value with a dimension of one for each axis of the grid that it does not hold."""
    lengths = iter(value.shape)
    every = tuple(next(lengths) if axis in held else 1 for axis in range(count))
    return value.reshape((*every, *value.shape[len(held) :])) if count else value


def _evaluated(program: Program, inputs: Sequence[Any], count: int) -> list[Any]:
    """The outputs, each with a dimension for every axis, as the inputs have."""
    values = dict(enumerate(inputs))
    for equation, done in zip(program.equations, program.last_uses, strict=True):
        given = [_value(one, values, count) for one in equation.operands]
        values.update(zip(equation.results, _applied(equation, given, count), strict=True))
        for number in done:
            del values[number]
    return [_value(one, values, count) for one in program.outputs]


def _value(one: Operand, values: Mapping[int, Any], count: int) -> Any:
    if not isinstance(one, Fixed):
        return values[one]
    return np.reshape(one.value, (*(1,) * count, *np.shape(one.value))) if count else one.value


def _applied(equation: Equation, given: Sequence[Any], count: int) -> Sequence[Any]:
    name = equation.primitive.name
    if name in SAME:
        return [SAME[name](*aligned(given, count))]
    if name == "scan" and equation.params["length"] <= TURNS:
        return _scanned(equation.params, count, given)
    rule = RULES.get(name)
    found = None if rule is None else rule(equation.params, count, *given)
    return _by_jax(equation, given, count) if found is None else [found]


def _by_jax(equation: Equation, given: Sequence[Any], count: int) -> Sequence[Any]:
    """What NumPy has no word for, by JAX over the axes of which an operand has more than one point."""
    held = [frozenset(axis for axis in range(count) if np.shape(value)[axis] > 1) for value in given]
    every = sorted(frozenset().union(*held))
    call = equation.bind
    for axis in reversed(every):
        call = jax.vmap(call, in_axes=tuple(0 if axis in own else None for own in held))
    dense = [
        np.squeeze(value, tuple(axis for axis in range(count) if axis not in own))
        for value, own in zip(given, held, strict=True)
    ]
    return [_with_every_axis(np.asarray(found), frozenset(every), count) for found in call(*dense)]


def _scanned(params: Any, count: int, given: Sequence[Any]) -> Sequence[Any]:
    """A loop of a known number of turns, each of which takes a row of some operands and makes a row of some results."""
    fixed, carried = scan_operands(params)
    carry, rows, turns = list(given[fixed:][:carried]), given[fixed + carried :], range(params["length"])
    body, made = _body(params["jaxpr"]), []
    for turn in reversed(turns) if params["reverse"] else turns:
        row = [np.take(each, turn, axis=count) for each in rows]
        consts = [_with_every_axis(np.asarray(const), frozenset(), count) for const in params["jaxpr"].consts]
        found = _evaluated(body, [*consts, *given[:fixed], *carry, *row], count)
        carry, made = found[: len(carry)], [*made, found[len(carry) :]]
    order = made[::-1] if params["reverse"] else made
    return [*carry, *(stacked({"axis": 0}, count, *column) for column in zip(*order, strict=True))]


@functools.lru_cache(maxsize=64)
def _body(closed: Any) -> Program:
    return flatten(closed)
