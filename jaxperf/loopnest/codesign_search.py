"""The leading mappings of a layer on one machine, to be scored again together with those of other machines."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.mapper import RESCORED
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import Genome, MapSpace, genome_mapping
from jaxperf.loopnest.problem import Problem
from jaxperf.loopnest.search import first_population, next_generation


def leading_mappings(
    problem: Problem, architecture: Architecture, space: MapSpace, objective: str, seed: int, generations: int
) -> tuple[Mapping, dict[Reason, int]]:
    """The `RESCORED` best of an evolution in float32 along a leading axis, and how many each reason refused [1].

    **Arguments:** scalar leaves of one point; `objective`: of `OBJECTIVES`; `generations`: from 1.
    """
    with jax.enable_x64(False):
        at = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), (problem, architecture, space))
        key = jax.random.key(seed)
        population = first_population(at[2], key)
        refused = np.zeros(len(Reason), int)
        for _ in range(generations):
            key, now = jax.random.split(key)
            population, rejected = next_generation(*at, population, now, objective)
            refused = refused + np.asarray(rejected)
        place, rank = (np.asarray(leaf[:RESCORED]) for leaf in population.genomes)
    leaders = Genome(jnp.asarray(place), jnp.asarray(rank, space.primes.dtype))
    return _mappings(space, leaders), {why: int(many) for why, many in zip(Reason, refused, strict=True) if many}


@jax.jit
def _mappings(space: MapSpace, genomes: Genome) -> Any:
    return jax.vmap(genome_mapping, (None, 0))(space, genomes)
