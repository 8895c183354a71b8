"""Latencies against their definitions, gaps between tokens against tokens counted one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.cli.simulate_said import figures
from jaxperf.serving.simulator.metrics import distribution, request_metrics, summarize, token_gaps, use
from jaxperf.serving.simulator.run import Simulated, simulate_requests
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.state import Log
from jaxperf.serving.simulator.used import Used, used_in_all, used_since
from jaxperf.serving.simulator.workloads import Requests, draw_requests
from tests.serving.simulator import fuzz, reference

SETTINGS = {"sched": "vllm_v1", "num_blocks": 60, "block_size": 4, "batch_size_cap": 8, "max_tokens_in_batch": 16}
LENGTHS = {"kind": "uniform", "low": 2, "high": 24}


def drawn(rate: float = 20.0) -> Requests:
    arrivals = {"kind": "poisson", "rate": rate}
    return draw_requests({"count": 60, "seed": 3, "arrivals": arrivals, "prompt": LENGTHS, "output": LENGTHS})


def simulated(
    requests: Requests, concurrency: int = 1 << 30, settings: Mapping[str, Any] = SETTINGS
) -> tuple[dict[str, np.ndarray], Simulated]:
    found = simulate_requests(parse_scheduler(settings), fuzz.table(), [requests], concurrency)
    names = ("arrived", "scheduled", "first_token", "completed", "restarts")
    columns = {name: getattr(found.requests, name)[0, : len(requests.arrived)] for name in names}
    return columns | {"prompt": requests.prompt, "output": requests.output}, found


def test_latencies_follow_their_definitions() -> None:
    columns = {
        "arrived": np.array([1.0, 2.0, 3.0]),
        "scheduled": np.array([1.5, 2.0, -1.0]),
        "first_token": np.array([2.0, 2.5, -1.0]),
        "completed": np.array([4.0, 2.5, -1.0]),
        "output": np.array([5, 1, 9]),
    }
    metrics = request_metrics(columns)
    expected = {
        "ttft": [1.0, 0.5, np.nan],
        "tpot": [0.5, np.nan, np.nan],
        "tpot_over_all": [0.6, 0.5, np.nan],
        "e2e": [3.0, 0.5, np.nan],
        "queueing": [0.5, 0.0, np.nan],
        "prefill": [0.5, 0.5, np.nan],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(metrics[name], values)


def test_no_share_is_above_one_by_rounding_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, found = simulated(drawn())
    busy = used_in_all(found.totals)
    idle = use(columns, found, 60)["utilization"]
    for more, expected in ((1.0 + 1e-15, 1.0), (1.1, 1.1)):
        whole = busy._replace(busy=busy.busy / idle * more)
        monkeypatch.setattr("jaxperf.serving.simulator.metrics.used_in_all", lambda totals, whole=whole: whole)
        said = use(columns, found, 60)["utilization"]
        assert said == expected if expected == 1.0 else said == pytest.approx(expected)


def test_quantiles_of_weighted_values_are_those_of_repeated_ones() -> None:
    random = np.random.default_rng(0)
    values, weights = random.random(40), random.integers(0, 5, 40).astype(float)
    repeated = np.repeat(values, weights.astype(int))
    found = distribution(values, weights)
    assert found["mean"] == pytest.approx(repeated.mean())
    assert found["p90"] == np.quantile(repeated, 0.9, method="inverted_cdf")
    assert found["max"] == repeated.max()
    assert np.isnan(distribution(np.array([np.nan]))["p50"])


def test_gaps_are_those_between_tokens_counted_one_by_one() -> None:
    requests = drawn()
    columns, found = simulated(requests)
    listed = zip(requests.arrived.tolist(), requests.prompt.tolist(), requests.output.tolist(), strict=True)
    plain = [reference.Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(listed)]
    makers: list[list[int]] = []

    def seconds(batch: reference.Batch) -> float:
        makers.append([one.number for one, t in batch if one.prefilled or one.processed + t == one.prompt])
        return fuzz.seconds(batch)

    steps = reference.simulate("vllm_v1", dict(parse_scheduler(SETTINGS).numbers), plain, seconds)
    tokens: dict[int, list[float]] = {one.number: [] for one in plain if not one.restarts}
    for (start, took, *_), numbers in zip(steps, makers, strict=True):
        for number in tokens.keys() & numbers:
            tokens[number].append(start + took)
    assert 0 < columns["restarts"].sum() < 10
    expected = np.sort(np.concatenate([np.diff(times) for times in tokens.values()]))
    gaps, weights = token_gaps(columns, jax.tree.map(lambda values: values[0], found.log))
    np.testing.assert_allclose(np.sort(np.repeat(gaps, weights.astype(int))), expected, rtol=1e-9)


def test_gaps_of_requests_that_bring_their_prompt_and_wait_add_up_to_their_time() -> None:
    """One place in the batch, so that the first gap of a later request is the time that all before it take."""
    requests = Requests(np.zeros(3), np.full(3, 8), np.array([9, 3, 5]), brought=np.full(3, 8))
    columns, found = simulated(requests, settings={**SETTINGS, "batch_size_cap": 1})
    gaps, weights = token_gaps(columns, jax.tree.map(lambda values: values[0], found.log))
    waits = columns["completed"] - columns["first_token"]
    assert weights.sum() == (requests.output - 1).sum()
    assert gaps @ weights == pytest.approx(waits.sum(), rel=1e-9)
    assert gaps.max() > columns["scheduled"].max() > waits.min()


def test_gaps_do_not_depend_on_when_the_clock_starts() -> None:
    requests = drawn()
    since_1970 = dataclasses.replace(requests, arrived=requests.arrived + 1.7e9)
    early, late = (
        token_gaps(columns, jax.tree.map(lambda values: values[0], found.log))
        for columns, found in map(simulated, (requests, since_1970))
    )
    early, late = (np.sort(np.repeat(gaps, weights.astype(int))) for gaps, weights in (early, late))
    np.testing.assert_allclose(late, early, atol=2e-6)


def test_a_client_with_four_requests_under_way_sends_the_next_when_one_ends() -> None:
    columns, _ = simulated(drawn(rate=1e6), concurrency=4)
    ends = np.sort(columns["completed"])
    np.testing.assert_array_equal(np.sort(columns["arrived"])[4:], ends[:-4])
    under_way = (columns["arrived"][:, None] <= ends) & (columns["completed"][:, None] > ends)
    assert under_way.sum(axis=0).max() == 4


def test_the_summary_adds_up() -> None:
    columns, found = simulated(drawn())
    said = summarize([columns], found, 60, {"ttft": 1e9, "tpot": 1e9})
    assert said["goodput"]["share"] == 1.0 and said["goodput"]["requests_per_second"] == said["requests_per_second"]
    assert said["latency_s"]["e2e"]["mean"] == pytest.approx((columns["completed"] - columns["arrived"]).mean())
    work = (columns["completed"] - columns["scheduled"]).sum()
    assert said["batch_occupancy"] * float(found.totals.busy[0]) <= work * (1.0 + 1e-9)
    assert 0.0 < said["kv_use"] <= said["kv_use_max"] <= 1.0 and 0.0 < said["utilization"] <= 1.0
    strict = summarize([columns], found, 60, {"ttft": float(np.median(request_metrics(columns)["ttft"]))})
    assert strict["goodput"]["share"] == pytest.approx(0.5, abs=0.02)
    later = summarize([columns], found, 60, {}, warm_up=1.0)
    assert later["steps"] < said["steps"] and later["duration"] < said["duration"]
    with pytest.raises(InputError, match="warm-up"):
        summarize([columns], found, 60, {}, warm_up=1e9)


def test_the_cache_in_use_is_that_of_each_step_though_many_run_at_once() -> None:
    """One token of prompt and 64 of output in blocks of 4: the steps hold ceil(t / 4) of 60 blocks, t = 1 ... 64."""
    requests = Requests(np.zeros(1), np.ones(1, int), np.full(1, 64))
    columns, found = simulated(requests)
    runs = slice(int(found.log.count[0]))
    steps, seconds, held, mean = (
        np.asarray(getattr(found.log, name))[0, runs] for name in ("steps", "seconds", "blocks", "mean_blocks")
    )
    assert steps.max() > 4 and steps.sum() == 64
    plain = np.ceil(np.arange(1, 65) / 4)
    takes = np.repeat(seconds, steps)
    assert use(columns, found, 60)["kv_use"] == pytest.approx((plain * takes).sum() / takes.sum() / 60, rel=1e-9)
    ends = np.cumsum(steps)
    np.testing.assert_allclose(mean, [part.mean() for part in np.split(plain, ends[:-1])])
    np.testing.assert_array_equal(held, plain[ends - 1])


def test_after_a_warm_up_the_summary_is_that_of_the_requests_left_alone() -> None:
    """A burst that fills the cache and evicts, and lone requests long after it: no figure knows of the burst."""
    lone = Requests(arrived=100.0 + 5.0 * np.arange(6), prompt=np.full(6, 12), output=np.full(6, 9))
    burst = drawn(rate=1e6)
    pairs = ((getattr(burst, name), getattr(lone, name)) for name in ("arrived", "prompt", "output"))
    (columns, found), (few, by_themselves) = simulated(Requests(*map(np.concatenate, pairs))), simulated(lone)
    scheduler = parse_scheduler(SETTINGS)
    whole, said = (figures(columns, found, scheduler, {}, warm_up, 1) for warm_up in (0.0, 50.0))
    alone = figures(few, by_themselves, scheduler, {}, 0.0, 1)
    assert whole["preemptions"] > 0 and whole["kv_use_max"] > 0.9 and whole["batch_occupancy"] > 2.0
    assert said["preemptions"] == 0 and said["batch_occupancy"] == pytest.approx(1.0)
    assert said["kv_use_max"] == alone["kv_use_max"] == 5 / 60  # 20 tokens in blocks of four
    for name in ("utilization", "steps", "batch_occupancy", "kv_use", "kv_waste", "duration", "requests_per_second"):
        assert said[name] == pytest.approx(alone[name], rel=1e-9)


def test_steps_under_way_at_the_end_of_a_warm_up_count_by_the_time_that_is_left() -> None:
    """Four steps of 2 s from 10 s on with three requests and 7 blocks (9 at most), then one of 4 s with one and 2."""
    columns = {
        "start": [10.0, 18.0, -1.0],
        "seconds": [2.0, 4.0, -1.0],
        "steps": [4, 1, 0],
        **{"sequences": [3, 1, 0], "tokens": [3, 1, 0], "decodes": [3, 1, 0]},
        "busy": [8.0, 4.0, -1.0],
        "blocks": [9, 2, 0],
        "mean_blocks": [7.0, 2.0, -1.0],
    }
    log = Log(count=np.array([2]), **{name: np.array([values]) for name, values in columns.items()})
    assert used_since(log, 0.0) == Used(5, 12.0, 28.0, 64.0, 9)
    assert used_since(log, 14.0) == Used(3, 8.0, 16.0, 36.0, 9)
    assert used_since(log, 15.0) == Used(3, 7.0, 13.0, 29.0, 9)
    assert used_since(log, 18.0) == Used(1, 4.0, 4.0, 8.0, 2)
    assert used_since(log, 21.0) == Used(1, 1.0, 1.0, 2.0, 2)
    assert used_since(log, 22.0) == Used(0, 0.0, 0.0, 0.0, 0)


def test_the_log_adds_up_to_the_totals() -> None:
    _, found = simulated(drawn())
    logged, whole = used_since(found.log, 0.0), used_in_all(found.totals)
    np.testing.assert_allclose(logged[:-1], whole[:-1], rtol=1e-9)
    assert 0 < logged.most_blocks <= whole.most_blocks
