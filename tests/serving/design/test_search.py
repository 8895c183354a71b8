"""The design that is found is the best there is, its slopes are derivatives and its prices what a limit costs."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jax
import numpy as np
import pytest

import hwspecs
from jaxperf.core.numerics import as_float
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.io.huggingface import load_model
from jaxperf.models.layers import transformer
from jaxperf.serving.design.measures import MEASURES, Served, judged
from jaxperf.serving.design.search import Best, Range, Wanted, measures_over, search
from jaxperf.serving.design.sized import SIZES, Sizes, power_parts
from jaxperf.serving.study import assumed_at, formats_of
from jaxperf.serving.techniques.power import PowerLaw
from jaxperf.sweeps.once import evaluate_once, evaluate_over

TABLE, LAW, ASSUMED = load_sustained_table(), PowerLaw(0.2, 0.5, 0.3), assumed_at("nominal", "graph")
BOTH = dict.fromkeys(SIZES[:2], Range(0.5, 2.0))


@functools.cache
def _served(name: str = "l4", batch: int = 16) -> Served:
    spec = hwspecs.load(name)
    point = {"tensor_parallel": 1, "batch": batch, "prompt": 512, "output": 64}
    numbers = {name: as_float(value) for name, value in point.items()}
    calibrated, parts = calibration_of(spec, TABLE).calibrated, power_parts(spec, TABLE.power)
    network, formats = transformer(load_model("llama-3-8b")), formats_of("bf16", "bf16")
    return Served(calibrated, parts, LAW, network, numbers | formats, as_float(294e-6))


@functools.cache
def _every() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Measures over every number of cores and 401 bandwidths."""
    cores, bandwidth = np.arange(29, 117) / 58.0, np.geomspace(0.5, 2.0, 401)
    at = jax.jit(lambda *sizes: judged(_served(), ASSUMED, Sizes(*sizes)).measures)
    return cores, bandwidth, evaluate_over(at, cores, bandwidth, along=((0,), (1,)))


def _least(minimize: str, limits: Mapping[str, float]) -> float:
    *_, found = _every()
    held = np.logical_and.reduce([found[name] <= limit for name, limit in limits.items()], initial=True)
    return float(np.min(np.where(held, found[minimize], np.inf)))


@pytest.mark.parametrize(
    ("minimize", "limits"),
    [
        ("power", {"tpot": 0.07}),
        ("tdp", {"tpot": 0.06, "ttft": 0.25}),
        ("energy_per_token", {"e2e_latency": 4.5}),
        ("tpot", {"tdp": 80.0}),
        ("e2e_latency", {"tdp": 72.0, "tpot": 0.08}),
        ("memory_bandwidth", {"tpot": 0.07, "die_area": 250e-6}),
    ],
)
def test_nothing_on_a_fine_grid_is_better(minimize: str, limits: dict[str, float]) -> None:
    found = search(_served(), ASSUMED, Wanted(minimize, limits), BOTH)
    assert found.held
    assert all(found.measures[name] <= limit for name, limit in limits.items())
    assert found.measures[minimize] <= _least(minimize, limits) * (1.0 + 1e-5)
    assert found.sizes["num_cores"] * 58.0 == pytest.approx(round(found.sizes["num_cores"] * 58.0), abs=1e-9)


def test_the_slopes_are_derivatives() -> None:
    """Of what has no stairs: all but the cores."""
    found = search(_served(), ASSUMED, Wanted("power", {"tpot": 0.07}), BOTH)
    at = jax.jit(lambda *sizes: judged(_served(), ASSUMED, Sizes(*sizes)).measures)
    step = 1e-5
    for size in SIZES[1:]:
        ends = ({**found.sizes, size: found.sizes[size] * np.exp(sign * step)} for sign in (1.0, -1.0))
        more, less = (evaluate_once(at, *each.values()) for each in ends)
        for name in MEASURES:
            slope = (np.log(more[name]) - np.log(less[name])) / (2.0 * step)
            assert found.slopes[name][size] == pytest.approx(slope, abs=1e-5), (name, size)


