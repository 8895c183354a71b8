"""A faster link never makes a step slower, nor a faster chip, whatever else it has to wait for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import SCHEDULES
from jaxperf.training.model_build import training_model
from jaxperf.training.search.space import Columns
from jaxperf.training.sweep import few_layouts
from tests.devices import H100

RATES = assumed_training_efficiencies()
ROWS = 1000


def layouts(experts: bool) -> Columns:
    """Random layouts of every axis, with messages over several links at once."""
    rng = np.random.default_rng(7)

    def pick(*values: float) -> np.ndarray:
        return rng.choice(np.array(values, float), ROWS)

    tensor, pipeline, data, microbatch = pick(1, 2, 8), pick(1, 2, 4, 8), pick(1, 2, 16, 64), pick(1, 2)
    schedule = np.where(pipeline > 1.0, rng.integers(0, len(SCHEDULES), ROWS), SCHEDULES.index("1f1b"))
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "microbatch": microbatch,
        "schedule": schedule,
        "interleave": np.where(schedule == SCHEDULES.index("interleaved"), 2.0, 1.0),
        "context": pick(1, 2, 4),
        "context_method": pick(0, 1, 2),
        "expert": np.minimum(pick(1, 2, 8), tensor * data) if experts else np.ones(ROWS),
        "global_batch": data * microbatch * pick(1, 2, 8, 32),
        "zero": pick(0, 1, 2, 3),
        "shard_group": np.where(rng.random(ROWS) < 0.3, np.minimum(data, 2.0), 0.0),
        "offload": pick(0, 0.5, 1),
        "recompute": pick(0, 1, 2),
        "sequence_parallel": pick(0, 1),
    }


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b"])
def test_no_step_is_slower_over_a_faster_link_or_on_a_faster_chip(name: str) -> None:
    model = training_model(load_model(name))
    columns = layouts(float(model.topk) > 0.0)

    def times(device=H100, rates=RATES) -> np.ndarray:
        return few_layouts(model, columns, device, rates, metrics=("unchecked_time",))["unchecked_time"]

    slow = times()
    for link in ("link_bandwidth", "network_bandwidth"):
        for factor in (1.2, 4.0):
            fast = times(dataclasses.replace(H100, **{link: factor * getattr(H100, link)}))
            assert (fast <= slow * (1.0 + 1e-12)).all(), (link, factor)
            assert (fast < slow).any()
    for rate in ("peak_flops", "memory_bandwidth"):  # what is computed again hides its own messages or others
        assert (times(dataclasses.replace(H100, **{rate: 3.0 * getattr(H100, rate)})) < slow).all(), rate
    assert (times(rates=dataclasses.replace(RATES, host_bandwidth=4.0 * RATES.host_bandwidth)) <= slow).all()
