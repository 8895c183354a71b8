"""Points of a map space: where every prime factor goes, which loop runs where, and what is kept.

A genome is the place of every prime factor of every loop, the order of the temporal loops, and where that is searched,
which levels keep which operands.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace, factors_of, mapping_of


class Genome(NamedTuple):
    """One point, or with leading axes many. `place`: of every prime factor, a position in its dimension's slots;
    `rank`: of the F levels whose order is free, as in `Mapping` [1]; `keep`: of each of the space's choices, `None`
    where it has none."""

    place: Int[Array, "*batch D K"]
    rank: Float[Array, "*batch F D"]
    keep: Bool[Array, "*batch B"] | None = None


def genome_mapping(space: MapSpace, genome: Genome) -> Mapping:
    """The mapping of one genome."""
    mapping = mapping_of(space, factors_of(space, genome.place), genome.rank)
    return bypassing(space, mapping, genome.keep)


def bypassing(space: MapSpace, mapping: Mapping, keep: Bool[Array, " B"] | None) -> Mapping:
    """The mapping whose levels keep only what was chosen of the space's choices."""
    if keep is None:
        return mapping
    keeps = jnp.ones((len(space.structure.kept), len(space.structure.kept[0])), bool)
    levels, operands = (np.array(each, int) for each in zip(*space.structure.choices, strict=True))
    return dataclasses.replace(mapping, keeps=keeps.at[levels, operands].set(keep))


def settled(mapping: Mapping) -> Mapping:
    """The mapping, of one point, with what its levels do keep as structure."""
    if mapping.keeps is None:
        return mapping
    kept = np.asarray(mapping.kept) & np.asarray(mapping.keeps)
    return dataclasses.replace(mapping, kept=tuple(map(tuple, kept.tolist())), keeps=None)


def random_genomes(space: MapSpace, key: PRNGKeyArray, number: int) -> Genome:
    """Every prime factor in any of its slots, every order, every choice of what is kept, all alike likely."""
    places, ranks = jax.random.split(key)
    dimensions, width = space.primes.shape
    choices = jnp.asarray([max(len(slots), 1) for slots in space.structure.slots], jnp.int32)
    place = jax.random.randint(places, (number, dimensions, width), 0, choices[None, :, None])
    free = (number, len(space.structure.free_levels), dimensions)
    rank = _ranked(jax.random.uniform(ranks, free)).astype(space.primes.dtype)
    if not space.structure.choices:
        return Genome(place, rank)
    kept = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, (number, len(space.structure.choices)))
    return Genome(place, rank, kept)


def _ranked(draws: Float[Array, "N F D"]) -> Int[Array, "N F D"]:
    """The place of each number among those of its row, equal ones from the left; on a CPU faster than a sort."""
    one, other = draws[..., :, None], draws[..., None, :]
    left = jnp.arange(draws.shape[-1])
    tied = (other == one) & (left[None, :] < left[:, None])[None, None]
    return jnp.sum((other < one) | tied, axis=-1)
