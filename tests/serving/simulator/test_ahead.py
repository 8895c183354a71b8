"""Steps formed while the one before them is computed (`async_scheduling`), worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import parse_scheduler
from tests.serving.simulator.fuzz import TICK, table

SETTINGS = {"sched": "vllm_v1", "num_blocks": 100, "block_size": 4, "batch_size_cap": 4, "max_tokens_in_batch": 40}


def test_who_comes_during_a_step_waits_for_its_end_and_for_the_next_step() -> None:
    # Ticks: 5 a step, one for four tokens; a prompt of 8 tokens 2 + 8; a decode 1 + 1 + 2 * 2 (contexts of 9 to 16).
    requests = SimpleNamespace(
        arrived=np.array([0.0, 18 * TICK]), prompt=np.array([8, 8]), output=np.array([6, 1]), path=None
    )
    ends = {}
    for ahead in (False, True):
        scheduler = parse_scheduler({**SETTINGS, "async_scheduling": ahead, "enable_prefix_caching": False})
        found = simulate_requests(scheduler, table(), [requests]).requests
        ends[ahead] = np.round(found.first_token[0, :2] / TICK), found.scheduled[0, 1] / TICK
    prompt, decode, mixed = 5 + 2 + (2 + 8), 5 + (1 + 1 + 4), 5 + 2 + (1 + 1 + 4) + (2 + 8)
    np.testing.assert_array_equal(ends[False][0], [prompt, prompt + decode + mixed])
    # The decode under way when it comes was followed by one more, formed when that began.
    np.testing.assert_array_equal(ends[True][0], [prompt, prompt + 2 * decode + mixed])
    assert ends[True][1] == prompt + decode


def test_prompts_computed_elsewhere_beside_cached_prefixes_are_refused() -> None:
    brought = SimpleNamespace(
        arrived=np.zeros(1), prompt=np.array([8]), output=np.array([2]), brought=np.array([4]), path=np.array([[0, 1]])
    )
    with pytest.raises(InputError, match="set enable_prefix_caching to false"):
        simulate_requests(parse_scheduler({**SETTINGS, "async_scheduling": True}), table(), [brought])
