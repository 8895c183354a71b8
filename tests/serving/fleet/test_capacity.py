"""The search for the largest rate against queues whose capacity is known, and its edges."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.serving.fleet.build import load_of, pool_of
from jaxperf.serving.fleet.capacity import (
    FASTEST,
    SLOWEST,
    after_stages,
    at_rates,
    capacity,
    columns_of,
    fleet_capacity,
    keeps_up,
    unit_arrivals,
)
from jaxperf.serving.fleet.ratio import disaggregated_capacity, divided, divisions
from jaxperf.serving.fleet.run import simulate_fleets
from jaxperf.serving.fleet.slo import Slo, meets
from jaxperf.serving.fleet.transfer import Transfer
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.workloads import Requests, draw_requests
from jaxperf.serving.workloads.drawn import Stage
from tests.serving.simulator import fuzz

SETTINGS = {"sched": "vllm_v1", "num_blocks": 600, "block_size": 4, "batch_size_cap": 8, "max_tokens_in_batch": 64}
SCHEDULER = parse_scheduler(SETTINGS)


def drawn(count: int = 60, seed: int = 3) -> Requests:
    lengths = {"kind": "uniform", "low": 2, "high": 24}
    arrivals = {"kind": "poisson", "rate": 5.0}
    return draw_requests({"count": count, "seed": seed, "arrivals": arrivals, "prompt": lengths, "output": lengths})


def queue(service: np.ndarray, requests: int = 400):
    """A server of so many seconds a request, with even arrivals: the n-th waits n (s - 1 / rate) where that is > 0."""

    def simulate(rates: np.ndarray):
        number = np.arange(requests)
        arrived = number / rates[:, :, None]
        wait = np.maximum(service[:, None, None] - 1.0 / rates[:, :, None], 0.0) * number
        ends = arrived + wait + service[:, None, None]
        ones = np.ones_like(arrived)
        return {
            **{"arrived": arrived, "scheduled": arrived + wait, "first_token": ends, "completed": ends},
            **{"output": ones, "real": ones > 0},
        }

    return simulate


def test_stages_before_the_engines_limit_the_rate() -> None:
    """One server of 0.5 s a request serves no more than two a second, whatever the engines can; asked is the user's."""
    requests, seconds = drawn(), np.full(60, 0.5)
    load = load_of([requests])
    pool = pool_of(SCHEDULER, fuzz.table(), [1], "least_outstanding", load)
    slo = Slo({"ttft": 5.0})
    free = fleet_capacity(pool, load, slo)
    staged = fleet_capacity(pool, load, slo, stages=[Stage(seconds, 1)])
    assert staged.meets[0] <= 2.5 < free.meets[0] and staged.e2e[0] > 0.5


def test_requests_come_out_of_a_stage_in_another_order() -> None:
    lanes, order, asked = after_stages(load_of([drawn(4)]), [Stage(np.array([100.0, 1.0, 50.0, 1.0]), 4)])
    assert order[0, :4].tolist() == [1, 3, 2, 0] and asked is not None
    assert np.asarray(lanes.requests.prompt)[0, :4].tolist() == drawn(4).prompt[[1, 3, 2, 0]].tolist()
    np.testing.assert_allclose(np.asarray(lanes.requests.arrived)[0, :4] - asked[0, :4], [1.0, 1.0, 50.0, 100.0])


def test_the_capacity_of_a_queue_is_bracketed() -> None:
    """n (s - 1 / rate) + s <= limit up to the last request that must keep it: rate = 1 / (s - (limit - s) / n)."""
    service, limit, share = np.array([0.1, 0.2]), 1.0, 0.9
    found = capacity(queue(service), Slo({"ttft": limit}, share), 2, precision=0.001)
    last = 0.9 * 400 - 1
    exact = 1.0 / (service - (limit - service) / last)
    assert (found.meets <= exact).all() and (exact <= found.fails).all()
    assert (found.fails <= found.meets * 1.001).all() and found.monotone.all()
    assert found.limited_by.tolist() == ["slo", "slo"]


