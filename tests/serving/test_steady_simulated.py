"""The steady state beside the simulator, both with the same step times: a closed loop of ten waves."""

from __future__ import annotations

from typing import Any, NamedTuple

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


PREFILL_FIRST = {"sched": "vllm", "max_tokens_in_batch": PROMPT, "watermark_blocks": 200}
MIXED = {"sched": "vllm_v1", "max_tokens_in_batch": PROMPT + 128}  # a prompt a step, and all that decode


def simulated(output: np.ndarray, concurrency: int, engine: dict[str, Any]) -> tuple[float, float, float]:
    """Mean TTFT, TPOT and latency of requests without the first wave and the emptying engine [s]."""
    count = len(output)
    trace = Requests(np.zeros(count), np.full(count, PROMPT), output)
    scheduler = parse_scheduler({"batch_size_cap": 128, "block_size": 16, "num_blocks": 20000, **engine})
    found = simulate_requests(scheduler, Straight(), [trace], concurrency).requests
    sent, first, done = (
        np.asarray(getattr(found, name))[0, :count] for name in ("arrived", "first_token", "completed")
    )
    middle = slice(concurrency, count - concurrency)
    latencies = (first - sent, (done - first) / np.maximum(output - 1, 1), done - sent)
    ttft, tpot, e2e = (float(each[middle].mean()) for each in latencies)
    return ttft, tpot, e2e


STEPS = Steps(lambda batch: FIXED + EACH * batch, lambda batch: 0.0 * batch, lambda prompts: PREFILL * prompts)


def steady(concurrency: int, synchrony: float, output: int = OUTPUT, mixing: float = 0.0) -> Steady:
    """The closed form with the simulator's step times."""
    load = Load(float(concurrency), float(output), 128.0, 1.0)
    return aggregated(STEPS, load, Schedule(mixing, synchrony, 0.5, 0.0))


@pytest.mark.parametrize("concurrency", [2, 8, 32])
@pytest.mark.long
def test_a_closed_loop_is_the_simulated_one(concurrency: int):
    random = np.random.default_rng(0)
    output = random.integers(round(0.8 * OUTPUT), round(1.2 * OUTPUT) + 1, WAVES * concurrency)
    _, tpot, e2e = simulated(output, concurrency, PREFILL_FIRST)
    found = steady(concurrency, 1.0 / WAVES)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.1)
    assert float(found.tpot) == pytest.approx(tpot, rel=0.1)


@pytest.mark.parametrize("concurrency", [2, 8, pytest.param(32, marks=pytest.mark.long)])
def test_a_burst_of_equal_lengths_stays_one_where_prefills_come_first(concurrency: int):
    """Not only the first of ten waves: all of them wait for half of the others' prefills."""
    ttft, tpot, e2e = simulated(np.full(WAVES * concurrency, OUTPUT), concurrency, PREFILL_FIRST)
    found = steady(concurrency, 1.0)
    assert float(found.ttft) == pytest.approx(ttft, rel=0.1)
    assert float(found.tpot) == pytest.approx(tpot, rel=0.1)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.1)


@pytest.mark.parametrize(("concurrency", "together"), [(8, 2), (12, 4), pytest.param(32, 4, marks=pytest.mark.long)])
def test_equal_lengths_come_back_as_many_a_step_as_were_prefilled_together(concurrency: int, together: int):
    """Where steps decode and prefill at once; the simulated client sends the next request in no time, so that it waits
    for no step."""
    engine = {**MIXED, "max_tokens_in_batch": together * PROMPT + 128}
    ttft, tpot, e2e = simulated(np.full(WAVES * concurrency, OUTPUT), concurrency, engine)
    load = Load(float(concurrency), float(OUTPUT), 128.0, float(together))
    found = aggregated(STEPS, load, Schedule(1.0, 0.0, 0.0, 0.0, row=1.0))
    assert float(found.ttft) == pytest.approx(ttft, rel=0.15)
    assert float(found.tpot) == pytest.approx(tpot, rel=0.05)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.05)


@pytest.mark.parametrize("concurrency", [2, 8, 32])
@pytest.mark.parametrize(("engine", "mixing"), [(PREFILL_FIRST, 0.0), (MIXED, 1.0)])
def test_requests_of_one_token_wait_for_prefills_alone(engine: dict[str, Any], mixing: float, concurrency: int):
    ttft, _, e2e = simulated(np.ones(WAVES * concurrency, int), concurrency, engine)
    found = steady(concurrency, 1.0 / WAVES, 1, mixing)
    assert float(found.ttft) == pytest.approx(ttft, rel=0.02)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize(("concurrency", "output"), [(8, 2), (8, 4), (32, 2), (32, 8), (32, 16)])
def test_short_outputs_meet_no_more_prefill_steps_than_they_have_tokens(concurrency: int, output: int):
    """Where each such step gives a token; the prefills of the others are waited for before the first one."""
    ttft, tpot, e2e = simulated(np.full(WAVES * concurrency, output), concurrency, MIXED)
    found = steady(concurrency, 1.0 / WAVES, output, 1.0)
    assert float(found.ttft) == pytest.approx(ttft, rel=0.15)
    assert float(found.tpot) == pytest.approx(tpot, rel=0.15)
    assert float(found.e2e) == pytest.approx(e2e, rel=0.02)
