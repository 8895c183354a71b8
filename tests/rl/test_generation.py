"""Generation: when the last answer ends, where that is known without simulating."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.rl.answers import Answers, dealt
from jaxperf.rl.generation import generate
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import Scheduler, parse_scheduler
from jaxperf.serving.simulator.step_time import AbstractStepTime, Timing, Work

STEP = 0.5


class Constant(AbstractStepTime):
    """Every step takes the same time, whatever is in it."""

    def __call__(self, work: Work) -> Timing:
        return Timing(jnp.float64(STEP), jnp.int32(1), jnp.bool_(True))


def scheduler(blocks: int = 4000, cap: int = 64) -> Scheduler:
    return parse_scheduler({"sched": "vllm_v1", "num_blocks": blocks, "batch_size_cap": cap})


def answers(output: list[int], samples: int = 1) -> Answers:
    number = len(output)
    return Answers(np.arange(number) // samples, np.full(number, 20), np.array(output))


def test_the_longest_answer_decides_and_the_others_replicas_wait_for_it() -> None:
    found = generate(scheduler(), Constant(), answers([10, 20, 30, 40]), 4)
    assert found.seconds == 40 * STEP
    assert found.idle == pytest.approx(1.0 - (10 + 20 + 30 + 40) / (4 * 40))
    assert found.most == pytest.approx(np.quantile([10, 20, 30, 40], 0.9) * STEP)
    assert found.evictions == 0


def test_replicas_without_a_prompt_are_idle_all_the_time() -> None:
    assert generate(scheduler(), Constant(), answers([8, 8]), 4).idle == pytest.approx(0.5)


def test_more_answers_than_places_come_one_after_the_other() -> None:
    assert generate(scheduler(cap=2), Constant(), answers([16] * 6), 1).seconds == pytest.approx(3 * 16 * STEP, rel=0.1)


def test_answers_to_one_prompt_find_it_in_the_cache() -> None:
    """A budget of one prompt a step: the second sample of each needs only what is behind the last full block."""
    tight = parse_scheduler(
        {"sched": "vllm_v1", "num_blocks": 4000, "batch_size_cap": 20, "max_tokens_in_batch": 20, "block_size": 4}
    )
    apart = generate(tight, Constant(), answers([4] * 8), 1).seconds
    together = generate(tight, Constant(), answers([4] * 8, samples=8), 1).seconds
    assert together < apart


def test_blocks_of_an_answer_itself_need_no_place_in_the_cache_as_nobody_else_begins_with_them() -> None:
    given = answers([30, 40, 50, 60, 9, 10], samples=3)
    (share,) = dealt(given, 1, 16)
    blocks, columns = given.lengths // 16, np.arange((given.lengths // 16).max())
    own = 1000 + 100 * np.arange(len(blocks))[:, None] + columns
    prompts = np.pad(share.path, ((0, 0), (0, len(columns) - share.path.shape[1])), constant_values=-1)
    whole = np.where(columns < blocks[:, None], np.where(prompts >= 0, prompts, own), -1)
    names, ids = np.unique(whole, return_inverse=True)
    assert names[0] == -1
    tight = scheduler(blocks=14)
    found = [
        simulate_requests(tight, Constant(), [dataclasses.replace(share, path=path)]).requests
        for path in (share.path, ids.reshape(whole.shape) - 1)
    ]
    assert found[0].completed.tolist() == found[1].completed.tolist()
    assert found[0].restarts.sum() == found[1].restarts.sum() == 0


def test_an_answer_that_never_fits_is_said() -> None:
    with pytest.raises(InputError, match="1 of 2 answers do not fit into the KV cache .* the longest has 520 tokens"):
        generate(scheduler(blocks=20), Constant(), answers([10, 500]), 1)
