"""Hops of a mesh, and wires as a part of what a nest costs."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.io.timeloop.machine import level_fields
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.evaluate import NestCost, nest_cost
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.shapes import gemm
from jaxperf.loopnest.wires import mesh_hops

HOP = 3e-13
COUNTS = st.integers(1, 4096)


def hops(multicast: float, children: float) -> float:
    return float(mesh_hops(jnp.asarray(float(multicast)), jnp.asarray(float(children))))


def test_hops_of_timeloop() -> None:
    # network-legacy.cpp for a mesh of 4 x 4: one child, a quarter of them, all.
    assert [hops(count, 16) for count in (1, 4, 16)] == pytest.approx([2.0, 7.5, 15.5])
    assert hops(1, 1) == pytest.approx(0.5)


@given(COUNTS, COUNTS)
def test_more_children_are_farther_and_a_multicast_is_shorter_than_its_words_one_by_one(one: int, other: int) -> None:
    few, many = sorted((one, other))
    assert hops(few, many) <= hops(many, many) * (1 + 1e-12)
    assert hops(1, few) <= hops(1, many) * (1 + 1e-12)
    assert hops(few, many) <= few * hops(1, many) * (1 + 1e-12)


def cost(hop: float) -> NestCost:
    """A product of 4 x 2 x 3 on four units along its rows."""
    problem, _ = gemm(4.0, 2.0, 3.0)
    register, memory = Level(instances=4.0), Level(fan_x=4.0, fan_y=1.0, hop_energy=hop, read_energy=1e-12)
    ones, rows = [1.0] * 4, [1.0, 4.0, 1.0, 1.0]
    mapping = Mapping(
        jnp.asarray([ones, [1.0, 1.0, 2.0, 3.0]]),
        jnp.asarray([ones, rows]),
        jnp.asarray([ones, ones]),
        jnp.asarray([[0.0, 1.0, 2.0, 3.0]] * 2),
        ((True, True, True), (True, True, True)),
    )
    return nest_cost(problem, Architecture((register, memory), macs=4.0), mapping)


def test_wires_cost_what_passes_them() -> None:
    with jax.enable_x64(True):
        with_wires, without = cost(HOP), cost(0.0)
        passed = sum(
            float(each.reads + each.updates) * hops(float(each.multicast), float(each.children))
            for each in with_wires.levels[1].accesses
            if each is not None
        )
        assert {float(each.multicast) for each in with_wires.levels[1].accesses if each is not None} == {1.0, 4.0}
        assert float(with_wires.energy - without.energy) == pytest.approx(HOP * passed) and passed > 0.0
        assert float(with_wires.cycles) == float(without.cycles)


def test_the_slope_in_a_hop_is_finite() -> None:
    assert math.isfinite(float(jax.grad(lambda hop: cost(hop).energy)(jnp.asarray(0.0))))


def test_a_file_gives_the_energy_of_a_hop() -> None:
    energies = {"read": 1.0, "write": 1.0}
    assert level_fields({}, energies, "glb")["hop_energy"] == 0.0
    assert level_fields({}, energies | {"hop": 0.25}, "glb")["hop_energy"] == pytest.approx(0.25e-12)
