"""A device of other sizes is the one that its file describes, whatever the base's power limit."""

from __future__ import annotations

import itertools
import re

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwspecs
from hwspecs.schema import DeviceSpec
from hwspecs.values import Source
from hwspecs.variant import variant
from jaxperf.core.relative_energy import memory_power, spendable_power, whole_limit
from jaxperf.core.sustained_file import calibration_of, load_sustained_table, power_time
from jaxperf.serving.design.answer import NOTES, changes_of
from jaxperf.serving.design.sized import SIZES, Sizes, design_power, power_parts, sized

TABLE = load_sustained_table()
SOURCE = Source(title="test", publisher="us", kind="estimate", year=2026)
BASES = ("h100-sxm", "h100-pcie", "a100-sxm-80gb", "l4", "mi300x", "tpu-v5e", "b200")
CAP = 0.6  # of the limit of the device that is capped


def _made(base: DeviceSpec, sizes: Sizes) -> DeviceSpec:
    ratios = dict(zip(SIZES, map(float, (sizes.cores, sizes.bandwidth, sizes.clock, sizes.links)), strict=True))
    return variant(base, "made", changes_of(base, ratios, None), NOTES, "design", SOURCE)


def _capped(base: DeviceSpec) -> DeviceSpec:
    return variant(base, "capped", {"tdp": CAP * base.tdp.si}, NOTES, "design", SOURCE)


@given(
    st.sampled_from(BASES),
    st.booleans(),
    st.integers(1, 600),
    *(st.floats(*ends) for ends in ((0.25, 4.0), (0.5, 2.0))),
)
def test_it_is_what_its_file_describes(name: str, capped: bool, cores: int, bandwidth: float, clock: float) -> None:
    base = _capped(hwspecs.load(name)) if capped else hwspecs.load(name)
    sizes = Sizes(cores / base.num_cores.si, bandwidth, clock, bandwidth)
    here = sized(calibration_of(base, TABLE).calibrated, power_parts(base, TABLE.power), sizes)
    read = calibration_of(_made(base, sizes), TABLE).calibrated
    own = {
        family: (each.compute[1], each.memory[1], each.floor[1], each.power[1])
        for family, each in here.sustained.rates.items()
    }
    its = {
        family: (each.compute[1], each.memory[1], each.floor[1], each.power[1])
        for family, each in read.sustained.rates.items()
    }
    assert eqx.tree_equal((here.device, own), (read.device, its), rtol=1e-9)


@pytest.mark.parametrize("name", BASES)
def test_twice_of_all_draws_twice(name: str) -> None:
    spec = hwspecs.load(name)
    parts = power_parts(spec, TABLE.power)
    assert float(design_power(parts, Sizes(1.0, 1.0))) == pytest.approx(spec.tdp.si, rel=1e-12)
    assert float(design_power(parts, Sizes(2.0, 2.0))) == pytest.approx(2.0 * spec.tdp.si, rel=1e-12)
    more = float(design_power(parts, Sizes(1.0, 2.0))) - spec.tdp.si
    assert more == pytest.approx(memory_power(spec), rel=1e-9, abs=1e-9 * spec.tdp.si)


def test_the_memory_of_an_h100_draws_its_energy_per_byte() -> None:
    spec = hwspecs.load("h100-sxm")
    facts = hwspecs.energy_of(spec)
    assert facts is not None
    assert memory_power(spec) == pytest.approx(facts.per_byte.si * 3.35e12)
    assert memory_power(hwspecs.load("tpu-v5e")) == 0.0  # its energies are not known


@pytest.mark.parametrize("name", ["h100-sxm", "a100-sxm-80gb"])
def test_half_a_chip_at_half_the_power_is_not_a_capped_one(name: str) -> None:
    """Half of the cores and memory with half of the limit have half of the power for operations; the whole chip at
    half of the limit has more than half, as its clock and voltage fall."""
    spec = hwspecs.load(name)
    half = _made(spec, Sizes(0.5, 0.5))
    assert whole_limit(spec, half) == pytest.approx(0.5 * spec.tdp.si)
    assert spendable_power(half, TABLE.power) == pytest.approx(0.5 * spendable_power(spec, TABLE.power))
    halved = variant(spec, "capped", {"tdp": 0.5 * spec.tdp.si}, NOTES, "design", SOURCE)
    assert spendable_power(halved, TABLE.power) > 0.5 * spendable_power(spec, TABLE.power)


