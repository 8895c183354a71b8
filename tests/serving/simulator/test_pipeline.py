"""Pipelines at the limits where their answer is known without simulating."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.serving.simulator.modes import BATCHES
from jaxperf.serving.simulator.run import Simulated, simulate
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.state import Sizes
from jaxperf.serving.simulator.step_time import AbstractStepTime, Timing, Work
from jaxperf.serving.simulator.trace import pad_traces
from jaxperf.serving.simulator.used import used_since

STEP = 1.0  # s, of every step; a power of two, so that its shares are exact
OUTPUT = 33


class Constant(AbstractStepTime):
    """Every step takes the same time, whatever is in it."""

    def __call__(self, work: Work) -> Timing:
        return Timing(jnp.float64(STEP), jnp.int32(1), jnp.bool_(True))


def simulated(stages: int, arrived: np.ndarray, batches: str = "as_they_come", prompt: int = 8) -> Simulated:
    settings = {"sched": "vllm_v1", "num_blocks": 1000, "batch_size_cap": 8, "pipeline_batches": batches}
    requests = SimpleNamespace(
        arrived=arrived, prompt=np.full(len(arrived), prompt), output=np.full(len(arrived), OUTPUT)
    )
    given = parse_scheduler({**settings, "max_tokens_in_batch": 512})
    trace = pad_traces([requests], 8)
    found = simulate(given.policy, Constant(), given.arrays(), trace, Sizes(8, 512, stages=stages))
    return jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_request_alone_gains_nothing_from_a_pipeline(stages: int) -> None:
    found = simulated(stages, np.array([0.0]))
    assert found.requests.completed[0, 0] == OUTPUT * STEP
    assert found.totals.busy[0] == OUTPUT * STEP / stages
    half = used_since(found.log, OUTPUT * STEP / 2)
    assert half.busy == OUTPUT * STEP / stages / 2 and half.steps == OUTPUT // 2 + 1 and half.most_blocks == 3


def test_requests_that_come_one_share_after_the_other_fill_the_stages_and_do_not_feel_each_other() -> None:
    stages = 4
    found = simulated(stages, np.arange(stages) * STEP / stages)
    waited = found.requests.completed[0, :stages] - np.arange(stages) * STEP / stages
    assert waited.tolist() == [OUTPUT * STEP] * stages
    # One stage's work for every token of four requests: the pipeline gives one token each share of a step.
    assert found.totals.busy[0] == stages * OUTPUT * STEP / stages


def test_a_full_pipeline_has_the_throughput_of_its_stages() -> None:
    """Eight requests at once in one batch of prompts keep together: no more than without a pipeline."""
    ends = {stages: simulated(stages, np.zeros(8)).requests.completed.max() for stages in (1, 2)}
    assert ends == {1: OUTPUT * STEP, 2: OUTPUT * STEP}
    apart = simulated(2, np.repeat([0.0, STEP / 2], 4)).requests.completed[0, :8]
    assert apart.max() == OUTPUT * STEP + STEP / 2


@pytest.mark.parametrize(("batches", "first"), [("vllm_queue", (4 + 1) * STEP / 2), ("as_they_come", 4 * STEP)])
def test_chunks_of_a_prompt_follow_each_other_in_vllms_queue_of_batches(batches: str, first: float) -> None:
    assert simulated(2, np.array([0.0]), batches, prompt=4 * 512).requests.first_token[0, 0] == first


def test_vllms_queue_looks_for_new_requests_when_a_batch_ends() -> None:
    """While one is under way and nothing can be formed, its engine waits for that alone."""
    firsts = {each: simulated(2, np.array([0.0, STEP / 4]), each).requests.first_token[0, 1] for each in BATCHES}
    assert firsts == {"vllm_queue": 2 * STEP, "as_they_come": STEP / 2 + STEP}
