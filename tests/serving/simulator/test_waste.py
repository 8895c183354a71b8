"""Empty places in blocks against counting them, against the plain reference, and against (B - 1) / 2 a sequence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.waste import fragmentation
from jaxperf.serving.simulator.workloads import draw_requests
from tests.serving.simulator import fuzz, reference

lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 60), st.booleans()), min_size=1, max_size=5)


def requests_of(prompt: np.ndarray, output: np.ndarray, done: np.ndarray) -> dict[str, np.ndarray]:
    return {"prompt": prompt, "output": output, "completed": np.where(done, 1.0, -1.0)}


@given(lengths, st.integers(1, 17), st.integers(0, 12))
def test_places_are_those_counted_step_by_step(given: list[tuple[int, int, bool]], size: int, reserved: int) -> None:
    prompt, output, done = (np.array(values) for values in zip(*given, strict=True))
    found = fragmentation(requests_of(prompt, output, done), size, reserved)
    held = [p + j for p, o, ended in given if ended for j in range(o)]
    empty = [max(reserved, -(-tokens // size)) * size - tokens for tokens in held]
    if not held:
        assert all(np.isnan(value) for value in found.values())
        return
    assert found["kv_empty_tokens"] == pytest.approx(np.mean(empty))
    assert found["kv_waste"] == pytest.approx(sum(empty) / (sum(empty) + sum(held)))


SHORT = {"kind": "uniform", "low": 2, "high": 24}


def test_a_simulation_holds_what_the_plain_reference_counts() -> None:
    """Every step in which a request makes a token: the blocks that it has, and what is in them."""
    data = {"sched": "vllm_v1", "num_blocks": 400, "block_size": 4, "batch_size_cap": 8, "max_tokens_in_batch": 300}
    drawn = {"count": 60, "seed": 3, "arrivals": {"kind": "poisson", "rate": 40.0}, "prompt": SHORT, "output": SHORT}
    requests, scheduler = draw_requests(drawn), parse_scheduler(data)
    found = simulate_requests(scheduler, fuzz.table(), [requests])
    completed = found.requests.completed[0, : len(requests.arrived)]
    said = scheduler.fragmentation({"prompt": requests.prompt, "output": requests.output, "completed": completed})
    listed = zip(requests.arrived.tolist(), requests.prompt.tolist(), requests.output.tolist(), strict=True)
    plain = [reference.Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(listed)]
    empty, cached = [], []

    def seconds(batch: reference.Batch) -> float:
        for one, tokens in batch:
            if one.prefilled or one.processed + tokens == one.prompt:
                cached.append(one.processed - one.prefilled + tokens)
                empty.append(one.blocks * 4 - cached[-1])
        return fuzz.seconds(batch)

    reference.simulate("vllm_v1", dict(scheduler.numbers), plain, seconds)
    assert said["kv_empty_tokens"] == pytest.approx(np.mean(empty), rel=1e-12)
    assert said["kv_waste"] == pytest.approx(sum(empty) / (sum(empty) + sum(cached)), rel=1e-12)


@pytest.mark.parametrize("size", [1, 8, 32])
def test_half_a_block_of_a_sequence_is_empty(size: int) -> None:
    """Of lengths spread evenly over the places of a block, (B - 1) / 2 are."""
    random = np.random.default_rng(1)
    prompt, output = random.integers(20, 276, (2, 4000))
    found = fragmentation(requests_of(prompt, output, np.ones(4000, bool)), size)
    assert found["kv_empty_tokens"] == pytest.approx((size - 1) / 2, rel=0.01)


def test_blocks_for_the_longest_sequence_are_mostly_empty() -> None:
    sizes = {"num_blocks": 400, "block_size": 4, "batch_size_cap": 4, "pred_max_tokens": 128}
    requests = requests_of(np.full(9, 12), np.full(9, 20), np.ones(9, bool))
    paged, reserved = (
        parse_scheduler({"sched": name, **sizes}).fragmentation(requests)["kv_waste"] for name in ("sarathi", "orca")
    )
    assert paged < 0.15 and 0.7 < reserved < 1.0
