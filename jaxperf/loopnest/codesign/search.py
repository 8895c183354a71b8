"""The leading mappings of a layer on one machine, to be scored again together with those of other machines."""

from __future__ import annotations

from typing import Any

import jax

from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.genomes import Genome, genome_mapping
from jaxperf.loopnest.mapper import Effort, search_space
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import MapSpace
from jaxperf.loopnest.problem import Problem


def leading_mappings(
    problem: Problem, architecture: Architecture, space: MapSpace, objective: str, seed: int, generations: int
) -> tuple[Mapping, Genome, dict[Reason, int]]:
    """The `RESCORED` best of an evolution in float32 along a leading axis, their genomes, and how many each reason
    refused [1].

    **Arguments:** scalar leaves of one point; `objective`: of `OBJECTIVES`; `generations`: from 1.
    **Raises:** `KeyboardInterrupt` where the user stops it.
    """
    effort = Effort(generations, patience=generations)
    searched = search_space(problem, architecture, space, objective, seed, effort)
    if searched.interrupted:
        raise KeyboardInterrupt
    return _mappings(space, searched.leaders), searched.leaders, searched.rejected


@jax.jit
def _mappings(space: MapSpace, genomes: Genome) -> Any:
    return jax.vmap(genome_mapping, (None, 0))(space, genomes)
