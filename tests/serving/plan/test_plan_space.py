"""What a plan tries: divisions of the devices beside brute force, pairs and replicas."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.io.huggingface import load_model
from jaxperf.serving.plan.engines import Candidate, EngineFacts
from jaxperf.serving.plan.request import Request
from jaxperf.serving.plan.simulate import _scheduler
from jaxperf.serving.plan.space import SPLITS, Configuration, padded, pairs, pool_splits, replica_counts
from jaxperf.serving.plan.study import Study

COUNTS = st.integers(1, 4)
TIMES = st.floats(1e-3, 1.0)


def engine(tensor: int, weights: str = "bf16", stages: int = 1) -> Candidate:
    layout = {"tensor_parallel": tensor, "pipeline_parallel": stages, "expert_parallel": 1, "data_parallel": 1}
    return Candidate(layout, weights)


@given(st.integers(2, 24), COUNTS, COUNTS, TIMES, TIMES)
def test_the_divisions_that_serve_most_are_found(devices: int, prefill: int, decode: int, a: float, b: float) -> None:
    found = pool_splits(devices, (prefill, decode), (a, b), None)
    both = itertools.product(range(1, devices + 1), repeat=2)
    served = [min(x / a, y / b) for x, y in both if x * prefill + y * decode <= devices]
    assert len(found) <= SPLITS and bool(found) == bool(served)
    if served:
        assert min(found[0][0] / a, found[0][1] / b) == pytest.approx(max(served))
    assert all(x * prefill + y * decode <= devices for x, y in found)


@given(st.integers(2, 16), COUNTS, COUNTS, TIMES, TIMES, st.floats(0.1, 100.0))
def test_a_rate_is_served_with_the_fewest_devices_first(
    devices: int, prefill: int, decode: int, a: float, b: float, rate: float
) -> None:
    found = pool_splits(devices, (prefill, decode), (a, b), rate)
    used = [x * prefill + y * decode for x, y in found]
    assert used == sorted(used)
    both = itertools.product(range(1, devices + 1), repeat=2)
    enough = [
        x * prefill + y * decode for x, y in both if x * prefill + y * decode <= devices and min(x / a, y / b) > rate
    ]
    assert bool(found) == bool(enough) and (not enough or used[0] == min(enough))


def test_pools_have_one_format_of_weights_and_room_for_both() -> None:
    candidates = [engine(1), engine(2), engine(4), engine(1, "fp8")]
    found = pairs(candidates, [0, 1, 2, 3], 4)
    assert Configuration(0, 1) in found and Configuration(1, 0) in found and Configuration(3, 3) in found
    assert not any(each.engine == 2 or each.prefill == 2 for each in found)
    assert not any((each.engine == 3) != (each.prefill == 3) for each in found)
    assert found[0].mode == "disaggregated" and Configuration(0).mode == "aggregated"


def test_replicas() -> None:
    assert replica_counts(9, 2, None) == [4]
    assert replica_counts(9, 2, 1.0) == [1, 2, 3, 4]


def test_padding_repeats_the_last_row() -> None:
    rates = {"rate": np.array([1.0, 2.0, 3.0])}
    assert padded(rates, 0, 2)["rate"].tolist() == [1.0, 2.0]
    assert padded(rates, 2, 2)["rate"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(("ahead", "wanted"), [(True, [1.0, 0.0]), (False, [0.0, 0.0])])
def test_engines_of_one_stage_form_their_steps_ahead_where_asked(ahead: bool, wanted: list[float]) -> None:
    """In the steady state and in the simulation alike."""
    request = Request(load_model("gpt2"), 100, 10, {}, ["bf16"], ahead=ahead)
    study = Study(request, [engine(1), engine(1, stages=2)], {}, 2)
    assert [float(study.engine(place).ahead) for place in (0, 1)] == wanted
    facts = cast(EngineFacts, SimpleNamespace(slots=8.0))
    schedulers = [_scheduler(request, facts, {"slots": 8.0, "budget": 512.0}, stages) for stages in (1, 2)]
    assert [float(each.ahead) for each in schedulers] == wanted
