"""Accesses, cycles and energy: against integers counted by another way, against arithmetic, and at the limits."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.numerics import stack
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.feasible import SENTENCES, Reason, sentences
from jaxperf.loopnest.mapping import Mapping, unroll
from jaxperf.loopnest.reuse import RULES, deliveries
from jaxperf.loopnest.shapes import convolution, gemm
from tests.loopnest.nests import (
    BOUNDS,
    COEFFICIENTS,
    KEPT,
    Factors,
    machine,
    mapping_of,
    problem,
    random_factors,
    walked,
)

SEEDS = range(300)
NAMES = ["", *COEFFICIENTS]


@functools.cache
def costs(version: str) -> NestCost:
    """The costs of random mappings in one call."""
    mappings = stack([mapping_of(random_factors(seed)) for seed in SEEDS])
    nest, _ = problem()
    evaluate = functools.partial(nest_cost, rules=RULES[version])
    return jax.device_get(jax.jit(jax.vmap(evaluate, in_axes=(None, None, 0)))(nest, machine(), mappings))


def integer_axes(index: int) -> list[list[tuple[int, int]]]:
    nest, _ = problem()
    factors = [1, *COEFFICIENTS.values()]
    return [[(d, factors[c]) for d, c in axis] for axis in nest.operands[index].axes]


@pytest.mark.parametrize("version", ["head", "2024"])
@pytest.mark.parametrize(("operand", "level"), [(0, 1), (1, 2), (2, 0), (2, 2)])
def test_deliveries_are_those_of_a_walk_in_integers(version: str, operand: int, level: int) -> None:
    nest, _ = problem()
    mappings = stack([mapping_of(random_factors(seed)) for seed in SEEDS])
    count = lambda mapping: deliveries(nest.operands[operand], nest, unroll(mapping), level, RULES[version])  # noqa: E731
    found = jax.jit(jax.vmap(count))(mappings)
    slides = RULES[version].slides_over_reuse
    expected = [walked(integer_axes(operand), random_factors(seed), level, slides) for seed in SEEDS]
    assert np.array_equal(np.asarray(found), np.asarray(expected, float))


def test_versions_differ_only_in_what_slides() -> None:
    head, older = costs("head"), costs("2024")
    inputs = [cost.levels[2].accesses[1].fills for cost in (head, older)]
    assert (inputs[0] != inputs[1]).any()  # else the rule is not exercised
    for level in range(4):
        for operand in (0, 2):
            one, other = (cost.levels[level].accesses[operand] for cost in (head, older))
            assert one is None or all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_counts_are_whole_and_conserve_words() -> None:
    cost = costs("head")
    assert (cost.reason == 0).all()
    assert (cost.macs == math.prod(BOUNDS)).all()
    for level in cost.levels:
        for each in level.accesses:
            for counted in each or ():
                assert (counted == np.round(counted)).all() and (counted >= 0.0).all()
    outputs = cost.levels[-1].accesses[2]
    assert (outputs.updates - outputs.reads == BOUNDS[3] * BOUNDS[4] * BOUNDS[5]).all()  # each is written once at last


def test_energy_is_the_sum_of_accesses_times_their_energies() -> None:
    cost, levels = costs("head"), machine().levels
    total = cost.mac_energy.copy()
    for level, found in zip(levels, cost.levels, strict=True):
        for each in found.accesses:
            if each is not None:
                blocks = [np.ceil(count / float(level.block)) for count in (each.reads, each.fills, each.updates)]
                prices = [float(level.read_energy), float(level.write_energy), float(level.update_energy)]
                total += found.instances * sum(b * p for b, p in zip(blocks, prices, strict=True))
    assert np.allclose(cost.energy, total, rtol=1e-12)


# --- one GEMM that can be worked out by hand --------------------------------------------------------------------------


def small(k_outside: bool = False, **level: float) -> tuple[NestCost, Architecture]:
    """Z[2,3] = A[2,4] B[4,3] on one unit under a buffer that holds Z, with DRAM outside; k runs inside or outside."""
    nest, names = gemm(2, 3, 4)
    temporal, rank = np.ones((2, 4)), np.tile(np.arange(4.0), (2, 1))
    temporal[1, 1:3] = 2, 3
    temporal[1 if k_outside else 0, 3] = 4
    assert names.dimensions == ("B", "M", "N", "K")
    mapping = Mapping(temporal, np.ones((2, 4)), np.ones((2, 4)), rank, ((False, False, True), (True, True, True)))
    hardware = Architecture((Level(**{"size": 1.0, **level}), Level()), macs=1.0, mac_energy=1e-12)
    return nest_cost(nest, hardware, mapping), hardware


def test_a_result_that_stays_is_written_once() -> None:
    cost, _ = small()
    buffer = cost.levels[0].accesses[2]
    assert buffer is not None
    assert (float(buffer.updates), float(buffer.reads), float(buffer.fills)) == (24.0, 18.0, 0.0)
    outer = cost.levels[1].accesses
    assert [float(each.reads) for each in outer if each] == [24.0, 24.0, 0.0]
    assert float(cost.cycles) == 24.0 and float(cost.utilization) == 1.0 and int(cost.limiter) == 0


def test_a_result_that_leaves_comes_back() -> None:
    cost, _ = small(k_outside=True)
    outer = cost.levels[1].accesses[2]
    assert outer is not None
    assert (float(outer.updates), float(outer.reads)) == (24.0, 18.0)  # four passes over six words


def test_bandwidth_limits() -> None:
    cost, _ = small(read_bandwidth=0.5)
    assert float(cost.cycles) == 18.0 / 0.5 and int(cost.limiter) == 1
    assert float(small(shared_bandwidth=0.25)[0].cycles) == (24.0 + 18.0) / 0.25


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": 0.5}, Reason.CAPACITY),
        ({"buffering": 2.0}, Reason.CAPACITY),
        ({"instances": 0.5}, Reason.FAN_OUT),
        ({"read_bandwidth": 0.0}, Reason.BANDWIDTH),
        ({"shared_bandwidth": 0.0}, Reason.BANDWIDTH),
    ],
)
def test_what_does_not_fit_is_nan_with_a_reason(change: dict[str, float], reason: Reason) -> None:
    cost, _ = small(**change)
    assert int(cost.reason) == reason
    assert all(math.isnan(float(each)) for each in (cost.cycles, cost.energy, cost.edp, cost.utilization))
    assert sentences(int(cost.reason)) == [SENTENCES[reason]]


def test_factors_that_do_not_multiply_to_the_problem() -> None:
    nest, _ = problem()
    factors = random_factors(0)
    factors.temporal[3][2] *= 2
    assert int(nest_cost(nest, machine(), mapping_of(factors)).reason) == Reason.FACTORS


def test_an_instance_spreads_over_its_own_children_alone() -> None:
    """Eight registers of one unit each: no eight units are under one of them, though the machine has eight."""
    nest, _ = gemm(8.0, 1.0, 1.0)
    spads = Architecture((Level(instances=8), Level()), macs=8)
    ones, kept, row = np.ones((2, 4)), ((True,) * 3,) * 2, np.array([1.0, 8.0, 1.0, 1.0])

    def reason(level: int) -> int:
        spread = ones.copy()
        spread[level] = row
        return int(nest_cost(nest, spads, Mapping(ones, spread, ones, np.tile(np.arange(4.0), (2, 1)), kept)).reason)

    assert reason(0) == Reason.FAN_OUT and reason(1) == 0


def test_too_wide_for_the_mesh() -> None:
    nest, _ = gemm(4, 1, 1)
    spread = np.ones((1, 4))
    spread[0, 1] = 4.0
    mapping = Mapping(np.ones((1, 4)), spread, np.ones((1, 4)), np.arange(4.0)[None], ((True, True, True),))
    for level, macs in ((Level(fan_x=2.0), 4.0), (Level(), 2.0)):
        assert int(nest_cost(nest, Architecture((level,), macs=macs), mapping).reason) == Reason.FAN_OUT
    assert int(nest_cost(nest, Architecture((Level(fan_x=4.0),), macs=4.0), mapping).reason) == 0


# --- as a function ----------------------------------------------------------------------------------------------------


def test_more_bandwidth_is_never_slower_and_a_slope_is_finite() -> None:
    nest, _ = problem()
    mapping = mapping_of(random_factors(3))

    def energy_delay(bandwidth: jax.Array, temporal: jax.Array) -> jax.Array:
        moved = dataclasses.replace(mapping, temporal=temporal)
        return nest_cost(nest, machine(shared_bandwidth=bandwidth), moved).edp

    rates = jnp.asarray([0.1, 0.2, 0.5, 1.0, 4.0, math.inf])
    found = jax.vmap(energy_delay, in_axes=(0, None))(rates, mapping.temporal)
    assert (jnp.diff(found) <= 0.0).all() and found[0] > found[-1]
    slopes = jax.grad(energy_delay, argnums=(0, 1))(rates[0], mapping.temporal)
    assert all(bool(jnp.isfinite(slope).all()) for slope in slopes)
    assert slopes[0] < 0.0


def test_one_point_is_a_row_of_many() -> None:
    nest, _ = problem()
    alone = nest_cost(nest, machine(), mapping_of(random_factors(7)))
    for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(costs("head")), strict=True):
        assert np.allclose(np.asarray(one), many[7], rtol=1e-12, atol=0.0, equal_nan=True)


@pytest.mark.parametrize(
    ("built", "macs", "words"),
    [
        (gemm(3, 5, 7, batch=2), 210, [42, 70, 30]),
        (convolution(1, 1, 4, 4, (3, 3), (2, 2), groups=8), 1152, [72, 648, 128]),
    ],
)
def test_shapes_hold_the_words_of_their_arrays(built: tuple, macs: int, words: list[int]) -> None:
    nest, names = built
    count = len(names.dimensions)
    ones = np.ones((1, count))
    mapping = Mapping(np.asarray(nest.bounds)[None], ones, ones, np.arange(float(count))[None], ((True,) * 3,))
    cost = nest_cost(nest, Architecture((Level(),)), mapping)
    assert float(cost.macs) == macs
    assert [float(each.tile) for each in cost.levels[0].accesses if each is not None] == words


def test_the_walk_counts_a_plain_window() -> None:
    """Eight outputs of a window of three: of the 8 + 3 - 1 words under it each is fetched once."""
    axes = [[(4, 1), (6, 1)]]
    count = len(BOUNDS)
    temporal = [[1] * count for _ in KEPT]
    temporal[0][6], temporal[1][4] = 3, 8
    ones = [[1] * count for _ in KEPT]
    assert walked(axes, Factors(temporal, ones, [list(range(count))] * 4), 0, slides=True) == 10
