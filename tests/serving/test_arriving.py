"""Requests that come at a rate, with the step times of a closed loop, beside what is simulated."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.serving.arriving import Arriving, open_loop, open_pools, step_law
from jaxperf.serving.queueing.engine import chunked
from jaxperf.serving.queueing.law import decode_attention, linear_time
from jaxperf.serving.steady import Load, Schedule, Steady, Steps, aggregated

FLOOR, TOKEN, READ, FIRST = 4e-3, 2e-5, 1e-5, 1e-3  # s
PROMPT, SLOTS = 2000.0, 256.0
PREFILL, WIRE = TOKEN * PROMPT, 2e-3
SHARES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])  # of the rate that prompts alone allow
SCHEDULE = Schedule(1.0, 0.0, 0.5, FIRST)

STEPS = Steps(
    decode=lambda batch: jnp.maximum(FLOOR, TOKEN * batch) + READ * batch,
    attention=lambda batch: READ * batch,
    prefill=lambda prompts: jnp.maximum(FLOOR, TOKEN * PROMPT * prompts),
)


@jax.jit
@jax.vmap
def served(rate: jax.Array, output: jax.Array) -> tuple[Steady, jax.Array]:
    load = Load(1.0, output, SLOTS, 4.0)
    return open_loop(chunked, STEPS, load, SCHEDULE, Arriving(rate, PROMPT))


def test_prompts_alone_at_a_rate_queue():
    """Those that come while a step runs share the next one; by the simulator of vLLM v1 with these very steps."""
    found, utilization = served(SHARES / PREFILL, np.ones(5))
    np.testing.assert_allclose(utilization, SHARES, rtol=0.01)
    np.testing.assert_allclose(found.ttft[:4] - FIRST, [0.0424, 0.0507, 0.0670, 0.1060], rtol=0.02)
    np.testing.assert_allclose(found.e2e, found.ttft)
    assert np.isnan(found.tpot).all()


def test_what_decodes_too_is_as_simulated():
    """Poisson arrivals of 128 tokens out: 16 runs of 2,048 requests."""
    found, _ = served(np.array([2.311, 6.933, 11.555, 16.177, 1.0]), np.full(5, 128.0))
    np.testing.assert_allclose(found.ttft[:4] - FIRST, [0.0437, 0.0520, 0.0664, 0.0969], rtol=0.02)
    np.testing.assert_allclose(found.tpot[:4], [0.00442, 0.00555, 0.00748, 0.01167], rtol=0.02)


def test_an_open_loop_serves_its_rate_and_says_where_it_cannot():
    rates = np.array([1e-3, 1.0, 10.0, 20.0, 1e3])
    found, utilization = served(rates, np.full(5, 100.0))
    np.testing.assert_allclose(found.throughput[:4], 100.0 * rates[:4])
    assert (utilization[:4] < 1.0).all() and utilization[4] > 1.0
    np.testing.assert_allclose(found.throughput[4], 100.0 * rates[4] / utilization[4])
    np.testing.assert_allclose(found.e2e, found.ttft + 99.0 * found.tpot)
    alone = aggregated(STEPS, Load(1.0, 100.0, SLOTS, 4.0), SCHEDULE)
    np.testing.assert_allclose((found.ttft[0], found.e2e[0]), (alone.ttft, alone.e2e), rtol=1e-2)
    assert (np.diff(found.e2e) > 0.0).all() and (np.diff(found.ttft) > 0.0).all()


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None, None, None))
def served_apart(rate: jax.Array, prompt: float, together: float, prefillers: float) -> tuple[Steady, jax.Array]:
    """On four engines, of which `prefillers` prefill."""
    load, arriving = Load(1.0, 100.0, SLOTS, together), Arriving(rate, prompt)
    prefill = lambda prompts: jnp.maximum(FLOOR, TOKEN * prompt * prompts)  # noqa: E731
    steps, split = Steps(STEPS.decode, STEPS.attention, prefill), jnp.array([0.0, prefillers])
    return open_pools(steps, load, SCHEDULE, arriving, jnp.maximum(split, prefillers), as_float(4.0), as_float(WIRE))


def test_prompts_in_a_pool_of_their_own_queue_one_by_one():
    """Three of four engines prefill: each sees every third request, of which one a time is M/D/1 less what is even."""
    busy = np.array([1e-3, 0.3, 0.6, 0.9, 3.0])
    found, utilization = served_apart(3.0 * busy / PREFILL, PROMPT, 1.0, 3.0)
    np.testing.assert_allclose(utilization, busy, rtol=0.01)
    waits = np.asarray(found.ttft) - FIRST - PREFILL - WIRE
    assert waits[0] == pytest.approx(0.0, abs=1e-4)
    assert (waits[1:4] > 0.0).all()
    assert (waits[1:4] < PREFILL * 0.5 * busy[1:4] / (1.0 - busy[1:4]) + WIRE).all()
    assert (np.diff(found.ttft) > 0.0).all() and (np.diff(found.tpot) > 0.0).all()
    np.testing.assert_allclose(found.e2e, found.ttft + 99.0 * found.tpot)
    np.testing.assert_allclose(found.throughput, 300.0 / PREFILL * np.minimum(busy, 1.0), rtol=0.01)


def test_prompts_in_a_pool_of_their_own_share_steps():
    """Short ones, of which two take no longer than one; two and two engines of vLLM v1 with these very steps, dealt to
    in turn, whose senders send one cache after another: 6,144 simulated requests."""
    found, utilization = served_apart(np.array([134.7, 269.4, 404.0, 505.1, 1.0]), 100.0, 16.0, 2.0)
    assert (utilization < 0.8).all()
    np.testing.assert_allclose(found.ttft[:4] - FIRST, [0.00618, 0.00669, 0.00747, 0.00825], rtol=0.08)
    np.testing.assert_allclose(found.tpot[:4], [0.00431, 0.00464, 0.00503, 0.00536], rtol=0.01)


@pytest.mark.parametrize("prompt", [4.0, 100.0, 2000.0, 12000.0])
def test_the_step_law_has_the_step_times_it_was_made_of(prompt: float):
    """Decodes alone and prompts alone take what they take: short prompts with a fixed part of 10 ms, and decodes whose
    host takes longer for many than any prompt."""
    together = max(1.0, 8192.0 // prompt)
    decode = lambda batch: STEPS.decode(batch) + 1e-4 * batch  # noqa: E731
    steps = Steps(decode, STEPS.attention, lambda k: jnp.maximum(FLOOR, TOKEN * prompt * k) + 0.01)
    law, tokens = step_law(steps, as_float(SLOTS), as_float(prompt), as_float(min(together, SLOTS)))
    for count in (1.0, 17.0, 200.0, SLOTS):
        decodes = linear_time(law, as_float(count)) + decode_attention(law, as_float(count), as_float(1.0))
        assert float(decodes) == pytest.approx(float(decode(as_float(count))), rel=0.03)
    for prompts in (1.0, min(together, SLOTS)):
        whole = linear_time(law, prompts * tokens) + law.prefill[0]
        assert float(whole) == pytest.approx(float(steps.prefill(as_float(prompts))), rel=0.02)
