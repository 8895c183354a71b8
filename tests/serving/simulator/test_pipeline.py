"""Pipelines at the limits where their answer is known without simulating."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.serving.simulator.policies import POLICIES
from jaxperf.serving.simulator.run import Simulated, simulate
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.state import Sizes
from jaxperf.serving.simulator.step_time import AbstractStepTime, Timing, Work
from jaxperf.serving.simulator.trace import pad_traces
from jaxperf.serving.simulator.used import used_since

STEP = 1.0  # s, of every step; a power of two, so that its shares are exact
OUTPUT = 33
POLICIES_TWO = ("vllm_v1", "sarathi")


class Constant(AbstractStepTime):
    """Every step takes the same time, whatever is in it."""

    def __call__(self, work: Work) -> Timing:
        return Timing(jnp.float64(STEP), jnp.int32(1), jnp.bool_(True))


def simulated(stages: int, arrived: np.ndarray, name: str = "vllm_v1", prompt: int = 8) -> Simulated:
    settings = {"sched": name, "num_blocks": 1000, "batch_size_cap": 8, "chunk_size": 512}
    requests = SimpleNamespace(
        arrived=arrived, prompt=np.full(len(arrived), prompt), output=np.full(len(arrived), OUTPUT)
    )
    given = parse_scheduler({**settings, "max_tokens_in_batch": 512}).arrays()
    found = simulate(POLICIES[name], Constant(), given, pad_traces([requests], 8), Sizes(8, 512, stages=stages))
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
    found = simulated(stages, np.arange(stages) * STEP / stages, "sarathi")
    waited = found.requests.completed[0, :stages] - np.arange(stages) * STEP / stages
    assert waited.tolist() == [OUTPUT * STEP] * stages
    # One stage's work for every token of four requests: the pipeline gives one token each share of a step.
    assert found.totals.busy[0] == stages * OUTPUT * STEP / stages


def test_a_full_pipeline_has_the_throughput_of_its_stages() -> None:
    """Eight requests at once in one batch of prompts keep together: no more than without a pipeline."""
    ends = {stages: simulated(stages, np.zeros(8)).requests.completed.max() for stages in (1, 2)}
    assert ends == {1: OUTPUT * STEP, 2: OUTPUT * STEP}
    apart = simulated(2, np.repeat([0.0, STEP / 2], 4), "sarathi").requests.completed[0, :8]
    assert apart.max() == OUTPUT * STEP + STEP / 2


@pytest.mark.parametrize(("name", "first"), [("vllm_v1", (4 + 1) * STEP / 2), ("sarathi", 4 * STEP)])
def test_chunks_of_a_prompt_follow_each_other_in_vllms_queue_of_batches(name: str, first: float) -> None:
    assert simulated(2, np.array([0.0]), name, prompt=4 * 512).requests.first_token[0, 0] == first


def test_vllms_queue_looks_for_new_requests_when_a_batch_ends() -> None:
    """While one is under way and nothing can be formed, its engine waits for that alone; Vidur's takes what comes."""
    firsts = {name: simulated(2, np.array([0.0, STEP / 4]), name).requests.first_token[0, 1] for name in POLICIES_TWO}
    assert firsts == {"vllm_v1": 2 * STEP, "sarathi": STEP / 2 + STEP}
