"""All mappings of a chain that a machine allows: where the prime factors of shared and own loops may go.

A prime factor of a shared rank runs outside of the shared level for all stages, or inside of it, where every stage puts
it to a place of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp

from jaxperf.core.numerics import as_float
from jaxperf.loopnest.constraints import KINDS, Constraints, LevelConstraints
from jaxperf.loopnest.fused.chain import STEPS, Chain, ChainNames
from jaxperf.loopnest.fused.mapping import FusedMapping, Fusion, Kept
from jaxperf.loopnest.genomes import Genome
from jaxperf.loopnest.mapspace import MapSpace, Slot, build_space, factors_of, mapping_of, prime_factors
from jaxperf.loopnest.problem import Names, Problem


class ChainSpace(eqx.Module):
    """`shared`: of the shared loops, whose slot at the shared level means that the stages place the factor; `stages`:
    of each stage, whose slots outside of that level are for loops that index no intermediate array."""

    shared: MapSpace
    stages: tuple[MapSpace, ...]


def build_chain_space(
    chain: Chain,
    names: ChainNames,
    levels: Sequence[str],
    kept: tuple[Kept, ...],
    constraints: Constraints,
    fusion: Fusion,
) -> ChainSpace:
    """The space of a chain on levels from the innermost.

    **Arguments:** `kept`: of `chain_kept`; `constraints`: their fixed factors and what they keep are not looked at.
    **Raises:** `InputError` where no level may have the factors of a rank.
    """
    limits = [constraints.get(level, LevelConstraints()) for level in levels]
    width = max(len(prime_factors(int(bound))) for problem in chain.problems for bound in problem.bounds)
    links = chain.links
    shared = Problem(chain.problems[0].bounds[: links.shared], [1.0], ())
    inside = {name: LevelConstraints(temporal=()) for name in levels[: fusion.level]}
    inside[levels[fusion.level]] = LevelConstraints()
    outside = {name: _only(limits[row], names.shared) for row, name in enumerate(levels) if row > fusion.level}
    nobody = tuple(() for _ in levels)
    return ChainSpace(
        build_space(shared, Names(names.shared, ()), levels, nobody, {**inside, **outside}, width),
        tuple(
            build_space(
                problem, nest, levels, own, _stage_limits(limits, levels, nest, links.shared, held, fusion), width
            )
            for problem, nest, own, held in zip(chain.problems, names.nests, kept, links.held, strict=True)
        ),
    )


def _stage_limits(
    limits: Sequence[LevelConstraints],
    levels: Sequence[str],
    names: Names,
    shared: int,
    held: Sequence[int],
    fusion: Fusion,
) -> Constraints:
    """What a stage may place: anything inside of the shared level, ranks of its own in time at the next one."""
    own = tuple(name for d, name in enumerate(names.dimensions) if d >= shared and d not in held)
    found = {}
    for row, (name, limit) in enumerate(zip(levels, limits, strict=True)):
        if row <= fusion.level:
            found[name] = _only(limit, names.dimensions)
        else:
            allowed = own if row == fusion.level + 1 else ()
            found[name] = dataclasses.replace(_only(limit, allowed), spatial_x=(), spatial_y=())
    return found


def _only(limit: LevelConstraints, names: Sequence[str]) -> LevelConstraints:
    """The constraints of a level on some loops; operations that build on each other cannot spread over units."""
    temporal, *spatial = ([name for name in limit.allowed(kind, tuple(names)) if name in names] for kind in KINDS)
    across, along = (tuple(name for name in each if name != STEPS) for each in spatial)
    order = None if limit.order is None else tuple(name for name in limit.order if name in names)
    return LevelConstraints(tuple(temporal), across, along, limit.mesh_x, limit.mesh_y, order=order)


def chain_mapping(space: ChainSpace, shared: Genome, stages: Sequence[Genome], level: int) -> FusedMapping:
    """The mapping of the genomes of shared and own loops."""
    inside = [slots.index(Slot(level, 0)) for slots in space.shared.structure.slots]
    mappings = []
    for own, genome in zip(space.stages, stages, strict=True):
        rows = [
            jnp.where(shared.place[d] == inside[d], own.primes[d], as_float(1.0)) if d < len(inside) else own.primes[d]
            for d in range(own.primes.shape[0])
        ]
        left = dataclasses.replace(own, primes=jnp.stack(rows))
        mappings.append(mapping_of(left, factors_of(left, genome.place), genome.rank))
    return FusedMapping(mapping_of(space.shared, factors_of(space.shared, shared.place), shared.rank), tuple(mappings))
