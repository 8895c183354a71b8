"""Memories that compute beside the one they replace: what their published figures imply, through the loop nest."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hwspecs.errors import InputError
from jaxperf.io.machines import clock_of, machine_path, shipped_machines
from jaxperf.io.map_constraints import load_constraints
from jaxperf.io.timeloop.case import Case, evaluate
from jaxperf.io.timeloop.json_case import load_case
from jaxperf.loopnest.constraints import check_constraints

# Name: units, their flop/s and the bandwidth of all banks [byte/s], of the interface [byte/s] as published.
PUBLISHED = {"hbm_pim": (128, 1.2288e12, 1.2288e12, 307.2e9), "gddr6_aim": (32, 1.024e12, 1.024e12, 64e9)}
WORD = 2.0  # bytes of FP16 and BF16


def loaded(name: str) -> tuple[Case, float]:
    path = machine_path(Path(name))
    clock = clock_of(path)
    assert clock is not None
    return load_case(path), clock


def with_queries(case: Case, queries: float, level: str) -> Case:
    """The case with so many queries, that run at a level: a matrix product in place of a vector's."""
    loop = case.names.dimensions.index("Q")
    bounds = case.problem.bounds.at[loop].set(queries)
    temporal = case.mapping.temporal.at[case.levels.index(level), loop].set(queries)
    problem = dataclasses.replace(case.problem, bounds=bounds)
    return dataclasses.replace(case, problem=problem, mapping=dataclasses.replace(case.mapping, temporal=temporal))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_peaks_and_bandwidths(name: str) -> None:
    case, clock = loaded(name)
    units, flops, banks, interface = PUBLISHED[name]
    bank = case.architecture.levels[case.levels.index("bank")]
    assert float(bank.instances) == units
    assert 2.0 * float(case.architecture.macs) * clock == pytest.approx(flops)
    assert units * float(bank.read_bandwidth) * WORD * clock == pytest.approx(banks)
    assert float(case.architecture.levels[-1].shared_bandwidth) * WORD * clock == pytest.approx(interface)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_vector_product_takes_the_time_of_the_banks(name: str) -> None:
    """Bytes of the keys over the bandwidth of all banks; beside the cube alone, bytes over its interface."""
    case, clock = loaded(name)
    answer = evaluate(case)
    assert answer["feasible"]
    keys = 32 * 4096 * 128 * WORD
    assert answer["cycles"] / clock == pytest.approx(keys / PUBLISHED[name][2], rel=1e-12)
    assert answer["levels"]["bank"]["tensors"]["Keys"]["fills"] == 0.0


def test_the_cube_alone_takes_the_time_of_its_interface() -> None:
    case, clock = loaded("hbm2_die")
    answer = evaluate(case)
    moved = sum(each["reads"] + each["updates"] for each in answer["levels"]["hbm"]["tensors"].values())
    assert answer["limiter"] == "hbm"
    assert answer["cycles"] / clock == pytest.approx(moved * WORD / 307.2e9, rel=1e-5)


def test_banks_win_a_vector_product_and_lose_a_matrix_product() -> None:
    (pim, slow), (die, fast) = loaded("hbm_pim"), loaded("hbm2_die")
    vector = evaluate(pim)["cycles"] / slow, evaluate(die)["cycles"] / fast
    assert 3.5 < vector[1] / vector[0] <= 4.1  # at most the ratio of the bandwidths, and the results
    assert evaluate(pim)["energy_j"] < 0.25 * evaluate(die)["energy_j"]
    products = evaluate(with_queries(pim, 64.0, "bank")), evaluate(with_queries(die, 64.0, "registers"))
    assert all(each["feasible"] for each in products)
    assert products[0]["cycles"] / slow > 5.0 * products[1]["cycles"] / fast


def test_constraints_fit_the_machines() -> None:
    case, _ = loaded("hbm_pim")
    check_constraints(load_constraints("hbm_pim"), case.levels, case.names, "hbm_pim")
    assert sorted(shipped_machines()) == ["eyeriss_like", "gddr6_aim", "hbm2_die", "hbm_pim"]


def test_the_shipped_array_is_a_case_with_the_mapping_that_its_constraints_allow() -> None:
    """168 units of a 14 x 12 mesh, all of them busy: 115,605,504 operations; energy as its mapper said."""
    case = load_case(machine_path(Path("eyeriss_like")))
    check_constraints(load_constraints("eyeriss_like"), case.levels, case.names, "eyeriss_like")
    answer = evaluate(case)
    assert (answer["macs"], answer["cycles"]) == (64 * 64 * 9 * 56**2, 64 * 64 * 9 * 56**2 / 168)
    assert answer["energy_j"] == pytest.approx(242.172e-6, rel=1e-5)


def test_a_clock_must_run(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text("clock_hz: 0")
    with pytest.raises(InputError, match="clock_hz is 0"):
        clock_of(path)
    path.write_text("problem: {}")
    assert clock_of(path) is None