def test_a_rate_is_one_that_is_served() -> None:
    """A server of 0.1 s a request makes ten a second, however many are over before a limit of 1,000 s is near."""
    found = capacity(queue(np.array([0.1])), Slo({"ttft": 1e3}), 1, precision=0.001)
    assert found.meets[0] <= 10.0 / 0.9 <= found.fails[0] and found.limited_by[0] == "completions"
    assert found.tokens_per_second[0] == pytest.approx(10.0, rel=1e-6)


def test_what_fills_and_empties_a_system_does_not_count() -> None:
    """A thousand requests of 1 s in a second, all at work at once: they are completed as fast as they come."""
    arrived = np.arange(1000)[None, None, :] / 1000.0
    columns = {"arrived": arrived, "completed": arrived + 1.0, "real": np.ones_like(arrived, bool)}
    alone = np.zeros_like(arrived)
    assert keeps_up(columns, alone).all()
    assert not keeps_up({**columns, "completed": 1.2 * arrived}, alone).any()
    assert keeps_up({**columns, "completed": np.full_like(arrived, -1.0)}, alone).all()  # which meets no limit


def test_long_outputs_at_the_end_of_a_short_trace_are_no_queue() -> None:
    """Ten servers that never share: of 20 requests in 20 s the last five take a minute each, with or without others."""
    takes = np.where(np.arange(20) < 15, 1.0, 60.0)

    def simulate(rates: np.ndarray):
        arrived = np.arange(20) / rates[:, :, None]
        ones = np.ones_like(arrived)
        times = {"arrived": arrived, "scheduled": arrived, "first_token": arrived + 0.5, "completed": arrived + takes}
        return {**times, "output": ones, "real": ones > 0}

    found = capacity(simulate, Slo({"ttft": 1.0}), 1)
    assert np.isinf(found.fails[0]) and found.limited_by[0] == ""


def test_what_never_meets_and_what_always_does() -> None:
    found = capacity(queue(np.array([0.1, 2.0])), Slo({"ttft": 1.0}), 2)
    assert found.meets[1] == 0.0 and found.fails[1] == SLOWEST and np.isnan(found.tokens_per_second[1])
    always = capacity(queue(np.array([1e-9])), Slo({"ttft": 1.0}), 1)
    assert always.meets[0] == FASTEST and np.isinf(always.fails[0]) and always.rounds == 1


def test_a_second_interval_above_the_first_is_told() -> None:
    """Met below 10 and between 1,000 and 1e5 requests/s: the lowest interval is the answer."""

    def simulate(rates: np.ndarray):
        good = (rates < 10.0) | ((rates > 1e3) & (rates < 1e5))
        ends = np.where(good, 0.5, 2.0)[:, :, None]
        zero, one = np.zeros_like(ends), np.ones_like(ends)
        return {
            **{"arrived": zero, "scheduled": zero, "first_token": ends, "completed": ends, "output": one},
            "real": one > 0,
        }

    found = capacity(simulate, Slo({"ttft": 1.0}), 1, rates=8)
    assert found.meets[0] <= 10.0 <= found.fails[0] and not found.monotone[0]


def test_shares_are_joint_or_of_each_limit() -> None:
    """Ten requests: one too slow to begin, another too slow to go on, one of a single token."""
    ttft, tpot = np.full(10, 0.5), np.full(10, 0.01)
    ttft[0], tpot[1] = 2.0, 1.0
    output = np.full(10, 11.0)
    output[2] = 1.0
    zero = np.zeros(10)
    requests = {
        **{"arrived": zero, "scheduled": zero, "first_token": ttft, "completed": ttft + tpot * (output - 1.0)},
        **{"output": output, "real": output > 0.0},
    }
    limits = {"ttft": 1.0, "tpot": 0.1}
    assert meets(requests, Slo(limits, 0.8)) and not meets(requests, Slo(limits, 0.81))
    assert meets(requests, Slo(limits, 8 / 9, each=True)) and not meets(requests, Slo(limits, 0.9, each=True))
    unfinished = {**requests, "completed": np.full(10, -1.0)}
    assert not meets(unfinished, Slo(limits, 0.1)) and not meets(unfinished, Slo({"tpot": 0.1}, 0.1, each=True))


