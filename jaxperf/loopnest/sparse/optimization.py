"""How much of the traffic is gated or skipped because the words it would meet are zero.

Wu et al., MICRO 2022, section 5.3.3, and Timeloop's src/sparse-analysis/storage-gs-analyzer.cpp. A follower's tile is
not needed where the words of its leaders that it would meet, the leader tile, are all zero: p = 1 - prod over leaders
of (1 - P(leader tile empty)). The leader tile covers, per dimension, the follower's tile, the spatial loops that
multicast it, and the temporal loops inside of the first that moves it; dimensions that index the follower move both
together, except that a block of several follower words is read or left as one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.mapping import Mapping, Nest, product
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.reuse import tile_size
from jaxperf.loopnest.sparse.density import Density, empty_probability, share
from jaxperf.loopnest.sparse.formats import tile_extents
from jaxperf.loopnest.sparse.loops import Place, loops_of
from jaxperf.loopnest.sparse.whole import round_up

GATING, SKIPPING = "gating", "skipping"


@dataclass(frozen=True)
class Option:
    """`target`: the follower; `leaders`: operands whose zeros save its traffic; all by position."""

    target: int
    leaders: tuple[int, ...]


@dataclass(frozen=True)
class Directive:
    """One unit of a storage level that gates or skips. Of several `options` it takes the one that saves most energy."""

    kind: str
    level: int
    options: tuple[Option, ...]


class Saving(NamedTuple):
    """What is saved of the traffic of one operand at one level. `gated`, `skipped`: shares, of which at most one is
    not zero [1]; `empty`: for each operand, the probability that its leader tile is [1]."""

    gated: Scalar
    skipped: Scalar
    empty: tuple[Scalar, ...]

    @property
    def share(self) -> Scalar:
        return self.gated + self.skipped


class Surroundings(NamedTuple):
    """What savings depend on. `wholes`: extents of each operand; `has_metadata`: by level and operand."""

    problem: Problem
    architecture: Architecture
    mapping: Mapping
    nest: Nest
    densities: tuple[Density, ...]
    wholes: list[list[Scalar]]
    has_metadata: list[list[bool]]


def savings(directives: Sequence[Directive], around: Surroundings) -> dict[tuple[int, int], Saving]:
    """The saving at each (level, operand) that has one; of two units on the same traffic the one that saves more."""
    found: dict[tuple[int, int], Saving] = {}
    for directive in sorted(directives, key=lambda each: each.kind != GATING):
        for place, saving in _of_directive(directive, around).items():
            found[place] = larger(found[place], saving) if place in found else saving
    return found


def keeping_level(level: int, operand: int, kept: Sequence[Sequence[bool]]) -> int | None:
    """The level that a unit at `level` acts on: the nearest from there outwards that keeps the operand."""
    return next((outer for outer in range(level, len(kept)) if kept[outer][operand]), None)


def _of_directive(directive: Directive, around: Surroundings) -> dict[tuple[int, int], Saving]:
    options = []
    for option in directive.options:
        level = keeping_level(directive.level, option.target, around.mapping.kept)
        if level is not None:
            options.append(((level, option.target), *_empty_leaders(option, level, around)))
    if not options:
        return {}
    worth = jnp.stack([_worth(place, p, around) for place, p, _ in options])
    best = len(options) - 1 - jnp.argmax(worth[::-1])  # the last of equals, as Timeloop takes it
    found: dict[tuple[int, int], Saving] = {}
    for index, (place, p, empty) in enumerate(options):
        chosen = functools.partial(jnp.where, best == index)
        nothing = jnp.zeros_like(p)
        saved = chosen(p, nothing)
        gates = directive.kind == GATING
        saving = Saving(
            saved if gates else nothing,
            nothing if gates else saved,
            tuple(chosen(each, jnp.zeros_like(each)) for each in empty),
        )
        found[place] = larger(found[place], saving) if place in found else saving
    return found


def larger(first: Saving, second: Saving) -> Saving:
    """The saving of the larger share, the first of equals."""
    more = second.share > first.share
    return Saving(
        jnp.where(more, second.gated, first.gated),
        jnp.where(more, second.skipped, first.skipped),
        tuple(jnp.where(more, b, a) for a, b in zip(first.empty, second.empty, strict=True)),
    )


def _worth(place: tuple[int, int], p: Scalar, around: Surroundings) -> Scalar:
    """Energy that an option saves on one tile [J]: share x expected words x energy of a word."""
    level, operand = place
    stored = tile_size(around.problem.operands[operand], around.nest.tile[level], around.problem)
    if around.has_metadata[level][operand]:
        stored = stored * share(around.densities[operand], around.wholes[operand])
    machine = around.architecture.levels[level]
    return p * stored * machine.read_energy / machine.block


def _empty_leaders(option: Option, level: int, around: Surroundings) -> tuple[Scalar, tuple[Scalar, ...]]:
    """The share of the follower's traffic that meets only zeros, and how often each operand's leader tile is empty."""
    operands = around.problem.operands
    wanted = frozenset[int]().union(*(operands[leader].relevant for leader in option.leaders))
    bounds = _leader_bounds(option.target, level, wanted, around)
    empty = [jnp.zeros_like(bounds[0]) for _ in operands]
    for index in option.leaders:
        tile = tile_extents(operands[index], bounds, around.problem)
        empty[index] = empty_probability(around.densities[index], tile, around.wholes[index])
    return 1.0 - product(1.0 - empty[index] for index in option.leaders), tuple(empty)


def _leader_bounds(target: int, level: int, wanted: frozenset[int], around: Surroundings) -> list[Scalar]:
    """Indices of the `wanted` dimensions that a tile of the follower meets while it stays where it is, else one [1]."""
    problem, mapping, nest = around.problem, around.mapping, around.nest
    follower = problem.operands[target]
    child = next((inner for inner in reversed(range(level)) if mapping.kept[inner][target]), -1)
    held = nest.tile[child] if child >= 0 else [jnp.ones_like(bound) for bound in nest.tile[0]]
    places = loops_of(mapping, range(child + 1, level + 1), wanted | follower.relevant)
    moving = [place for place in places if place.dimension in follower.relevant]
    first = _innermost([place for place in moving if not place.spatial])
    nearest = _innermost(moving)
    block = around.architecture.levels[level].block
    together = jnp.maximum(round_up(block / tile_size(follower, held, problem)), 1.0)
    bounds = [jnp.ones_like(bound) for bound in held]
    for d in wanted:
        own = [place for place in places if place.dimension == d]
        if d in follower.relevant:
            moves = functools.reduce(jnp.logical_or, [place.position == nearest for place in own])
            met = held[d] * jnp.where(moves, together, 1.0)
        else:
            met = held[d] * product(_stays(place, first, child) for place in own)
        bounds[d] = jnp.minimum(met, problem.bounds[d])
    return bounds


def _innermost(places: Sequence[Place]) -> Scalar:
    """Position of the innermost loop that runs more than once; infinite where none does."""
    found = [jnp.where(place.bound > 1.0, place.position, jnp.inf) for place in places]
    return functools.reduce(jnp.minimum, found, as_float(jnp.inf))


def _stays(place: Place, first: Scalar, child: int) -> Scalar:
    """Iterations over which the follower's tile stays: those of a loop in space that multicasts it, and of a loop in
    time inside of the first that moves it, if there is a child to hold the tile [1]."""
    if place.spatial:
        return place.bound
    if child < 0:  # the units hold nothing from one step to the next
        return jnp.ones_like(place.bound)
    return jnp.where(place.position < first, place.bound, 1.0)