@pytest.mark.parametrize("clock", [0.7, 1.0, 1.3])
def test_a_chip_made_for_another_clock_can_pay_it(clock: float) -> None:
    """What the limit leaves over the energy of an operation goes with the clock; under the limit of its base a higher
    clock has what that has, and at a lower one operations take less."""
    spec, power = hwspecs.load("tpu-v5e"), {"usable_share": 1.0, "reference_clock": 1.83e9}
    assert memory_power(spec) == 0.0

    def wait(changes: dict[str, float]) -> float:
        return power_time(variant(spec, "made", changes, NOTES, "design", SOURCE), spec, 1e-12, "16-bit", power)

    made = changes_of(spec, {"num_cores": 1.0, "clock_rate": clock}, None)
    assert wait(made) == pytest.approx(wait({}) / clock)
    assert wait({"clock_rate": clock * spec.clock_rate.si}) == pytest.approx(wait({}) * min(clock, 1.0) ** 2)


def test_sold_devices_draw_by_the_cube_of_their_clock() -> None:
    """docs/design.md: all pairs of one architecture and process whose clocks are a tenth and more apart."""
    powers = []
    for one, other in itertools.combinations(map(hwspecs.load, hwspecs.names()), 2):
        alike = all(getattr(one, fact) == getattr(other, fact) for fact in ("process", "kind"))
        family = {re.sub("-(geforce|half-rate)", "", each.architecture) for each in (one, other)}
        clock = other.clock_rate.si / one.clock_rate.si
        if one.process and alike and len(family) == 1 and abs(clock - 1.0) >= 0.1:
            drawn = (other.tdp.si - memory_power(other)) / (one.tdp.si - memory_power(one))
            powers.append(np.log(drawn * one.num_cores.si / other.num_cores.si) / np.log(clock))
    assert (len(powers), np.median(powers)) == (49, pytest.approx(2.95, abs=0.01))


def test_a_little_more_of_a_size_changes_little() -> None:
    """No step where a capped device gets a core or a little bandwidth more."""
    base = _capped(hwspecs.load("h100-sxm"))
    powers = [
        spendable_power(variant(base, "made", {"memory_bandwidth": bandwidth}, NOTES, "design", SOURCE), TABLE.power)
        for bandwidth in np.linspace(3.3e12, 3.4e12, 11)
    ]
    assert np.ptp(np.diff(powers)) < 0.01 * powers[0]
    assert max(abs(np.diff(powers))) < 2e-3 * powers[0]


def test_a_memory_that_holds_all_bounds_nothing() -> None:
    spec = hwspecs.load("l4")
    base, parts = calibration_of(spec, TABLE).calibrated, power_parts(spec, TABLE.power)
    assert float(sized(base, parts, Sizes(1.0, 1.0), holds_all=True).memory_capacity) > 1e15
    assert jnp.isfinite(sized(base, parts, Sizes(1.0, 1.0), holds_all=True).memory_capacity)


# Of one family and process, at clocks within a tenth: the larger, then one with other cores or another memory.
SIBLINGS = (
    ("a100-sxm-80gb", "a30"),
    ("a100-sxm-80gb", "a100-sxm-40gb"),
    ("h100-sxm", "h20"),
    ("h100-sxm", "h200-sxm"),
    ("mi250x", "mi210"),
    ("mi300x", "mi300a"),
    ("max-1550", "max-1100"),
    ("l40s", "rtx-5000-ada"),
    ("rtx-2080-ti", "rtx-2070"),
    ("rtx-a6000", "rtx-a5000"),
    ("rtx-3090", "rtx-3080"),
    ("rtx-4090", "rtx-4080"),
    ("rtx-5090", "rtx-5080"),
    ("apple-m2-max", "apple-m2-pro"),
    ("apple-m2-max", "apple-m2"),
)


def test_devices_sold_as_siblings_have_about_the_power_of_their_sizes() -> None:
    """docs/design.md states these: what a maker gives a smaller chip differs from the law by up to a quarter."""
    ratios = []
    for larger, smaller in SIBLINGS:
        one, other = hwspecs.load(larger), hwspecs.load(smaller)
        assert abs(other.clock_rate.si / one.clock_rate.si - 1.0) < 0.1
        ratios.append(whole_limit(one, other) / other.tdp.si)
    assert (min(ratios), np.median(ratios), max(ratios)) == pytest.approx((0.77, 0.93, 1.22), abs=0.01)