@pytest.mark.parametrize(
    ("limits", "share", "said"),
    [
        ({}, 0.9, "limit"),
        ({"ttff": 1.0}, 0.9, "ttft"),
        ({"ttft": 0.0}, 0.9, "above zero"),
        ({"ttft": 1.0}, 0.0, "share"),
    ],
)
def test_an_slo_that_means_nothing_is_refused(limits: dict[str, float], share: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Slo(limits, share)


def test_rates_scale_the_times_between_arrivals() -> None:
    load = load_of([drawn()])
    units = unit_arrivals(load.requests)
    lanes = at_rates(load, units, np.array([[2.0, 8.0]]))
    arrived = np.asarray(lanes.requests.arrived)[:, :60]
    np.testing.assert_allclose(np.diff(arrived[0]), 4.0 * np.diff(arrived[1]), rtol=1e-12, atol=1e-12)
    assert 59 / arrived[0, -1] == pytest.approx(2.0)
    with pytest.raises(InputError, match="at once"):
        unit_arrivals(load_of([Requests(np.zeros(3), np.ones(3, int), np.ones(3, int))]).requests)


def test_more_replicas_take_more_requests_and_the_bracket_holds() -> None:
    """Of steps that a table of three decodes does not all reach, which is counted."""
    load, table = load_of([drawn(), drawn()]), fuzz.table()
    table = dataclasses.replace(table, decode=table.decode[:4])
    pool = pool_of(SCHEDULER, table, [1, 2], "least_outstanding", load)
    slo = Slo({"ttft": 0.2, "tpot": 0.05})
    found = fleet_capacity(pool, load, slo, rates=4, precision=0.05)
    assert found.meets[1] > 1.5 * found.meets[0] > 0.0 and (found.fails <= 1.05 * found.meets).all()
    for rates, expected in ((found.meets, True), (found.fails, False)):
        lanes = at_rates(load, unit_arrivals(load.requests), rates[:, None])
        simulated = simulate_fleets(pool, lanes)
        _, order, asked = after_stages(lanes, [])
        assert (meets(columns_of(simulated.requests, lanes.requests, (2, 1), order, asked), slo) == expected).all()
        if expected:
            totals = simulated.replicas.totals
            assert (found.beyond == totals.beyond.sum(axis=1) / totals.steps.sum(axis=1)).all()
            assert (found.beyond > 0.0).all() and (found.beyond < 1.0).all()


def test_divisions_use_all_devices_that_can_be_used() -> None:
    found = divisions(8, 2, 2)
    assert list(zip(found.prefill, found.decode, strict=True)) == [(1, 3), (2, 2), (3, 1)]
    found = divisions(9, 1, 4)  # two decodes leave one prefill; one decode leaves up to five
    assert list(zip(found.prefill, found.decode, strict=True)) == [(1, 2), (5, 1)]
    with pytest.raises(InputError, match="few"):
        divisions(5, 4, 2)


@pytest.mark.long
def test_the_best_division_has_no_idle_pool() -> None:
    """With long prompts and short answers most replicas should prefill, and the other way round."""
    best = []
    for prompt, output in ((24, 2), (2, 24)):
        shape = np.full(40, 1)
        trace = Requests(np.cumsum(np.random.default_rng(0).exponential(1.0, 40)), prompt * shape, output * shape)
        load = load_of([trace])
        one = pool_of(SCHEDULER, fuzz.table(), [1], "least_outstanding", load)
        among = divisions(4, 1, 1)
        pools, lanes = divided(one, one, among), load_of([trace] * len(among.prefill))
        transfer = Transfer(jnp.full((3, 64), 1e-3), jnp.zeros(3))
        found = disaggregated_capacity(*pools, transfer, lanes, Slo({"ttft": 0.1, "tpot": 0.05}), precision=0.1)
        best.append(int(among.prefill[np.argmax(found.meets)]))
    assert best == [3, 1]
