"""Machines compared on layers: sums against single evaluations, monotone in what a machine has, and the energy laws."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.codesign.rows import _loses_by
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.codesign.energy import LAWS
from jaxperf.loopnest.codesign.machines import LayerCost, network_totals, shared_costs
from jaxperf.loopnest.codesign.search import leading_mappings
from jaxperf.loopnest.constraints import LevelConstraints
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.mapper import RESCORED
from jaxperf.loopnest.mapping import Mapping
from jaxperf.loopnest.mapspace import build_space
from jaxperf.loopnest.redesign import multiplied, resized
from jaxperf.loopnest.shapes import gemm

LEVELS = ("registers", "memory")
KEPT = ((True, True, True), (True, True, True))
LIMITS = {"memory": LevelConstraints(mesh_x=4, spatial_x=("M", "N"))}
SIZES = (3.0, 8.0, 24.0, 64.0)  # a word of each operand is the least
KILO = 1024.0


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    """Exact scores are made in 64 bits, whatever the suite runs in."""
    with jax.enable_x64(True):
        yield


def machine(size: float = 8.0) -> Architecture:
    """Four units with registers of their own around a narrow memory."""
    registers = Level(
        instances=4, size=size, read_energy=1e-12, write_energy=1.2e-12, update_energy=1.1e-12, leakage=1e-14
    )
    memory = Level(
        fan_x=4, fan_y=1, block=2, read_energy=6e-11, write_energy=7e-11, update_energy=8e-11, read_bandwidth=6.0
    )
    return Architecture((registers, memory), macs=4, mac_energy=5e-13)


@pytest.fixture(scope="module")
def mappings(wide: None) -> list[Mapping]:
    """The leading mappings for each of `SIZES`, of a short search."""
    problem, names = gemm(8.0, 6.0, 4.0)
    space = build_space(problem, names, LEVELS, KEPT, LIMITS)
    return [leading_mappings(problem, machine(size), space, "edp", 0, 6)[0] for size in SIZES]


def test_a_larger_level_of_the_same_energy_is_never_worse(mappings: list[Mapping]) -> None:
    found = shared_costs(gemm(8.0, 6.0, 4.0)[0], [machine(size) for size in SIZES], mappings, "edp")
    assert (np.diff(found.score) <= 0.0).all() and found.score[-1] < found.score[0]


def test_every_machine_has_the_best_of_all_mappings(mappings: list[Mapping]) -> None:
    problem, _ = gemm(8.0, 6.0, 4.0)
    machines = [machine(size) for size in SIZES]
    found = shared_costs(problem, machines, mappings, "energy")
    for index, each in enumerate(machines):
        costs = [
            nest_cost(problem, each, jax.tree.map(operator.itemgetter(place), mapping))
            for mapping in mappings
            for place in range(RESCORED)
        ]
        runs = [float(cost.energy) for cost in costs if int(cost.reason) == 0]
        assert float(found.score[index]) == pytest.approx(min(runs), rel=1e-12)
        assert float(found.energy[index]) == pytest.approx(float(np.sum(found.parts[index])), rel=1e-12)


def test_bounds_that_32_bits_do_not_hold_are_refused() -> None:
    for bound in (2.0**24 - 1.0, 3.0 * 2.0**24):  # what divides a float of 32 bits is one too
        build_space(*gemm(bound, 6.0, 4.0), LEVELS, KEPT, LIMITS)
    with pytest.raises(InputError, match="M: the search is in 32 bits, which do not hold the bound 16777217"):
        build_space(*gemm(2.0**24 + 1.0, 6.0, 4.0), LEVELS, KEPT, LIMITS)


def test_a_machine_that_nothing_fits_into_has_no_cost(mappings: list[Mapping]) -> None:
    problem, _ = gemm(8.0, 6.0, 4.0)
    found = shared_costs(problem, [machine(2.0), machine(8.0)], [mappings[1]], "edp")
    assert not np.isfinite(found.score[0]) and np.isfinite(found.score[1])
    assert np.isnan(found.cycles[0]) and np.isnan(found.energy[0])


def test_totals_count_layers_as_often_as_they_run() -> None:
    def cost(cycles: list[float], limiter: list[int]) -> LayerCost:
        each = np.asarray(cycles)
        parts = np.stack([each, 2.0 * each], axis=1)
        needed = np.stack([each, -each], axis=1)[:, :, None]
        return LayerCost(each, each, 3.0 * each, parts, needed, np.asarray(limiter))  # type: ignore[arg-type]

    totals = network_totals([cost([1.0, 2.0], [0, 1]), cost([10.0, 20.0], [1, 1])], [5, 2])
    assert totals.cycles.tolist() == [25.0, 50.0] and totals.energy.tolist() == [75.0, 150.0]
    assert totals.parts.tolist() == [[25.0, 50.0], [50.0, 100.0]]
    assert totals.waits.tolist() == [[5.0, 20.0], [0.0, 50.0]]
    assert totals.needed[:, :, 0].tolist() == [[10.0, -1.0], [20.0, -2.0]]
    assert not totals.failed.any()
    part = network_totals([cost([1.0, np.nan], [0, 1])], [5])
    assert part.failed.tolist() == [[False], [True]] and np.isnan(part.cycles[1])


def test_the_published_lines() -> None:
    """DOSA's scratchpad: 0.49 + 0.02513 KB pJ, accumulator 1.94 + 0.1005 KB pJ; smartbuffer_RF below 64 words deep."""
    assert LAWS["sram"](128.0 * KILO, 1.0) == pytest.approx(3.70664e-12, rel=1e-12)
    assert LAWS["accumulator"](4.0 * KILO, 1.0) == pytest.approx(2.342e-12, rel=1e-12)
    assert LAWS["regfile"](128.0, 64.0) == 1.0 and LAWS["regfile"](64.0, 32.0) == pytest.approx(0.5**0.78)
    assert np.isnan(LAWS["regfile"](130.0, 65.0))
    assert LAWS["fixed"](1.0, 1.0) == LAWS["fixed"](1e6, 1e5)


