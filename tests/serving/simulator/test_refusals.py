"""Why an empty replica does not admit a request, at the largest that it does and one token more."""

from __future__ import annotations

from typing import Any

import pytest

from jaxperf.serving.simulator.refusals import refusal
from jaxperf.serving.simulator.settings import parse_scheduler


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
