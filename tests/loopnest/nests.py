"""Nests for the tests: random mappings of a convolution, and an independent count in Python integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.shapes import convolution

KEPT = ((False, False, True), (True, False, False), (False, True, True), (True, True, True))
BOUNDS = (1, 1, 4, 6, 8, 6, 3, 2)  # N G C M P Q R S
COEFFICIENTS = {"Hstride": 2, "Wstride": 1, "Hdilation": 1, "Wdilation": 2}


class Factors(NamedTuple):
    """One mapping in Python integers, `[level][dimension]`, innermost first."""

    temporal: list[list[int]]
    spatial: list[list[int]]
    rank: list[list[int]]


def problem() -> tuple[Problem, Names]:
    _, _, channels, filters, height, width, *kernel = BOUNDS
    strides = (COEFFICIENTS["Hstride"], COEFFICIENTS["Wstride"])
    dilations = (COEFFICIENTS["Hdilation"], COEFFICIENTS["Wdilation"])
    return convolution(channels, filters, height, width, (kernel[0], kernel[1]), strides, dilations)


CHILDREN = 4096.0  # of one instance, more than any loops in space here


def machine(**backing: float) -> Architecture:
    """Four levels that anything fits into; keywords change the backing store."""
    inner = {"read_energy": 1e-12, "write_energy": 2e-12, "update_energy": 3e-12}
    levels = [Level(**inner, size=1e6, instances=CHILDREN**outside) for outside in (3, 2, 1)]
    outer = {"read_energy": 1e-10, "write_energy": 1e-10, "update_energy": 1e-10, "block": 4.0, **backing}
    return Architecture((*levels, Level(**outer)), macs=CHILDREN**4, mac_energy=1e-12)


def random_factors(seed: int) -> Factors:
    """Prime factors of every bound dealt out to the levels, some of them in space."""
    rng = np.random.default_rng(seed)
    levels, count = len(KEPT), len(BOUNDS)
    temporal, spatial = ([[1] * count for _ in range(levels)] for _ in range(2))
    for dimension, bound in enumerate(BOUNDS):
        for prime in _primes(bound):
            target = spatial if rng.random() < 0.2 else temporal
            target[rng.integers(levels)][dimension] *= prime
    return Factors(temporal, spatial, [[int(each) for each in rng.permutation(count)] for _ in range(levels)])


def mapping_of(factors: Factors) -> Mapping:
    ones = np.ones((len(KEPT), len(BOUNDS)))
    return Mapping(np.asarray(factors.temporal), np.asarray(factors.spatial), ones, np.asarray(factors.rank), KEPT)


def _primes(number: int) -> list[int]:
    return next(([p, *_primes(number // p)] for p in range(2, number + 1) if number % p == 0), [])


def walked(axes: Sequence[Sequence[tuple[int, int]]], factors: Factors, level: int, slides: bool) -> int:
    """Words one instance of `level` receives, loop by loop outwards.

    The rule of two iterations is applied as it is stated: the second stands for all later ones, and finds the tile
    where the second iterations of the loops inside left it.
    """
    inside = [math.prod(column) for column in zip(*factors.temporal[: level + 1], strict=True)]
    spread = [math.prod(column) for column in zip(*factors.spatial[: level + 1], strict=True)]
    tile = [a * b for a, b in zip(inside, spread, strict=True)]
    of = {dimension: (place, factor) for place, axis in enumerate(axes) for dimension, factor in axis}
    window = [sum(factor * (tile[d] - 1) for d, factor in axis) + 1 for axis in axes]
    size = words = math.prod(window)
    moved, first, idle, grown = [0] * len(axes), None, False, list(tile)
    for outer in range(level + 1, len(factors.temporal)):
        grown = [a * b for a, b in zip(grown, factors.spatial[outer], strict=True)]
        for d in sorted(range(len(grown)), key=lambda d: factors.rank[outer][d]):
            count = factors.temporal[outer][d]
            if count == 1:
                continue
            place, factor = of.get(d, (None, 0))
            step, grown[d] = factor * grown[d], grown[d] * count
            if place is None:
                words *= 1 if first is None else count
                idle = idle or first is None
                continue
            others = size // window[place]
            overlap = max(window[place] - step, 0) if first is None else 0
            if first is None:
                first, slide = place, step
                again = words - others * (overlap if slides or not idle else 0)
            else:
                shift = step - moved[place]
                alone = place == first and not any(moved[other] for other in range(len(axes)) if other != place)
                kept = 0
                if alone and shift == 0 and (slides or idle):
                    kept = window[place]
                elif alone and shift == slide and (slides or not idle):
                    kept = max(window[place] - slide, 0)
                again = words - others * kept
            words += (count - 1) * again
            moved[place] += step
    return words


def stripped(case: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """What may be read of an output of Timeloop, these parts and its mapping and levels: no result is left."""
    levels = {name: {"specs": level["specs"]} for name, level in case["levels"].items()}
    keep = [{**each, "keep": dict.fromkeys(each["keep"], 0)} for each in case["mapping_outer_to_inner"]]
    return {**{name: case[name] for name in parts}, "mapping_outer_to_inner": keep, "levels": levels}