@given(st.sampled_from(["sram", "accumulator", "regfile"]), st.floats(1.0, 8.0), st.floats(1.001, 8.0))
def test_a_larger_level_costs_more_an_access(law: str, depth: float, times: float) -> None:
    assert LAWS[law](2.0 * depth * times, depth * times) > LAWS[law](2.0 * depth, depth)


def test_a_size_that_stays_changes_nothing_and_another_keeps_the_ratios() -> None:
    level = dataclasses.replace(machine().levels[0], size=4096.0)
    same, larger = (resized(level, size, 1.0, "sram") for size in (4096.0, 8192.0))
    assert float(same.read_energy) == pytest.approx(1e-12)
    ratio = (0.49 + 0.02513 * 8.0) / (0.49 + 0.02513 * 4.0)
    for name in ("read_energy", "write_energy", "update_energy"):
        assert float(getattr(larger, name)) == pytest.approx(ratio * float(getattr(level, name)), rel=1e-12)
    assert float(larger.leakage) == pytest.approx(2.0 * float(level.leakage))
    assert np.isnan(float(larger.area))


def test_more_children_multiply_all_that_is_inside() -> None:
    wider = multiplied(machine(), 1, 6.0, 4.0)
    assert [float(level.instances) for level in wider.levels] == [6.0, 1.0] and float(wider.macs) == 6.0


def test_the_register_files_of_accelergy(data_directory: Path) -> None:
    """Two files of one machine, 12 and 16 words deep and of one width."""
    path = data_directory / "accelerator" / "tl_eyeriss_like.json"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    table = json.loads(path.read_text())["ert_pJ_per_action"]
    stated = table["ifmap_spad"]["read"] / table["psum_spad"]["read"]
    assert LAWS["regfile"](24.0, 12.0) / LAWS["regfile"](32.0, 16.0) == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize(
    ("cycles", "energy", "said"),
    [
        (2.0, 1.0, "2 x the cycles, most of them limited by glb"),
        (1.0, 1.24, "1.24 x the energy, glb +2.4e+05 uJ"),
        (1.0, 1.0004, "0.04 % more energy, glb +400 uJ"),
        (1.0, 1.0 + 1e-12, "nothing"),
    ],
)
def test_what_a_machine_loses_is_never_one_time_as_much(cycles: float, energy: float, said: str) -> None:
    best = {"feasible": True, "cycles": 1.0, "energy_j": 1.0, "energy_j.glb": 1.0}
    row = {"feasible": True, "cycles": cycles, "energy_j": energy, "energy_j.glb": energy, "waits_for": "glb"}
    assert _loses_by(row, best, ["glb"], "edp") == said
