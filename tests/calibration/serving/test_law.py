"""Pools whose layout is left open, a host that works ahead, bursts that stay together, replicas and open loops."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.serving.law import Rows, Setup, answers, burst_share, closed, steps_of
from calibration.serving.law import pools as two_pools
from calibration.serving.pieces import KINDS, PROMPTS, SEQUENCES, Pieces
from calibration.serving.scalars import SCALARS, values_of


def pools(step: float) -> Rows:
    """One disaggregated configuration whose decode steps take `step` [s]."""
    pieces = Pieces(
        decode=jnp.full((1, len(SEQUENCES), len(KINDS)), step / len(KINDS)),
        prefill=jnp.full((1, len(PROMPTS), len(KINDS)), 1e-2),
        launches=jnp.ones(1),
        slots=jnp.full(1, 64.0),
        transfer=jnp.full(1, 1e-3),
        stages=jnp.ones(1),
        reason=jnp.zeros(1, jnp.int32),
    )
    shape = {"replicas": 2.0, "data": 1.0, "load": 16.0, "prompt": 1024.0, "output": 100.0, "stages": 1.0}
    numbers = shape | {"mixing": 1.0, "ahead": 1.0, "alike": 1.0, "most": 512.0, "together": 8.0, "decoders": 0.0}
    setup = Setup(**{name: jnp.full(1, value) for name, value in numbers.items()})
    return Rows(setup, pieces, {"pools": np.array([0])})


@pytest.mark.parametrize("step", [1e-2, 4e-2])
def test_of_two_layouts_the_one_that_serves_more_answers(step: float):
    places = {field: jnp.zeros((len(scalar.deviations), 1), int) for field, scalar in SCALARS.items()}
    values = values_of(jnp.zeros(1), places)
    stated, other = pools(2e-2), pools(step)
    found, _ = answers(values, dataclasses.replace(stated, others=(np.array([0]), other)))
    alone = [answers(values, rows)[0] for rows in (stated, other)]
    best = max(alone, key=lambda state: float(state.throughput[0]))
    assert best is alone[step < 2e-2]
    assert float(found.tpot[0]) == float(best.tpot[0])
    assert float(found.ttft[0]) == float(best.ttft[0])


@pytest.mark.parametrize(("host", "hidden"), [(1e-4, True), (1e-1, True), (1e-2, False)])
def test_a_host_that_works_ahead_costs_only_what_it_takes_longer(host: float, hidden: bool):
    """Beside a device of 20 ms: 0.1 ms vanish, 100 ms are all there is; 10 ms of a host the device waits for add up."""
    places = {field: jnp.zeros((len(scalar.deviations), 1), int) for field, scalar in SCALARS.items()}
    values = {name: value[0] for name, value in values_of(jnp.zeros(1), places).items()}
    values |= {kind: jnp.asarray(1.0) for kind in KINDS} | {"step": jnp.asarray(host), "sequence": jnp.asarray(0.0)}
    rows = pools(2e-2)
    setup, pieces = (jax.tree.map(lambda leaf: leaf[0], part) for part in (rows.setups, rows.pieces))
    setup = dataclasses.replace(setup, ahead=jnp.asarray(float(hidden)))
    found = float(steps_of(values, setup, pieces).decode(jnp.asarray(4.0)))
    assert found == pytest.approx(max(host, 2e-2) if hidden else host + 2e-2, rel=1e-3)


def alone(**changes: float) -> tuple[dict[str, jax.Array], Setup, Pieces]:
    """What engines have in common, and one configuration with these numbers instead."""
    places = {field: jnp.zeros((len(scalar.deviations), 1), int) for field, scalar in SCALARS.items()}
    values = {name: value[0] for name, value in values_of(jnp.zeros(1), places).items()}
    values |= {kind: jnp.asarray(1.0) for kind in KINDS}
    rows = pools(2e-2)
    setup, pieces = (jax.tree.map(lambda leaf: leaf[0], part) for part in (rows.setups, rows.pieces))
    return values, dataclasses.replace(setup, **{name: jnp.asarray(value) for name, value in changes.items()}), pieces


def test_every_replica_has_a_server_of_its_own():
    values, one, pieces = alone(replicas=1.0, load=16.0)
    _, eight, _ = alone(replicas=8.0, load=128.0)
    apart, together = closed(values, one, pieces)[0], closed(values, eight, pieces)[0]
    assert float(together.ttft) == pytest.approx(float(apart.ttft))
    assert float(together.throughput) == pytest.approx(8.0 * float(apart.throughput))


def test_requests_at_a_rate_are_no_burst():
    """Of two alike loads, one in a burst: closed loops differ, open ones do not; four replicas serve what comes."""
    values, setup, pieces = alone(replicas=4.0, load=16.0)
    two = lambda part: jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), part)  # noqa: E731
    shares = two(values) | {"synchrony": jnp.array([0.0, 0.9])}
    found, busy = answers(shares, Rows(two(setup), two(pieces), {"open": np.array([0, 1])}))
    assert float(found.ttft[0]) == float(found.ttft[1]) > 0.0
    assert float(found.throughput[0]) == pytest.approx(16.0 * float(setup.output))
    assert 0.0 < float(busy[0]) < 1.0
    closed_loops = [closed(values | {"synchrony": jnp.asarray(share)}, setup, pieces)[0] for share in (0.0, 0.9)]
    assert float(closed_loops[0].ttft) != float(closed_loops[1].ttft)


def test_requests_of_equal_length_wait_for_whole_steps_of_prompts():
    """As many as there is room for, and one more where the next step is fixed ahead; drawn lengths come alone."""
    values, setup, pieces = alone(replicas=1.0, load=16.0, output=1000.0, ahead=0.0)
    values |= {"held": jnp.asarray(0.0)}
    pieces = dataclasses.replace(pieces, prefill=pieces.prefill * jnp.asarray(PROMPTS)[:, None])

    def ttft(**changes: float) -> float:
        given = dataclasses.replace(setup, **{name: jnp.asarray(value) for name, value in changes.items()})
        return float(closed(values, given, pieces)[0].ttft)

    assert ttft(together=8.0) > 3.0 * ttft(together=1.0)
    assert ttft(together=1.0, ahead=1.0) > 1.2 * ttft(together=1.0)
    assert ttft(together=8.0, alike=0.0) < 1.5 * ttft(together=1.0, alike=0.0)


@pytest.mark.parametrize("times", [2.0, 16.0, 100.0])
def test_so_many_times_the_workers_of_two_pools_serve_so_many_times_as_much(times: float):
    values, few, pieces = alone(replicas=16.0, load=640.0)
    _, many, _ = alone(replicas=16.0 * times, load=640.0 * times)
    values |= {"first_each": jnp.asarray(0.0)}  # one front end serves all of them
    found, more = (two_pools(values, setup, pieces)[0] for setup in (few, many))
    assert float(more.throughput) == pytest.approx(times * float(found.throughput), rel=1e-3)
    assert float(more.ttft) == pytest.approx(float(found.ttft), rel=1e-3)


def test_the_split_that_is_stated_is_taken_and_else_the_one_that_serves_most():
    values, setup, pieces = alone(replicas=4.0, load=512.0)
    states = [
        two_pools(values, dataclasses.replace(setup, decoders=jnp.asarray(decoders)), pieces)[0]
        for decoders in (0.0, 1.0, 2.0, 3.0)
    ]
    served = [float(state.throughput) for state in states]
    assert served[0] == max(served[1:]) and len(set(served[1:])) == 3


def test_a_worker_more_serves_more():
    values, setup, pieces = alone(replicas=16.0, load=4096.0)
    served = [
        float(two_pools(values, dataclasses.replace(setup, replicas=jnp.asarray(workers)), pieces)[0].throughput)
        for workers in (15.0, 16.0, 17.0, 24.0, 33.0)
    ]
    assert served == sorted(set(served))


def test_an_engine_runs_no_more_than_its_limit_together():
    values, setup, pieces = alone(replicas=1.0, load=64.0)
    _, limited, _ = alone(replicas=1.0, load=64.0, most=8.0)
    free, few = closed(values, setup, pieces)[0], closed(values, limited, pieces)[0]
    assert float(few.batch) <= 8.0 < float(free.batch)


@pytest.mark.parametrize(("mixing", "alike", "expected"), [(1.0, 1.0, 0.1), (0.0, 1.0, 0.82), (0.0, 0.0, 0.1)])
def test_a_burst_of_equal_lengths_stays_together_where_prefill_steps_do_not_decode(
    mixing: float, alike: float, expected: float
):
    setup = dataclasses.replace(pools(1e-2).setups, mixing=jnp.asarray([mixing]), alike=jnp.asarray([alike]))
    values = {"synchrony": jnp.asarray([0.1]), "lockstep": jnp.asarray([0.8])}
    assert float(burst_share(values, setup)[0]) == pytest.approx(expected)


def test_few_requests_are_not_held_back_as_many_are():
    """Were one of two never with the engine, each would wait for half a request before its first token."""
    values, setup, pieces = alone(replicas=1.0, load=2.0)
    free = closed(values | {"held": jnp.asarray(0.0)}, setup, pieces)[0]
    held = closed(values | {"held": jnp.asarray(1.0)}, setup, pieces)[0]
    assert float(free.ttft) < float(held.ttft) < float(free.ttft) + 0.13 * float(held.e2e)


@pytest.mark.parametrize("room", [0.01, 0.5, 1.0])
def test_a_request_that_memory_does_not_hold_runs_no_faster_than_one_that_it_just_holds(room: float):
    values, setup, pieces = alone(replicas=1.0, load=16.0)
    tight = closed(values, setup, dataclasses.replace(pieces, slots=jnp.asarray(room)))[0]
    just = closed(values, setup, dataclasses.replace(pieces, slots=jnp.asarray(1.0)))[0]
    assert (float(tight.ttft), float(tight.throughput)) == (float(just.ttft), float(just.throughput))
