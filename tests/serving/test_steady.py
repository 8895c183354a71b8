"""Steady states: what must hold exactly, a schedule played out step by step, and slopes that exist."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.serving import steady
from jaxperf.serving.steady import Load, Schedule, Steady, Steps

FIXED, EACH, READ, PREFILL = 5e-3, 1e-4, 4e-5, 3e-2  # s
aggregated, disaggregated, fixed_batch = (
    jax.jit(each, static_argnums=0) for each in (steady.aggregated, steady.disaggregated, steady.fixed_batch)
)


@functools.cache
def steps() -> Steps:
    """Decode in proportion to the batch above a floor, prefill in proportion to the prompts."""
    return Steps(
        decode=lambda batch: FIXED + EACH * batch,
        attention=lambda batch: READ * batch,
        prefill=lambda prompts: PREFILL * prompts,
    )


def load(concurrency: float, output: float = 100.0, slots: float = 1e3, together: float = 1.0) -> Load:
    return Load(concurrency, output, slots, together)


@pytest.mark.parametrize("mixing", [0.0, 1.0])
def test_a_request_alone_waits_for_nobody(mixing: float):
    found = aggregated(steps(), load(1.0), Schedule(mixing, 0.0, 1.0, 0.01))
    assert float(found.ttft) == pytest.approx(0.01 + PREFILL, rel=1e-9)
    assert float(found.tpot) == pytest.approx(FIXED + EACH, rel=1e-9)
    assert float(found.throughput) == pytest.approx(100.0 / float(found.e2e), rel=1e-9)


def played(requests: int, output: int) -> tuple[float, float]:
    """(mean TTFT, mean TPOT) of a burst on an engine that prefills first, one prompt a step, and ends all together."""
    clock, firsts = 0.0, []
    for _ in range(requests):
        clock += PREFILL
        firsts.append(clock)
    for _ in range(output - 1):
        clock += FIXED + EACH * requests
    return sum(firsts) / requests, sum((clock - first) / (output - 1) for first in firsts) / requests


@settings(max_examples=20, deadline=None)
@given(requests=st.integers(1, 200), output=st.integers(2, 2000))
def test_a_burst_is_what_playing_it_out_gives(requests: int, output: int):
    found = aggregated(steps(), load(float(requests), float(output)), Schedule(0.0, 1.0, 0.0, 0.0))
    ttft, tpot = played(requests, output)
    assert float(found.ttft) == pytest.approx(ttft, rel=1e-9)
    assert float(found.tpot) == pytest.approx(tpot, rel=1e-9)


def row_of(requests: float, turn: float, ahead: float = 0.0, slots: float = 1e3) -> Steady:
    schedule = Schedule(1.0, 0.0, 0.0, 0.0, row=1.0, ahead=ahead, turn=turn)
    return aggregated(steps(), load(requests, slots=slots, together=2.0), schedule)


def test_in_a_row_a_newcomer_waits_for_the_steps_before_it_and_meets_as_many_less():
    """Which moves time between the two latencies."""
    none, one, two = row_of(16.0, 0.0), row_of(16.0, 1e-6), row_of(16.0, 1e-6, 1.0)
    step = 2.0 * PREFILL  # of eight that make the row, the first one or two find less before them
    assert float(one.ttft - none.ttft) == pytest.approx(step * 7.0 / 8.0, rel=0.02)
    assert float(two.ttft - one.ttft) == pytest.approx(step * 6.0 / 8.0, rel=0.02)
    assert float(two.tpot) < float(one.tpot) < float(none.tpot)
    assert float(two.e2e) == pytest.approx(float(none.e2e), rel=0.03)


def test_in_a_row_nobody_waits_for_more_steps_than_the_others_make():
    assert float(row_of(2.0, 1.0).ttft) == pytest.approx(float(row_of(2.0, 1e-6).ttft), rel=1e-3)


def test_a_request_that_waited_for_a_slot_waits_for_no_step():
    assert float(row_of(32.0, 1.0, slots=16.0).ttft) == float(row_of(32.0, 0.0, slots=16.0).ttft)


STILL = Steps(lambda batch: as_float(FIXED) + 0.0 * batch, lambda batch: 0.0 * batch, lambda prompts: PREFILL * prompts)


@settings(max_examples=20, deadline=None)
@given(requests=st.integers(1, 300), synchrony=st.floats(0.0, 1.0))
def test_the_order_of_work_moves_time_from_one_latency_to_the_other(requests: int, synchrony: float):
    """Prefill first: what a request waits for in all is everyone's prefills, whoever starts when."""
    found = aggregated(STILL, load(float(requests)), Schedule(0.0, synchrony, 0.0, 0.0))
    wanted = requests * PREFILL + 99 * FIXED
    half_a_step = 0.5 * FIXED * (1.0 - synchrony) * (requests - 1) / requests
    assert float(found.e2e) == pytest.approx(wanted + half_a_step, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(requests=st.integers(1, 300), synchrony=st.floats(0.0, 1.0), mixing=st.sampled_from([0.0, 1.0]))
def test_requests_of_one_token_only_wait_for_prefills(requests: int, synchrony: float, mixing: float):
    schedule = Schedule(mixing, synchrony, 0.5, 0.0)
    found = aggregated(steps(), load(float(requests), output=1.0), schedule)
    assert float(found.ttft) == float(found.e2e) == pytest.approx(requests * PREFILL, rel=1e-9)
    assert float(found.throughput) == pytest.approx(1.0 / PREFILL, rel=1e-9)
    assert jnp.isnan(found.tpot)
    alone = Schedule(mixing, synchrony, 0.0, 0.0)
    pools = disaggregated(
        steps(), load(float(requests), output=1.0), alone, as_float(1.0), as_float(1.0), as_float(0.0)
    )
    assert float(pools.e2e) == pytest.approx(requests * PREFILL, rel=1e-9) and jnp.isnan(pools.tpot)
    batch = fixed_batch(steps(), load(float(requests), output=1.0), schedule)
    assert float(batch.e2e) == pytest.approx(requests * PREFILL, rel=1e-9) and jnp.isnan(batch.tpot)


def test_what_takes_long_beside_the_steps_leaves_room_for_requests_of_one_token():
    """A second of network: the prefills of four requests pass within it."""
    found = aggregated(steps(), load(4.0, output=1.0), Schedule(1.0, 0.0, 0.5, 1.0))
    assert float(found.ttft) == pytest.approx(1.0 + PREFILL + 0.75 * 0.5 * PREFILL, rel=1e-9)


@pytest.mark.parametrize("output", [2, 3, 8, 40])
def test_a_token_takes_no_longer_than_a_full_step_where_prefill_steps_decode(output: int):
    found = aggregated(steps(), load(64.0, float(output), together=8.0), Schedule(1.0, 0.0, 0.5, 0.0))
    assert float(found.tpot) <= 8.0 * PREFILL + READ * 64.0
    assert float(found.e2e) >= 64.0 * PREFILL * (1.0 - 1e-9)
    assert float(found.prefill_share) <= 1.0


def test_mixed_steps_give_tokens_while_they_prefill():
    apart = aggregated(steps(), load(32.0), Schedule(0.0, 0.0, 0.0, 0.0))
    mixed = aggregated(steps(), load(32.0), Schedule(1.0, 0.0, 0.0, 0.0))
    assert float(mixed.tpot) < float(apart.tpot)
    assert float(mixed.tpot) > 31.0 * PREFILL / 99.0  # the prefills themselves stay


def test_memory_for_half_the_requests_makes_the_others_wait_a_whole_turn():
    full = aggregated(steps(), load(16.0), Schedule(0.0, 0.0, 0.5, 0.0))
    half = aggregated(steps(), load(32.0, slots=16.0), Schedule(0.0, 0.0, 0.5, 0.0))
    assert float(half.tpot) == pytest.approx(float(full.tpot), rel=1e-9)
    assert float(half.ttft) == pytest.approx(float(full.ttft + full.e2e), rel=1e-9)
    assert float(half.throughput) == pytest.approx(float(full.throughput), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(turns=st.integers(2, 20), first=st.floats(0.0, 1.0))
def test_what_is_done_while_a_request_waits_for_its_slot_costs_nothing(turns: int, first: float):
    """A network and a tokenizer of up to a second beside turns that take longer."""
    schedule, many = Schedule(0.0, 0.0, 0.5, 0.0), load(16.0 * turns, slots=16.0)
    free = aggregated(steps(), many, schedule)
    beside = aggregated(steps(), many, Schedule(0.0, 0.0, 0.5, first))
    assert float(free.e2e) / turns > 1.0
    assert float(beside.throughput) == pytest.approx(float(free.throughput), rel=1e-9)
    assert float(aggregated(steps(), load(16.0), Schedule(0.0, 0.0, 0.5, 0.1)).throughput) < float(free.throughput)


def test_requests_on_their_way_take_no_slot_and_let_the_others_run_alone():
    held = aggregated(steps(), Load(17.0, 100.0, 1e3, 1.0, 1.0), Schedule(0.0, 0.0, 0.5, 0.0))
    alone = aggregated(steps(), load(16.0), Schedule(0.0, 0.0, 0.5, 0.0))
    assert float(held.tpot) == pytest.approx(float(alone.tpot), rel=1e-9)
    assert float(held.throughput) == pytest.approx(float(alone.throughput), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(concurrency=st.floats(1.0, 2000.0), prefillers=st.integers(1, 8), decoders=st.integers(1, 8))
def test_two_pools_serve_no_more_than_either_can(concurrency: float, prefillers: int, decoders: int):
    found = disaggregated(
        steps(),
        load(concurrency, slots=256.0),
        Schedule(0.0, 0.0, 0.5, 0.0),
        as_float(prefillers),
        as_float(decoders),
        as_float(0.0),
    )
    assert float(found.throughput) <= 100.0 * prefillers / PREFILL * (1.0 + 1e-6)
    assert float(found.throughput) <= 256.0 * decoders / (FIXED + EACH * 256.0) * 1.05
    assert float(found.tpot) == pytest.approx(FIXED + EACH * float(found.batch), rel=1e-3)


@pytest.mark.parametrize("together", [1.0, 8.0])
def test_prompts_share_the_steps_of_a_pool_for_them(together: float):
    """64 requests of one token on one worker: full steps of a floor and a time for each prompt; one alone is alone."""
    floor, one, none = 0.05, as_float(1.0), as_float(0.0)
    shared = Steps(steps().decode, steps().attention, lambda prompts: floor + PREFILL * prompts)
    schedule = Schedule(0.0, 0.0, 0.0, 0.0)
    found = disaggregated(shared, load(64.0, 1.0, together=together), schedule, one, one, none)
    assert float(found.e2e) == pytest.approx(64.0 * (floor / together + PREFILL), rel=1e-9)
    alone = disaggregated(shared, load(1.0, 1.0, together=together), schedule, one, one, none)
    assert float(alone.e2e) == pytest.approx(floor + PREFILL, rel=1e-9)


def test_two_pools_do_not_stall_decode():
    pools = disaggregated(steps(), load(8.0), Schedule(0.0, 0.0, 0.5, 0.0), as_float(1.0), as_float(1.0), as_float(0.0))
    shared = aggregated(steps(), load(8.0), Schedule(0.0, 0.0, 0.5, 0.0))
    assert float(pools.tpot) < float(shared.tpot)


def test_a_fixed_batch_is_prefill_then_decode():
    found = fixed_batch(steps(), load(4.0), Schedule(0.0, 0.0, 0.0, 0.002))
    assert float(found.ttft) == pytest.approx(0.002 + 4.0 * PREFILL)
    assert float(found.e2e) == pytest.approx(0.002 + 4.0 * PREFILL + 99.0 * (FIXED + 4.0 * EACH))


def test_a_step_that_does_both_takes_no_less_than_its_decodes():
    """Short prompts, one a step, and more of them than a request has decode steps: all steps do both."""
    short = Steps(steps().decode, steps().attention, lambda prompts: 1e-3 * prompts)
    found = aggregated(short, load(500.0, output=50.0), Schedule(1.0, 0.0, 0.5, 0.0))
    assert float(found.tpot) >= FIXED + EACH * float(found.batch) * (1.0 - 1e-9)


@jax.jit
@jax.grad
def slope_of_latency(fixed: jax.Array, concurrency: float) -> jax.Array:
    """Of E2E by the floor of a decode step."""
    slower = Steps(lambda batch: fixed + EACH * batch, lambda batch: READ * batch, lambda prompts: PREFILL * prompts)
    schedule = Schedule(0.3, 0.2, 1.0, 0.0)
    return steady.aggregated(slower, load(concurrency, slots=128.0, together=4.0), schedule).e2e


@pytest.mark.parametrize("concurrency", [1.0, 7.0, 64.0, 900.0])
def test_slopes_are_finite_and_a_slower_step_is_never_faster(concurrency: float):
    slope = float(slope_of_latency(jnp.asarray(FIXED), concurrency))
    assert jnp.isfinite(slope) and slope > 0.0


def test_steps_full_of_prompts_serve_no_more_than_their_tokens():
    """A prompt a step, and more requests than they have tokens: each step then gives all of a request's tokens but the
    first, one to each of as many as decode in it, however many wait (played out step by step, and simulated)."""
    attention, prefill, output = 1e-4, 2e-2, 50.0
    steps = Steps(
        lambda batch: 5e-3 + attention * batch, lambda batch: attention * batch, lambda prompts: prefill * prompts
    )
    step = prefill + attention * (output - 1.0)
    for requests in (60.0, 80.0, 160.0):
        found = aggregated(steps, Load(requests, output, 1e3, 1.0), Schedule(1.0, 0.0, 0.5, 0.0))
        assert float(found.throughput) == pytest.approx(output / step, rel=0.02)
        assert float(found.tpot) == pytest.approx(step, rel=0.02)
        assert float(found.ttft) == pytest.approx(requests * step - (output - 1.0) * step, rel=0.1)
