"""Empty places in blocks against counting them, against the plain reference, and against (B - 1) / 2 a sequence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.serving.simulator.metrics import summarize
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import Scheduler, parse_scheduler
from jaxperf.serving.simulator.state import EMPTY, Slots
from jaxperf.serving.simulator.step_time import Work
from jaxperf.serving.simulator.steps import Run
from jaxperf.serving.simulator.waste import filling_of
from jaxperf.serving.simulator.workloads import Requests, draw_requests
from tests.serving.simulator import fuzz, reference

filling = jax.jit(filling_of)
# Of a slot: prompt, tokens made, blocks more than are needed, whether it is taken.
slots = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5), st.booleans()), min_size=3, max_size=3
)


@given(slots, st.integers(1, 17), st.integers(1, 40))
def test_a_run_of_decodes_is_that_of_single_steps(given: list[tuple], size: int, steps: int) -> None:
    prompt, made, more, taken = (np.array(values) for values in zip(*given, strict=True))
    processed = prompt + made
    blocks = -(-processed // size) + more
    columns = {"request": np.where(taken, 0, EMPTY), "processed": processed, "prompt": prompt, "blocks": blocks}
    sequences, in_cache, empty = _filling(columns, np.ones(3), steps, size)
    held = processed[:, None] + np.arange(steps)  # a step writes the token that was made before it
    places = np.maximum(blocks[:, None], -(-held // size)) * size
    assert sequences == taken.sum()
    assert in_cache == pytest.approx(held[taken].sum() / steps)
    assert empty == pytest.approx((places - held)[taken].sum() / steps)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 3), st.integers(1, 17))
def test_a_part_of_a_prompt_fills_what_it_computes(before: int, chunk: int, more: int, size: int) -> None:
    blocks = -(-before // size) + more
    columns = {"request": 0, "processed": before, "prompt": before + chunk + 1, "blocks": blocks}
    _, in_cache, empty = _filling(
        {name: np.array([value]) for name, value in columns.items()}, np.array([chunk]), 1, size
    )
    held = before + chunk
    assert in_cache == held and empty == max(blocks, -(-held // size)) * size - held


def _filling(columns: dict[str, np.ndarray], tokens: np.ndarray, steps: int, size: int) -> tuple[float, float, float]:
    """Sequences, tokens and empty places."""
    counts = {name: jnp.asarray(values, jnp.int32) for name, values in columns.items()}
    none = jnp.zeros(len(tokens), jnp.int32)
    slots = Slots(**counts, total=none, chunk=none, first_token=jnp.zeros(len(tokens)))
    one = jnp.float64(1.0)
    work = Work(jnp.asarray(tokens, jnp.int32), slots.processed, none > 0)
    run = Run(jnp.int32(steps), one, jnp.int32(len(tokens)), one > 0.0, work, none)
    sequences, held, empty = filling(slots, run, jnp.int32(size))
    return float(sequences), float(held), float(empty)


LENGTHS = {"kind": "uniform", "low": 2, "high": 24}


DRAWN = {"count": 60, "seed": 3, "arrivals": {"kind": "poisson", "rate": 40.0}, "prompt": LENGTHS, "output": LENGTHS}


def test_a_simulation_holds_what_the_plain_reference_counts() -> None:
    data = {"sched": "vllm_v1", "num_blocks": 400, "block_size": 4, "batch_size_cap": 8, "max_tokens_in_batch": 300}
    requests, scheduler = draw_requests(DRAWN), parse_scheduler(data)
    said = _summary(requests, scheduler)
    listed = zip(requests.arrived.tolist(), requests.prompt.tolist(), requests.output.tolist(), strict=True)
    plain = [reference.Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(listed)]
    sums = np.zeros(3)  # sequences, tokens and empty places, times the length of the step

    def seconds(batch: reference.Batch) -> float:
        took = fuzz.seconds(batch)
        for one, tokens in batch:  # everybody is in every batch
            held = one.processed - one.prefilled + tokens
            sums[:] += np.array([1.0, held, one.blocks * 4 - held]) * took
        return took

    reference.simulate("vllm_v1", dict(scheduler.numbers), plain, seconds)
    assert said["kv_waste"] == pytest.approx(sums[2] / (sums[1] + sums[2]), rel=1e-9)
    assert said["kv_empty_tokens"] == pytest.approx(sums[2] / sums[0], rel=1e-9)


@pytest.mark.parametrize("size", [1, 8, 32])
def test_half_a_block_of_a_sequence_is_empty(size: int) -> None:
    """Of lengths spread evenly over the places of a block, (B - 1) / 2 are."""
    spread = {"kind": "uniform", "low": 20, "high": 20 + 8 * 32 - 1}
    drawn = {"count": 400, "seed": 1, "arrivals": {"kind": "poisson", "rate": 1.0}, "prompt": spread, "output": spread}
    data = {"sched": "vllm_v1", "num_blocks": 1 << 16, "block_size": size, "batch_size_cap": 8}
    said = _summary(draw_requests(drawn), parse_scheduler(data | {"max_tokens_in_batch": 4096}))
    assert said["kv_empty_tokens"] == pytest.approx((size - 1) / 2, rel=0.03)


def test_blocks_for_the_longest_sequence_are_mostly_empty() -> None:
    sizes = {"num_blocks": 400, "block_size": 4, "batch_size_cap": 4, "max_tokens_in_batch": 300}
    paged, reserved = (
        _summary(draw_requests(DRAWN), parse_scheduler({"sched": name, "pred_max_tokens": 128, **sizes}))["kv_waste"]
        for name in ("sarathi", "orca")
    )
    assert paged < 0.15 and 0.7 < reserved < 1.0


def _summary(requests: Requests, scheduler: Scheduler) -> dict[str, Any]:
    found = simulate_requests(scheduler, fuzz.table(), [requests])
    names = ("arrived", "scheduled", "first_token", "completed", "restarts")
    columns = {name: getattr(found.requests, name)[0, : len(requests.arrived)] for name in names}
    return summarize([columns | {"prompt": requests.prompt, "output": requests.output}], found, 1 << 16, {})