@pytest.mark.parametrize(
    ("minimize", "limits"),
    [("energy_per_token", {"tpot": 0.07, "ttft": 0.3}), ("power", {"tpot": 0.08, "ttft": 0.2})],  # the latter: a corner
)
def test_of_four_free_sizes_nothing_that_holds_the_limits_is_better(minimize: str, limits: dict[str, float]) -> None:
    """A grid of other steps, and the neighbourhood of what is found, have nothing that is 1e-4 better."""
    ranges = {**BOTH, "clock_rate": Range(0.7, 1.4), "link_bandwidth": Range(0.5, 2.0)}
    found = search(_served(), ASSUMED, Wanted(minimize, limits | {"die_area": 294e-6}), ranges)
    assert found.held and found.sizes["link_bandwidth"] == 0.5  # one device has no use for links
    cores, rest = np.arange(29, 59) / 58.0, [np.geomspace(*ranges[name], 40) for name in SIZES[1:3]]
    near = [found.sizes[name] * np.linspace(0.98, 1.02, 41) for name in SIZES[1:3]]
    for axes in (rest, [np.clip(each, *ranges[name]) for each, name in zip(near, SIZES[1:3], strict=True)]):
        others = measures_over(_served(), ASSUMED, [cores, *axes, np.ones(1)], False)
        held = np.logical_and.reduce([others[name] <= limit for name, limit in limits.items()])
        assert found.measures[minimize] <= np.min(np.where(held, others[minimize], np.inf)) * (1.0 + 1e-4)


@pytest.mark.parametrize(("minimize", "limit"), [("power", "tpot"), ("tdp", "tpot"), ("tpot", "tdp")])
def test_a_price_is_what_a_percent_of_the_limit_is_worth(minimize: str, limit: str) -> None:
    ranges = {"num_cores": Range(1.0, 1.0), "memory_bandwidth": Range(0.5, 2.0)}
    limits = {"tpot": 0.07, "tdp": 75.0}

    def least(factor: float) -> Best:
        return search(_served(), ASSUMED, Wanted(minimize, {limit: factor * limits[limit]}), ranges)

    worth = np.log(least(0.995).measures[minimize] / least(1.005).measures[minimize]) / np.log(1.005 / 0.995)
    found = least(1.0)
    assert found.prices == {limit: pytest.approx(worth, rel=0.02)}
    assert found.edges == ()


def test_power_for_time_is_time_for_power() -> None:
    """The least TDP that holds a TPOT, given as a budget, gives that TPOT back."""
    first = search(_served(), ASSUMED, Wanted("tdp", {"tpot": 0.07}), BOTH)
    second = search(_served(), ASSUMED, Wanted("tpot", {"tdp": first.measures["tdp"] * (1.0 + 1e-9)}), BOTH)
    assert second.measures["tpot"] == pytest.approx(0.07, rel=2e-3)


def test_what_no_size_holds_is_exceeded_least() -> None:
    found = search(_served(), ASSUMED, Wanted("tdp", {"tpot": 1e-3}), BOTH)
    assert not found.held
    assert found.measures["tpot"] == pytest.approx(_least("tpot", {}), rel=1e-6)
    assert "memory_bandwidth" in found.edges
    assert found.prices == {}


def test_without_a_limit_the_least_is_at_an_end() -> None:
    found = search(_served(), ASSUMED, Wanted("tdp", {}), BOTH)
    assert found.edges == SIZES[:2]
    assert found.sizes == pytest.approx({"num_cores": 0.5, "memory_bandwidth": 0.5} | dict.fromkeys(SIZES[2:], 1.0))


def test_a_size_that_is_not_free_stays() -> None:
    found = search(_served(), ASSUMED, Wanted("tdp", {"tpot": 0.06}), {"memory_bandwidth": Range(1.0, 3.0)})
    assert found.sizes["num_cores"] == 1.0
    assert found.measures["tpot"] == pytest.approx(0.06, rel=1e-5)


def test_the_base_draws_what_a_capped_estimate_says() -> None:
    """Power on the base is that of an estimate under a limit that is not reached."""
    from jaxperf.serving.estimate import estimate
    from jaxperf.serving.techniques.chosen import Techniques
    from jaxperf.serving.techniques.power import PowerCap

    spec = hwspecs.load("l4")
    point = {"batch": 16, "prompt": 512, "output": 64, "weights": "bf16", "kv_cache": "bf16"}
    point |= dict.fromkeys(("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel"), 1)
    told = estimate(
        load_model("llama-3-8b"), spec, point, techniques=Techniques(cap=PowerCap(LAW, 1e4))
    ).explanation.told
    here = judged(_served(), ASSUMED, Sizes(1.0, 1.0)).measures
    assert float(here["power"]) == pytest.approx(float(told["average_power"]), rel=1e-9)
    assert float(here["energy_per_token"]) == pytest.approx(float(told["drawn_energy_per_token"]), rel=1e-9)
