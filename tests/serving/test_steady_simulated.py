"""The steady state beside the simulator, both with the same step times: a closed loop of ten waves."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.step_time import AbstractStepTime, Timing, Work
from jaxperf.serving.steady import Load, Schedule, Steady, Steps, aggregated

FIXED, EACH, PREFILL = 8e-3, 1e-4, 4e-2  # s
PROMPT, OUTPUT, WAVES = 1000, 400, 10


class Straight(AbstractStepTime):
    """A step of prompts takes their tokens' time, one of decodes a floor and a share each."""

    def __call__(self, work: Work) -> Timing:
        prompts = jnp.sum(jnp.where(work.decoding, 0, work.tokens), dtype=jnp.float64) / PROMPT
        decodes = jnp.sum(work.decoding, dtype=jnp.float64)
        seconds = jnp.where(prompts > 0, PREFILL * prompts, FIXED + EACH * decodes)
        return Timing(seconds.astype(jnp.float64), jnp.int32(1), jnp.bool_(True))


class Requests(NamedTuple):
    """A trace: all there from the start, for the client to send."""

    arrived: np.ndarray
    prompt: np.ndarray
    output: np.ndarray


def simulated(output: np.ndarray, concurrency: int) -> tuple[float, float, float]:
    """Mean TTFT, TPOT and latency of requests that prefill before others decode on, without the first wave and the
    emptying engine [s]."""
    count = len(output)
    trace = Requests(np.zeros(count), np.full(count, PROMPT), output)
    settings = {"sched": "vllm", "batch_size_cap": 128, "max_tokens_in_batch": PROMPT, "block_size": 16}
    scheduler = parse_scheduler({**settings, "num_blocks": 20000, "watermark_blocks": 200})
    found = simulate_requests(scheduler, Straight(), [trace], concurrency).requests
    sent, first, done = (
        np.asarray(getattr(found, name))[0, :count] for name in ("arrived", "first_token", "completed")
    )
    middle = slice(concurrency, count - concurrency)
    latencies = (first - sent, (done - first) / (output - 1), done - sent)
    ttft, tpot, e2e = (float(each[middle].mean()) for each in latencies)
    return ttft, tpot, e2e


def steady(concurrency: int, synchrony: float) -> Steady:
    """The closed form with the simulator's step times."""
    steps = Steps(lambda batch: FIXED + EACH * batch, lambda batch: 0.0 * batch, lambda prompts: PREFILL * prompts)
    load = Load(float(concurrency), float(OUTPUT), 128.0, 1.0)
    return aggregated(steps, load, Schedule(0.0, synchrony, 0.5, 0.0))


@pytest.mark.parametrize("concurrency", [2, 8, 32])
def test_a_closed_loop_is_the_simulated_one(concurrency: int):
    random = np.random.default_rng(0)
    output = random.integers(round(0.8 * OUTPUT), round(1.2 * OUTPUT) + 1, WAVES * concurrency)
    _, tpot, e2e = simulated(output, concurrency)
    found = steady(concurrency, 1.0 / WAVES)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.1)
    assert float(found.tpot) == pytest.approx(tpot, rel=0.1)


@pytest.mark.parametrize("concurrency", [2, 8, 32])
def test_a_burst_of_equal_lengths_stays_one_where_prefills_come_first(concurrency: int):
    """Not only the first of ten waves: all of them wait for half of the others' prefills."""
    ttft, tpot, e2e = simulated(np.full(WAVES * concurrency, OUTPUT), concurrency)
    found = steady(concurrency, 1.0)
    assert float(found.ttft) == pytest.approx(ttft, rel=0.1)
    assert float(found.tpot) == pytest.approx(tpot, rel=0.1)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.1)
