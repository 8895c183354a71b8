"""A point of a chain's space as a vector of keys in [0, 1): of shared loops, then of each stage, the places of their
prime factors, then the ranks of the loops of every level whose order is free."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxperf.loopnest.fused.mapping import FusedMapping
from jaxperf.loopnest.fused.space import ChainSpace, chain_mapping
from jaxperf.loopnest.genomes import Genome
from jaxperf.loopnest.mapspace import MapSpace


def key_blocks(space: ChainSpace) -> tuple[int, ...]:
    """Of every key, the number of the loop, or of the order of a level, that it belongs to."""
    blocks: list[int] = []
    for each in (space.shared, *space.stages):
        dimensions, width = each.primes.shape
        for length, rows in ((width, dimensions), (dimensions, len(each.structure.free_levels))):
            start = blocks[-1] + 1 if blocks else 0
            blocks += [start + row for row in range(rows) for _ in range(length)]
    return tuple(blocks)


def decoded(space: ChainSpace, keys: Float[Array, " G"], level: int) -> FusedMapping:
    """The mapping of one point, whose stages share the loops outside of `level`."""
    genomes, position = [], 0
    for each in (space.shared, *space.stages):
        dimensions, width = each.primes.shape
        places, ranks = dimensions * width, len(each.structure.free_levels) * dimensions
        genomes.append(_genome(each, keys[position : position + places], keys[position + places :][:ranks]))
        position += places + ranks
    return chain_mapping(space, genomes[0], genomes[1:], level)


def _genome(space: MapSpace, places: Float[Array, " P"], ranks: Float[Array, " R"]) -> Genome:
    """A key times the number of slots is the slot; ranks are those of the keys of a level among each other."""
    slots = jnp.asarray([max(len(each), 1) for each in space.structure.slots], places.dtype)
    chosen = (places.reshape(space.primes.shape) * slots[:, None]).astype(jnp.int32)
    rank = jnp.argsort(jnp.argsort(ranks.reshape(-1, space.primes.shape[0]), axis=1), axis=1)
    return Genome(chosen, rank.astype(places.dtype))
