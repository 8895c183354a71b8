"""How many words of an operand reach one instance of a level: tiles that stay, slide or are fetched again.

Parashar et al., "Timeloop: A Systematic Approach to DNN Accelerator Evaluation", ISPASS 2019, section VI, and its
nest analysis (src/loop-analysis/nest-analysis.cpp): a tile stays while only loops run that do not index it, overlaps
its predecessor while the innermost loop that does slides a window along an axis, and is fetched anew by every other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.mapping import Loop, Nest, product
from jaxperf.loopnest.problem import Axis, Operand, Problem


class Rules(NamedTuple):
    """Where versions of Timeloop count differently; structure, known at trace time.

    `slides_over_reuse`: a window keeps its overlap, and a tile found in place is kept, whether or not a loop that does
    not index them runs inside of the slide; else the first holds only where none does, the second where one does;
    `elides_first_fill`: results start empty, so that their first tiles are not filled from above.
    """

    slides_over_reuse: bool
    elides_first_fill: bool


RULES = {
    "head": Rules(slides_over_reuse=True, elides_first_fill=True),
    "2024": Rules(slides_over_reuse=False, elides_first_fill=True),
    "dosa": Rules(slides_over_reuse=False, elides_first_fill=False),
}


def extent(axis: Axis, tile: list[Scalar], problem: Problem) -> Scalar:
    """Indices of an axis that a tile covers: sum_d coefficient_d (b_d - 1) + 1 [1]."""
    return _total(problem.coefficients[c] * (tile[d] - 1.0) for d, c in axis) + 1.0


def tile_size(operand: Operand, tile: list[Scalar], problem: Problem) -> Scalar:
    """Words of an operand in a tile of so many indices of each dimension [word]."""
    return product(extent(axis, tile, problem) for axis in operand.axes)


def deliveries(operand: Operand, problem: Problem, nest: Nest, level: int, rules: Rules) -> Scalar:
    """Words of `operand` that one instance of `level` receives over the whole run [word].

    Without overlap every loop from the innermost relevant one outwards brings the tile again:
    D = size x product of their bounds. Iterations in which part of the tile is still there save it:
    D -= sum_j (n_j - 1) saved_j x product of the bounds outside j.
    """
    loops = [loop for outer in nest.loops[level + 1 :] for loop in outer]
    tile = nest.tile[level]
    first = _first_position(operand, loops)
    total = tile_size(operand, tile, problem)
    total = total * product(jnp.where(loop.position >= first, loop.bound, 1.0) for loop in loops)
    for axis in operand.axes:
        if len(axis) > 1:  # an axis of one loop moves on by at least its tile: nothing is left
            slice_size = product(extent(other, tile, problem) for other in operand.axes if other is not axis)
            total = total - slice_size * _saved(operand, axis, problem, tile, loops, first, rules)
    return total


def _first_position(operand: Operand, loops: list[Loop]) -> Scalar:
    """Position of the innermost loop that indexes the operand and runs more than once; infinite where none does."""
    places = [
        jnp.where(loop.bound > 1.0, loop.position, jnp.inf) for loop in loops if loop.dimension in operand.relevant
    ]
    return functools.reduce(jnp.minimum, places, jnp.asarray(jnp.inf, loops[0].bound.dtype))


def _saved(
    operand: Operand, axis: Axis, problem: Problem, tile: list[Scalar], loops: list[Loop], first: Scalar, rules: Rules
) -> Scalar:
    """Indices of `axis` that need not be fetched again because its windows overlap, over the whole run [1].

    The innermost relevant loop moves the window by s and keeps extent - s of it. Timeloop walks two iterations of
    every loop and takes the second for all later ones, so a loop further out finds the window where the inner loops'
    second iterations left it: it keeps all of the tile where it moves just there, and the overlap where it moves by s
    further, provided that only loops of the same axis moved it.
    """
    coefficients = {d: problem.coefficients[c] for d, c in axis}
    along = [(loop, coefficients[loop.dimension] * loop.step) for loop in loops if loop.dimension in coefficients]
    across = [loop for loop in loops if loop.dimension in operand.relevant - coefficients.keys()]
    window = extent(axis, tile, problem)
    slide = _total(jnp.where(loop.position == first, move, 0.0) for loop, move in along)
    overlap, again = jnp.maximum(window - slide, 0.0), window
    if not rules.slides_over_reuse:
        reused = _runs_inside([loop for loop in loops if loop.dimension not in operand.relevant], first)
        overlap, again = jnp.where(reused, 0.0, overlap), jnp.where(reused, again, 0.0)
    saved = []
    for loop, move in along:
        shift = move - _total(jnp.where(_is_inside(inner, loop.position), moved, 0.0) for inner, moved in along)
        follows = (loop.position > first) & (slide > 0.0) & ~_runs_inside(across, loop.position)
        found = jnp.where(shift == 0.0, again, jnp.where(shift == slide, overlap, 0.0))
        kept = jnp.where(loop.position == first, overlap, jnp.where(follows, found, 0.0))
        outside = product(jnp.where(outer.position > loop.position, outer.bound, 1.0) for outer in loops)
        saved.append((loop.bound - 1.0) * kept * outside)
    return _total(saved)


def _is_inside(loop: Loop, position: Scalar) -> Bool[Array, ""]:
    """Whether a loop runs more than once inside of `position`."""
    return (loop.bound > 1.0) & (loop.position < position)


def _runs_inside(loops: list[Loop], position: Scalar) -> Bool[Array, ""]:
    return functools.reduce(jnp.logical_or, [_is_inside(loop, position) for loop in loops], jnp.asarray(False))


def _total(terms: Iterable[Scalar]) -> Scalar:
    return functools.reduce(jnp.add, terms)
