"""Why an empty replica does not admit a request, at the largest that it does and one token more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jaxperf.serving.simulator.refusals import refusal, refusals
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.state import Status
from jaxperf.serving.simulator.workloads import Requests
from tests.serving.simulator import fuzz


@pytest.mark.parametrize(
    ("given", "largest", "words"),
    [
        ({"sched": "vllm"}, 640, "41 blocks of 16 tokens for its prompt, num_blocks is 40"),
        (
            {"sched": "vllm", "watermark_blocks": 4},
            576,
            "37 blocks of 16 tokens for its prompt and a watermark of 4, num_blocks is 40",
        ),
        ({"sched": "sarathi_fixed"}, 640, "41 blocks of 16 tokens for its prompt, num_blocks is 40"),
        ({"sched": "vllm_v1", "watermark_blocks": 4}, 640, "41 blocks of 16 tokens for its prompt, num_blocks is 40"),
        ({"sched": "vllm", "max_tokens_in_batch": 64}, 64, "a prompt of 65 tokens, max_tokens_in_batch is 64"),
        ({"sched": "lightllm", "num_blocks": 100}, 90, "101 tokens with its output, num_blocks is 100"),
    ],
)
def test_the_number_that_is_too_large_and_its_limit_are_named(given: dict[str, Any], largest: int, words: str) -> None:
    scheduler = parse_scheduler({"num_blocks": 40, **given})
    assert (refusal(scheduler, largest, 10), refusal(scheduler, largest + 1, 10)) == ("", words)


def test_reservations_are_as_large_for_any_request() -> None:
    scheduler = parse_scheduler({"sched": "orca", "num_blocks": 40})
    assert refusal(scheduler, 1, 1) == "256 blocks reserved for each request, num_blocks is 40"
    assert refusal(parse_scheduler({"sched": "orca", "num_blocks": 256}), 4000, 1) == ""


@pytest.mark.parametrize(
    ("given", "largest", "need", "beside"),
    [
        ({"sched": "vllm_v1"}, 639, 41, ", num_blocks"),
        ({"sched": "sarathi", "watermark_blocks": 4}, 575, 37, " and a watermark of 4, "),
        ({"sched": "vllm", "watermark_blocks": 0, "max_tokens_in_batch": 64}, 623, 40, " and one left free, "),
    ],
)
def test_a_prompt_that_is_brought_needs_room_for_the_next_token(
    given: dict[str, Any], largest: int, need: int, beside: str
) -> None:
    """As the simulated replica, which completes the largest that is not refused."""
    words = f"{need} blocks of 16 tokens for its prompt and the next token{beside}"
    scheduler = parse_scheduler({"num_blocks": 40, "block_size": 16, **given})
    assert refusal(scheduler, largest, 2, whole=True) == ""
    assert refusal(scheduler, largest + 1, 2, whole=True).startswith(words)
    prompt = np.array([largest, largest + 1])
    requests = Requests(np.zeros(2), prompt, np.full(2, 2), brought=prompt)
    found = simulate_requests(scheduler, fuzz.table(), [requests]).requests
    assert found.status[0, :2].tolist() == [Status.COMPLETED, Status.REJECTED]
    columns = {"status": found.status[0, :2], "scheduled": found.scheduled[0, :2], "prompt": prompt}
    told = refusals(scheduler, {**columns, "output": requests.output}, prompt)
    assert list(told) == [1] and told[1].startswith(words)
