"""Evaluate a point program over a grid in stages, one per set of axes, so that nothing is computed twice.

A plain nested vmap says the same, but XLA:CPU fuses cheap arithmetic into every loop that reads it, however few axes
it depends on, and so computes a tensor-parallel width or a kernel's tile count anew at each of a million points. Here
each value is computed over exactly the axes it depends on, and the results of a stage of some of the axes are closed to
fusion.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxperf.sweeps.program import Equation, Fixed, Program, dependencies

Axes = frozenset[int]

# A stage of several axes and up to so many points is traced over one, in half the time: a vmap for each makes operands
# of different shapes, which every operation broadcasts. Larger ones read small values where they lie.
FEW_ROWS = 2**13


@dataclass(frozen=True)
class Stage:
    """Equations that depend on the same `axes`; `takes` values of earlier stages and `gives` those that later ones
    or the program's outputs need."""

    axes: tuple[int, ...]
    equations: tuple[Equation, ...]
    takes: tuple[int, ...]
    gives: tuple[int, ...]

    def at_point(self, *values: Array) -> list[Array]:
        """Evaluate the stage at one point."""
        known = dict(zip(self.takes, values, strict=True))
        for equation in self.equations:
            known |= dict(zip(equation.results, equation.apply(known), strict=True))
        return [known[number] for number in self.gives]


def make_stages(program: Program, depends: Mapping[int, Axes]) -> list[Stage]:
    """The program cut into stages, those with fewer axes first: a value depends only on values of fewer axes."""
    groups: dict[Axes, list[Equation]] = {}
    for equation in program.equations:
        groups.setdefault(depends[equation.results[0]], []).append(equation)
    ordered = sorted(groups.items(), key=lambda item: (len(item[0]), sorted(item[0])))
    wanted = {one for one in program.outputs if isinstance(one, int)}
    stages: list[Stage] = []
    for axes, equations in reversed(ordered):
        made = {number for equation in equations for number in equation.results}
        takes = sorted({number for equation in equations for number in equation.numbers} - made)
        stages.append(Stage(tuple(sorted(axes)), tuple(equations), tuple(takes), tuple(sorted(made & wanted))))
        wanted |= set(takes)
    return stages[::-1]


def evaluate(
    program: Program, inputs: Sequence[Array], axes: Sequence[Axes], shape: Mapping[int, int], ones: Float[Array, 2]
) -> list[Array]:
    """All outputs over the full grid.

    **Arguments:** `inputs`: arrays with one leading dimension per axis they depend on, in order; `axes`: those axes;
    `shape`: length of each axis of the grid; `ones`: two ones the compiler does not know to be ones.
    **Returns:** one array of shape `shape` per output.
    """
    depends = dependencies(program, axes)
    values = dict(enumerate(inputs))
    for stage in make_stages(program, depends):
        points = math.prod(shape[axis] for axis in stage.axes)
        over = _over_rows if len(stage.axes) > 1 and points <= FEW_ROWS else _over_axes
        found = over(stage, values, depends, shape)
        # A scalar is no work to repeat, and the compiler folds the constants among them.
        is_open = len(stage.axes) in (0, len(shape))
        closed = found if is_open else [closed_to_fusion(value, ones) for value in found]
        values |= dict(zip(stage.gives, closed, strict=True))
    return [_spread(one, values, depends, shape) for one in program.outputs]


def _over_axes(
    stage: Stage, values: Mapping[int, Array], depends: Mapping[int, Axes], shape: Mapping[int, int]
) -> list[Array]:
    """The results of a stage, by a vmap for each of its axes."""
    call = stage.at_point
    for axis in reversed(stage.axes):
        call = jax.vmap(call, in_axes=tuple(0 if axis in depends[number] else None for number in stage.takes))
    return call(*(values[number] for number in stage.takes))


def _over_rows(
    stage: Stage, values: Mapping[int, Array], depends: Mapping[int, Axes], shape: Mapping[int, int]
) -> list[Array]:
    """The same by one vmap over the points, row by row."""
    grid = {axis: shape[axis] for axis in stage.axes}
    taken = [column_of(values[number], depends[number], grid) for number in stage.takes]
    call = jax.vmap(stage.at_point, in_axes=tuple(0 if depends[number] else None for number in stage.takes))
    return [found.reshape(*grid.values(), *found.shape[1:]) for found in call(*taken)]


def column_of(value: Array, held: Axes, shape: Mapping[int, int]) -> Array:
    """A value with a dimension for each axis that it holds as one of all rows; what holds none stays as it is."""
    if not held:
        return value
    return _over_all(value, held, shape).reshape(-1, *value.shape[len(held) :])


def _over_all(value: Array, held: Axes, shape: Mapping[int, int]) -> Array:
    """A value with a dimension for each axis that it holds, in order, as one with a dimension for every axis."""
    own = value.shape[len(held) :]
    kept = [place for place, axis in enumerate(shape) if axis in held]
    behind = range(len(shape), len(shape) + len(own))
    return jax.lax.broadcast_in_dim(value, (*shape.values(), *own), (*kept, *behind))


def closed_to_fusion(x: Array, ones: Float[Array, 2]) -> Array:
    """`x` itself, bit for bit, but computed once: XLA:CPU does not repeat a division to save a buffer.

    The divisor has the shape of `x` and is 1 either way, which the compiler cannot see.
    """
    if jnp.issubdtype(x.dtype, jnp.floating):
        one, other = ones.astype(x.dtype)
        return x / jnp.where(x > jnp.zeros((), x.dtype), one, other)
    if x.dtype == jnp.bool_:
        return closed_to_fusion(x.astype(ones.dtype), ones) > 0.5
    return x


def _spread(
    one: int | Fixed, values: Mapping[int, Array], depends: Mapping[int, Axes], shape: Mapping[int, int]
) -> Array:
    """A value as an array of the whole grid."""
    if isinstance(one, Fixed):
        return jnp.broadcast_to(jnp.asarray(one.value, np.asarray(one.value).dtype), tuple(shape.values()))
    return _over_all(values[one], depends[one], shape)


@functools.cache
def hidden_ones(dtype: str) -> Array:
    """The two ones that `evaluate` takes, as run-time arguments."""
    return jax.device_put(np.ones(2, dtype))
