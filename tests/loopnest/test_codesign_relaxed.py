"""Slopes of a network in a machine's numbers: against differences, in every layout, and what budgets teach."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.numerics import as_float, stack
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.codesign.descent import within
from jaxperf.loopnest.codesign.relaxed import Drawn, Free, Layers, PowerBudget, Slopes, machine_of, network_slopes
from jaxperf.loopnest.constraints import LevelConstraints
from jaxperf.loopnest.evaluate import machine_area
from jaxperf.loopnest.genomes import random_genomes
from jaxperf.loopnest.mapspace import build_space, prime_factors
from jaxperf.loopnest.problem import build_problem
from jaxperf.loopnest.redesign import Knob
from jaxperf.loopnest.relaxed import PRICE, Leaning
from jaxperf.loopnest.relaxed_search import leaning_to

LEVELS = ("registers", "memory")
LIMITS = {"memory": LevelConstraints(mesh_x=4, spatial_x=("M",))}
OPERANDS = {"A": [[("M", "")], [("K", "")]], "Z": [[("M", "")]]}  # sums of rows
BOUNDS = ({"M": 16384.0, "K": 4096.0}, {"M": 4096.0, "K": 8192.0})
KNOBS = (
    Knob(0, "size", "sram", 2.0, 1e-12),
    Knob(1, "mesh_x"),
    Knob(1, "read_bandwidth"),
)
AMPLE = (2.0**24, 2.0**20, 1.0)  # size, children, bandwidth: the bandwidth limits
NARROW = (16.0, 2.0, 1.0)
STEP = 1e-2  # of a logarithm: cycles are whole, and so many that a step is thousands of them


@pytest.fixture(autouse=True, scope="module")
def wide(quick_compilation: None) -> Iterator[None]:
    """Slopes are compared with differences, which takes 64 bits."""
    with jax.enable_x64(True):
        yield


def machine() -> Architecture:
    registers = Level(instances=4, size=64, read_energy=1e-12, write_energy=1e-12, update_energy=1e-12, leakage=1e-14)
    registers = dataclasses.replace(registers, area=1e-10)
    memory = Level(fan_x=4, fan_y=1, read_energy=6e-11, write_energy=7e-11, update_energy=8e-11, read_bandwidth=6.0)
    return Architecture((registers, dataclasses.replace(memory, area=0.0)), 4, 5e-13, 1e-9)


LOW, HIGH = (2.0, 2.0, 0.5), (2.0**26, 2.0**22, 64.0)


@pytest.fixture(scope="module")
def free(wide: None) -> Free:
    """Budgets without end, so that others share the compilation."""
    low, high = (jnp.log(jnp.asarray(each)) for each in (LOW, HIGH))
    return Free(machine(), KNOBS, low, high, as_float(jnp.inf), PowerBudget(as_float(jnp.inf), as_float(1e-10), low))


@functools.cache
def layers() -> tuple[Layers, Leaning, jax.Array]:
    """Two nests, and leanings to a random mapping of each."""
    nests = [build_problem(bounds, OPERANDS, ("Z",)) for bounds in BOUNDS]
    width = max(len(prime_factors(int(bound))) for bounds in BOUNDS for bound in bounds.values())
    spaces = [build_space(problem, names, LEVELS, ((True,) * 2,) * 2, LIMITS, width) for problem, names in nests]
    found = [
        leaning_to(problem, space, random_genomes(space, jax.random.key(3), 1))
        for (problem, _), space in zip(nests, spaces, strict=True)
    ]
    leaning, orders = jax.tree.map(lambda leaf: leaf[:, 0], stack(found))
    return Layers(stack([problem for problem, _ in nests]), stack(spaces), as_float([1.0, 3.0])), leaning, orders


@functools.partial(jax.jit, static_argnames=("objective",))
def slopes(
    free: Free, counts: jax.Array, leaning: Leaning, numbers: jax.Array, objective: str = "edp"
) -> tuple[Slopes, Drawn]:
    at, _, orders = layers()
    still = jax.tree.map(jnp.zeros_like, leaning)
    return network_slopes(
        at._replace(counts=counts), free, leaning, numbers, orders, still, jnp.full(2, jnp.nan), objective
    )


@pytest.mark.parametrize(("at", "counts"), [(AMPLE, (1.0, 3.0)), (NARROW, (1.0, 0.0))], ids=["fits", "priced"])
def test_slopes_are_differences_away_from_kinks(free: Free, at: tuple[float, ...], counts: tuple[float, ...]) -> None:
    """Where tiles are too large, of one layer alone: the shares that layers have in the price are not followed."""
    given = (jnp.asarray(counts), layers()[1])
    numbers = jnp.log(jnp.asarray(at))
    found = np.asarray(slopes(free, *given, numbers)[0].numbers)
    for place in range(len(KNOBS)):
        step = jnp.zeros(len(KNOBS)).at[place].set(STEP)
        above, below = (float(slopes(free, *given, numbers + sign * step)[1].loss) for sign in (1.0, -1.0))
        assert found[place] == pytest.approx((above - below) / (2.0 * STEP), rel=1e-3, abs=1e-5), KNOBS[place]
    assert found[2] < -0.5  # what limits most cycles is worth most
    assert (found[1] == 0.0) == (at is AMPLE)  # children that nobody uses are worth nothing
    assert found[0] > 0.1 if at is AMPLE else found[0] < -0.5 * PRICE  # too large costs energy, too small its price


def test_layouts_agree(free: Free) -> None:
    counts, leaning = layers()[0].counts, layers()[1]
    numbers = jnp.log(jnp.asarray([AMPLE, NARROW]))
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), leaning)
    together = jax.jit(jax.vmap(functools.partial(slopes, free, counts)))(both, numbers)
    for place in range(2):
        alone = slopes(free, counts, leaning, numbers[place])
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            assert np.asarray(one[place]) == pytest.approx(np.asarray(other), rel=1e-9, abs=1e-12)


def test_budgets_teach_the_machine_alone(free: Free) -> None:
    given = layers()[0].counts, layers()[1]
    numbers = jnp.log(jnp.asarray(AMPLE))
    area = machine_area(machine_of(free, numbers))
    assert float(area) == pytest.approx(2.0**20 * (2.0**24 * 1e-12 + 1e-9))
    tight = free._replace(area=area / 2.0, power=PowerBudget(as_float(1e-10), as_float(2e-10), numbers))
    (plain, before), (taught, after) = slopes(free, *given, numbers), slopes(tight, *given, numbers)
    for one, other in zip(plain.leaning, taught.leaning, strict=True):
        assert np.asarray(one) == pytest.approx(np.asarray(other), rel=1e-12)
    assert float(after.loss - before.loss) == pytest.approx(2.0 * PRICE * np.log(2.0), rel=1e-9)  # twice of both
    more = np.asarray(taught.numbers - plain.numbers)
    assert more[0] > 0.99 * PRICE  # nearly all of the area is in the registers
    assert more[1] > 1.5 * PRICE  # more children take more area, and more power while all of them work


def test_an_area_is_kept_where_it_can_be(free: Free) -> None:
    numbers = jnp.log(jnp.asarray(AMPLE))
    area = machine_area(machine_of(free, numbers))
    cut = within(free._replace(area=area / 7.0), numbers)
    assert float(machine_area(machine_of(free, cut))) == pytest.approx(float(area) / 7.0, rel=1e-4)
    assert float(cut[2]) == float(numbers[2])  # a bandwidth takes no area
    least = within(free._replace(area=as_float(1e-12)), numbers)
    assert np.asarray(least)[:2] == pytest.approx(np.asarray(free.low)[:2])
    assert np.asarray(within(free, numbers + 10.0)) == pytest.approx(np.asarray(free.high))
