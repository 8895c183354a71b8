"""What levels keep as a traced choice: counts are those of the same choice as structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from jaxperf.loopnest.constraints import LevelConstraints
from jaxperf.loopnest.evaluate import nest_cost
from jaxperf.loopnest.genomes import settled
from jaxperf.loopnest.mapspace import build_space
from jaxperf.loopnest.shapes import gemm
from tests.loopnest import nests


@pytest.fixture(autouse=True, scope="module")
def wide() -> Iterator[None]:
    """Exact scores are made in 64 bits, whatever the suite runs in."""
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("seed", range(2))
def test_counts_are_those_of_a_fixed_choice(seed: int) -> None:
    problem, _ = nests.problem()
    mapping = nests.mapping_of(nests.random_factors(seed))
    keeps = np.random.default_rng(seed).random((len(nests.KEPT), 3)) < 0.5
    keeps[-1] = True
    may = dataclasses.replace(mapping, kept=((True,) * 3,) * len(nests.KEPT), keeps=np.asarray(keeps))
    chosen, fixed = (nest_cost(problem, nests.machine(), each) for each in (may, settled(may)))
    assert settled(may).kept == tuple(map(tuple, keeps.tolist()))
    assert float(chosen.energy) == pytest.approx(float(fixed.energy), rel=1e-12)
    assert float(chosen.cycles) == float(fixed.cycles) and int(chosen.reason) == int(fixed.reason)
    for some, others in zip(chosen.levels, fixed.levels, strict=True):
        for one, other in zip(some.accesses, others.accesses, strict=True):
            counts = [0.0] * len(one) if other is None else [float(count) for count in other]
            assert one is not None and [float(count) for count in one] == pytest.approx(counts, rel=1e-12)


def test_what_is_open_and_what_must_be_kept() -> None:
    """Constraints settle the registers; the memory keeps no results, so the buffer has to, and nothing else is open."""
    problem, names = gemm(6.0, 4.0, 4.0)
    limits = {"registers": LevelConstraints(keep=("Z",))}
    levels, kept = ("registers", "buffer", "memory"), ((True,) * 3, (False,) * 3, (True, True, False))
    space = build_space(problem, names, levels, kept, limits, bypass=True)
    assert space.structure.kept == ((False, False, True), (True, True, True), (True, True, False))
    assert space.structure.choices == ((1, 0), (1, 1))
    assert build_space(problem, names, levels, kept, limits).structure.choices == ()
