"""The mapper on ResNet-50 / Eyeriss-like: the best mapping of conv1, its bound, other searches, and all 54 layers.

Processor seconds, so that other work on the machine does not count, after one call that compiles; the layers with it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Row
from jaxperf.io.map_constraints import load_constraints, with_meshes
from jaxperf.io.map_network import network_layers
from jaxperf.io.timeloop.random import STORAGE, eyeriss_like
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.genomes import random_genomes
from jaxperf.loopnest.lower_bound_branch import prove
from jaxperf.loopnest.mapper import METHODS, Effort, find_mapping
from jaxperf.loopnest.mapspace import MapSpace, build_space, prime_factors
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.search import CHILDREN, score

TARGET = 211.3  # EDP [J cycle] of the contract, which counts no leakage; Timeloop, which does, has 211.4 for it
KEPT = ((True, True, True),) * len(STORAGE)  # the constraints say more
EQUAL = Effort(56, 56)  # of every search that is compared: two climbs of the gradient
Timed = tuple[Any, float]


def run() -> list[Row]:
    """Search, proof, random search, rate of scoring, and a network."""
    jax.config.update("jax_enable_x64", True)
    layers = network_layers("resnet-50", 224).layers
    width = max(len(prime_factors(int(bound))) for layer in layers for bound in layer.problem.bounds)
    nests = [eyeriss(layer.problem, layer.loops, width) for layer in layers]
    begin = time.process_time()
    found = [find_mapping(*nest) for nest in nests]
    all_layers = time.process_time() - begin
    conv1 = nests[0]
    best, spent = timed(lambda: find_mapping(*conv1))
    proof, proving = timed(lambda: prove(*conv1, "edp", best.score))
    bare = nest_cost(conv1[0], without_leakage(conv1[1]), best.mapping)
    others = {name: timed(lambda name=name: find_mapping(*conv1, effort=EQUAL, method=name)) for name in METHODS}
    what, equal = "ResNet-50 conv1", EQUAL.generations * CHILDREN
    return [
        Row("mapper", f"{what}: EDP, with leakage", best.score, "J cycle", "", "Timeloop's mapper: 244.8 in 244.8 s"),
        Row("mapper", f"{what}: EDP, without leakage", float(bare.edp), "J cycle", f"<= {TARGET}"),
        Row("mapper", f"{what}: search of {best.evaluations:,} mappings", spent, "s", "<= 2"),
        *(
            Row("mapper", f"{what}: {name}, {equal:,} evaluations in {spent:.2f} s", found.score, "J cycle")
            for name, (found, spent) in others.items()
        ),
        Row("mapper", f"{what}: mappings scored a processor second", scoring_rate(conv1), "1/s", ">= 500000"),
        Row("mapper", f"{what}: gap to the bound", best.score / proof.bound - 1.0, "1", "<= 0.02"),
        Row("mapper", f"{what}: proof", proving, "s", "<= 60"),
        Row("mapper", f"{sum(len(each.names) for each in layers)} layers, with compilation", all_layers, "s", "<= 60"),
        Row("mapper", "layers with a mapping", float(sum(each.mapping is not None for each in found)), "1"),
    ]


def eyeriss(problem: Problem, names: Names, width: int) -> tuple[Problem, Architecture, MapSpace]:
    """A nest on the shipped machine under its constraints."""
    machine, limits = eyeriss_like(), load_constraints("eyeriss_like")
    levels = tuple(Level(**machine.levels[name]) for name in STORAGE)
    architecture = with_meshes(Architecture(levels, **machine.units), STORAGE, limits)
    return problem, architecture, build_space(problem, names, STORAGE, KEPT, limits, width)


def without_leakage(architecture: Architecture) -> Architecture:
    """The machine whose levels lose nothing while they wait."""
    levels = tuple(dataclasses.replace(level, leakage=0.0) for level in architecture.levels)
    return dataclasses.replace(architecture, levels=levels)


def scoring_rate(nest: tuple[Problem, Architecture, MapSpace]) -> float:
    """Random mappings that are scored a processor second, in 32 bits."""
    with jax.enable_x64(False):
        problem, machine, space = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), nest)
        scored = jax.jit(lambda genomes: score(problem, machine, space, genomes, "edp")[0])
        batches = [random_genomes(space, jax.random.key(seed), CHILDREN) for seed in range(EQUAL.generations)]
        _, spent = timed(lambda: [scored(each) for each in batches])
        return len(batches) * CHILDREN / spent


def timed(work: Callable[[], Any]) -> Timed:
    """What the second call returns, and its processor seconds."""
    jax.block_until_ready(work())
    begin = time.process_time()
    done = jax.block_until_ready(work())
    return done, time.process_time() - begin
