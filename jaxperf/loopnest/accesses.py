"""Reads, fills and updates of every level that keeps an operand, from what its child receives.

Timeloop's tiling (src/loop-analysis/tiling.cpp). The child of a level is the next level inwards that keeps the
operand, or the multiply-accumulate units; loops across instances that do not index the operand multicast one read to
all of them, or reduce their results on the way out.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.mapping import Mapping, Nest, fan_out, iterations
from jaxperf.loopnest.problem import Operand, Problem
from jaxperf.loopnest.reuse import Rules, deliveries, tile_size


class Accesses(NamedTuple):
    """What one instance does with one operand over the whole run [word]. `tile`: what it holds at a time;
    `reads`: words that leave inwards; `fills`: that come from outside; `updates`: results that come from inside;
    `reductions`: updates that are added to a word read before; `children`: instances below it that work [1];
    `multicast`: of them, those that one read serves, or whose results are added on the way to one update [1]."""

    tile: Scalar
    reads: Scalar
    fills: Scalar
    updates: Scalar
    reductions: Scalar
    children: Scalar
    multicast: Scalar


LevelAccesses = tuple[Accesses | None, ...]  # by operand, None where it bypasses the level


def accesses(problem: Problem, mapping: Mapping, nest: Nest, rules: Rules) -> list[LevelAccesses]:
    """Accesses of one instance of each level to each operand."""
    by_operand = []
    for index, operand in enumerate(problem.operands):
        keeping = {
            level: None if mapping.keeps is None else mapping.keeps[level, index]
            for level, kept in enumerate(mapping.kept)
            if kept[index]
        }
        by_operand.append(_operand_accesses(operand, problem, nest, keeping, rules))
    return [tuple(found.get(level) for found in by_operand) for level in range(len(nest.loops))]


def _operand_accesses(
    operand: Operand, problem: Problem, nest: Nest, keeping: dict[int, Bool[Array, ""] | None], rules: Rules
) -> dict[int, Accesses]:
    """Accesses by level; `keeping`: the levels that may keep the operand, innermost first, and whether each does,
    `None` where it must."""
    received = iterations(nest)  # a unit holds no word back: it takes one in every step
    found, child, outermost = {}, -1, max(keeping, default=0)
    bypassed: tuple[Scalar, Scalar] | None = None  # words and all loops in space between a child and levels let by
    for level, keeps in keeping.items():
        between = range(child + 1, level + 1)
        relevant, every = fan_out(nest, between, operand.relevant), fan_out(nest, between)
        if bypassed is not None:
            relevant, every = relevant * bypassed[0], every * bypassed[1]
        served = received * relevant
        delivered = jnp.zeros_like(served) if level == outermost else deliveries(operand, problem, nest, level, rules)
        reads, fills, updates = served, delivered, jnp.zeros_like(served)
        if operand.written:
            reads, fills, updates = _written(served, delivered, _part(operand, problem, nest, level), rules)
        counted = Accesses(
            tile=tile_size(operand, nest.tile[level], problem),
            reads=reads,
            fills=fills,
            updates=updates,
            reductions=jnp.minimum(reads, updates),
            children=every,
            multicast=every / relevant,
        )
        child = level
        if keeps is None or level == outermost:
            found[level], received, bypassed = counted, delivered, None
            continue
        found[level] = Accesses(*(jnp.where(keeps, count, 0.0) for count in counted))
        one = jnp.ones_like(relevant)
        bypassed = jnp.where(keeps, one, relevant), jnp.where(keeps, one, every)
        received = jnp.where(keeps, delivered, received)
    return found


def _part(operand: Operand, problem: Problem, nest: Nest, level: int) -> Scalar:
    """Different words of the operand that pass one instance of a level over the run [word]."""
    whole = tile_size(operand, nest.tile[-1], problem)
    return whole / fan_out(nest, range(level + 1, len(nest.spatial)), operand.relevant)


def _written(served: Scalar, received: Scalar, part: Scalar, rules: Rules) -> tuple[Scalar, Scalar, Scalar]:
    """Reads, fills and updates of a result [word]: all that comes from inside is an update, added to what was read,
    except that the first value of a word is added to nothing."""
    again = jnp.maximum(received - part, 0.0)
    fills = again if rules.elides_first_fill else jnp.where(received > part, received, 0.0)
    return served - part, fills, served
