"""The steady state beside the simulator, both with the same steps: one engine, and two pools.

`python -m benchmarks.steady_errors` compares whole grids, with the composed steps of a model and with made-up ones.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.serving.queueing.engine import Engine, Load, chunked, prefill_first
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.lengths import lengths_as
from jaxperf.serving.queueing.pools import Pools, Sending, pools_percentile, steady_pools
from jaxperf.serving.queueing.steps import LawStepTime
from jaxperf.serving.simulator.metrics import request_metrics
from jaxperf.serving.simulator.run import simulate
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.state import Sizes
from jaxperf.serving.simulator.trace import pad_traces
from jaxperf.serving.simulator.workloads import Requests, draw_requests
from tests.serving.queueing.engines import most_of, percentiles, steady, straight_law

PROMPT, OUTPUT = {"kind": "uniform", "low": 16, "high": 2000}, {"kind": "uniform", "low": 10, "high": 300}
REQUESTS, LANES, CAP = 512, 8, 64
BUDGETS = {"vllm": 8192, "vllm_v1": 2048, "sarathi_fixed": 512}
LATENCIES = ("ttft", "tpot", "e2e")
SETTINGS = {"num_blocks": 20000, "batch_size_cap": CAP}


def drawn(rate: float, lanes: int = LANES, count: int = REQUESTS, lengths=(PROMPT, OUTPUT), cv=1.0) -> list[Requests]:
    arrivals = {"kind": "gamma", "rate": rate, "cv": cv} if cv != 1.0 else {"kind": "poisson", "rate": rate}
    workload = {"count": count, "arrivals": arrivals, "prompt": lengths[0], "output": lengths[1]}
    return [draw_requests({**workload, "seed": seed}) for seed in range(lanes)]


def simulated(
    sched: str,
    requests: list[Requests],
    budget: int = 0,
    stages: int = 1,
    cap: int = CAP,
    ahead: bool = False,
    law: StepLaw | None = None,
):
    """Times of every request of every lane; all calls of a scheduler share a compiled program."""
    none = np.zeros(len(requests[0].arrived), int)
    requests = [replace(each, brought=none if each.brought is None else each.brought) for each in requests]
    tokens = "chunk_size" if sched == "sarathi_fixed" else "max_tokens_in_batch"
    scheduler = parse_scheduler(
        {**SETTINGS, "batch_size_cap": cap, "sched": sched, tokens: budget or BUDGETS[sched], "pp": stages}
    )
    found = simulate(
        scheduler.policy,
        LawStepTime(law or straight_law()),
        scheduler.arrays(len(requests)),
        pad_traces(requests, REQUESTS),
        Sizes(slots=CAP, stages=stages, ahead=ahead),
    )
    names = ("arrived", "scheduled", "first_token", "completed")
    count = len(requests[0].arrived)
    return {name: np.asarray(getattr(found.requests, name))[:, :count] for name in names}


def errors(model, tails, metrics) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of means and 99th percentiles, the first fifth of the requests left out."""
    kept = [metrics[name][..., REQUESTS // 5 :] for name in LATENCIES]
    means = [float(getattr(model, name)) / np.nanmean(each) for name, each in zip(LATENCIES, kept, strict=True)]
    ends = [float(tails[name]) / np.nanquantile(each, 0.99) for name, each in zip(LATENCIES, kept, strict=True)]
    return np.abs(np.array(means) - 1.0), np.abs(np.array(ends) - 1.0)


@pytest.mark.parametrize(("sched", "discipline"), [("vllm", prefill_first), ("vllm_v1", chunked)])
def test_an_engine_is_the_simulated_one(sched: str, discipline) -> None:
    prompt, output, engine = lengths_as(PROMPT), lengths_as(OUTPUT), Engine(float(CAP), float(BUDGETS[sched]))
    most = most_of(discipline, straight_law(), (prompt, output), engine)
    ends = []
    for share in (0.2, 0.5, 0.7):
        requests = drawn(share * most)
        times = simulated(sched, requests)
        metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
        load = Load(share * most, prompt, output)
        state = steady(discipline, straight_law(), load, engine)
        tails = percentiles(state, load, as_float(0.99))
        mean, end = errors(state, tails, metrics)
        assert mean.max() <= 0.1, (share, mean)
        ends.append(end)
    assert np.mean(ends) <= 0.15, ends


@pytest.mark.parametrize(("sched", "discipline"), [("vllm", prefill_first), ("vllm_v1", chunked)])
def test_an_engine_is_the_simulated_one_in_bursts(sched: str, discipline) -> None:
    prompt, output, engine = lengths_as(PROMPT), lengths_as(OUTPUT), Engine(float(CAP), float(BUDGETS[sched]))
    most = most_of(discipline, straight_law(), (prompt, output), engine)
    for share in (0.1, 0.4):
        requests, load = drawn(share * most, cv=2.0), Load(share * most, prompt, output, 4.0)
        times = simulated(sched, requests)
        metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
        state = steady(discipline, straight_law(), load, engine)
        mean, end = errors(state, percentiles(state, load, as_float(0.99)), metrics)
        assert mean.max() <= 0.1 and end.max() <= 0.15, (share, mean, end)


def test_prompts_behind_a_cached_prefix_are_the_simulated_ones() -> None:
    """4,000 tokens that a prefix cache has: they are read with every chunk and every decode, and computed by none."""
    prompt, output, engine, cached = lengths_as(PROMPT), lengths_as(OUTPUT), Engine(float(CAP), 2048.0), 4000
    law = replace(straight_law(), prefill=as_float((6e-4, 0.0, 2e-10, 1e-7, 4e-10)))
    rate = 0.45 * most_of(chunked, law, (prompt, output), engine)
    asked = drawn(rate)
    requests = [replace(each, prompt=each.prompt + cached, brought=np.full(REQUESTS, cached)) for each in asked]
    times = simulated("vllm_v1", requests, law=law)
    metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
    load = Load(rate, prompt, output, cached=float(cached))
    state = steady(chunked, law, load, engine)
    mean, end = errors(state, percentiles(state, load, as_float(0.99)), metrics)
    assert 0.5 < float(state.utilization) < 0.8
    assert mean.max() <= 0.05 and end.max() <= 0.1, (mean, end)


@pytest.mark.parametrize(
    ("sched", "discipline", "stages"),
    [
        pytest.param("vllm", prefill_first, 2, marks=pytest.mark.long),
        pytest.param("vllm_v1", chunked, 4, marks=pytest.mark.long),
        pytest.param("sarathi_fixed", chunked, 4, marks=pytest.mark.long),
    ],
)
def test_a_pipeline_is_the_simulated_one(sched: str, discipline, stages: int) -> None:
    prompt, output = lengths_as(PROMPT), lengths_as(OUTPUT)
    engine = Engine(float(CAP), float(BUDGETS[sched]), float(stages))
    rate = 0.7 * most_of(discipline, straight_law(), (prompt, output), engine)
    requests, load = drawn(rate), Load(rate, prompt, output)
    times = simulated(sched, requests, stages=stages)
    metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
    state = steady(discipline, straight_law(), load, engine)
    assert errors(state, percentiles(state, load, as_float(0.99)), metrics)[0].max() <= 0.1


SHORT = {"kind": "uniform", "low": 50, "high": 150}, {"kind": "uniform", "low": 50, "high": 150}


@pytest.mark.parametrize(("sched", "discipline"), [("vllm", prefill_first), ("vllm_v1", chunked)])
def test_a_full_engine_starts_the_prompts_that_ended_ones_leave_room_for(sched: str, discipline) -> None:
    """Short prompts: each step ends fewer sequences than a step of prompts would hold, however many prompts wait."""
    lengths = tuple(map(lengths_as, SHORT))
    most = most_of(discipline, straight_law(), lengths, Engine(float(CAP), float(BUDGETS[sched])))
    completed = np.sort(simulated(sched, drawn(4.0 * most, lengths=SHORT))["completed"], axis=1)
    early, late = REQUESTS // 4, REQUESTS * 3 // 4
    served = (late - early) / (completed[:, late] - completed[:, early])
    assert most == pytest.approx(served.mean(), rel=0.08)


@pytest.mark.parametrize("prompt", [100, 500])
def test_short_prompts_that_go_first_are_served_as_fast_as_their_full_steps(prompt: int) -> None:
    """Few of them take as long as memory does, so that the line from one to two is nothing like a full step."""
    fixed = [{"kind": "fixed", "value": value} for value in (prompt, 1)]
    engine = Engine(float(CAP), float(BUDGETS["vllm"]))
    most = most_of(prefill_first, straight_law(), (lengths_as(fixed[0]), lengths_as(fixed[1])), engine)
    completed = np.sort(simulated("vllm", drawn(4.0 * most, lengths=fixed))["completed"], axis=1)
    early, late = REQUESTS // 4, REQUESTS * 3 // 4
    served = ((completed > completed[:, [early]]) & (completed <= completed[:, [late]])).sum(axis=1)
    assert most == pytest.approx((served / (completed[:, late] - completed[:, early])).mean(), rel=0.05)


def test_prompts_that_go_first_wait_for_no_slot_at_moderate_load() -> None:
    lengths, engine = tuple(map(lengths_as, SHORT)), Engine(float(CAP), float(BUDGETS["vllm"]))
    rate = 0.7 * most_of(prefill_first, straight_law(), lengths, engine)
    requests = drawn(rate, lengths=SHORT)
    metrics = request_metrics({**simulated("vllm", requests), "output": np.stack([each.output for each in requests])})
    state = steady(prefill_first, straight_law(), Load(rate, *lengths), engine)
    assert errors(state, percentiles(state, Load(rate, *lengths), as_float(0.99)), metrics)[0].max() <= 0.1


@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize(("sched", "discipline"), [("vllm", prefill_first), ("vllm_v1", chunked)])
def test_few_slots_are_the_simulated_ones(sched: str, discipline, slots: int) -> None:
    fixed = [{"kind": "fixed", "value": value} for value in (500, 50)]
    lengths, engine = (lengths_as(fixed[0]), lengths_as(fixed[1])), Engine(float(slots), float(BUDGETS[sched]))
    for share in (0.2, 0.6):
        rate = share * most_of(discipline, straight_law(), lengths, engine)
        requests = drawn(rate, lengths=fixed)
        times = simulated(sched, requests, cap=slots)
        metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
        state = steady(discipline, straight_law(), Load(rate, *lengths), engine)
        tails = percentiles(state, Load(rate, *lengths), as_float(0.99))
        mean, _ = errors(state, tails, metrics)
        assert mean.max() <= 0.1, (share, mean)


@pytest.mark.parametrize(("prompt", "share"), [(8192, 0.3), (8192, 0.6)])
def test_others_fill_the_last_step_of_a_prompt_as_long_as_the_budget(prompt: int, share: float) -> None:
    fixed = [{"kind": "fixed", "value": value} for value in (prompt, 64)]
    lengths, engine = (lengths_as(fixed[0]), lengths_as(fixed[1])), Engine(float(CAP), 8192.0)
    rate = share * most_of(chunked, straight_law(), lengths, engine)
    requests = drawn(rate, lengths=fixed)
    times = simulated("vllm_v1", requests, 8192)
    metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
    load = Load(rate, *lengths)
    state = steady(chunked, straight_law(), load, engine)
    mean, end = errors(state, percentiles(state, load, as_float(0.99)), metrics)
    assert mean.max() <= 0.1 and end[0] <= 0.15, (mean, end)


@pytest.mark.parametrize("budget", [512, 8192])
@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("tokens", [2, pytest.param(4, marks=pytest.mark.long)])
def test_few_tokens_meet_few_steps_with_prompts(tokens: int, share: float, budget: int) -> None:
    """n tokens after the first take n steps, none of them longer than one that is full of prompts."""
    fixed = [{"kind": "fixed", "value": value} for value in (2048, tokens)]
    prompt, output = map(lengths_as, fixed)
    engine = Engine(float(CAP), float(budget))
    rate = share * most_of(chunked, straight_law(), (prompt, output), engine)
    workload = {"count": REQUESTS, "arrivals": {"kind": "poisson", "rate": rate}}
    workload |= {"prompt": fixed[0], "output": fixed[1]}
    requests = [draw_requests({**workload, "seed": seed}) for seed in range(2 * LANES)]
    times = simulated("vllm_v1", requests, budget)
    tpot = request_metrics({**times, "output": np.full((2 * LANES, REQUESTS), tokens)})["tpot"][:, REQUESTS // 5 :]
    load = Load(rate, prompt, output)
    state = steady(chunked, straight_law(), load, engine)
    assert float(state.tpot) == pytest.approx(np.mean(tpot), rel=0.2)
    assert float(percentiles(state, load, as_float(0.99))["tpot"]) <= 1.1 * np.max(tpot)


def compared(
    sched: str, discipline, lengths: tuple, budget: int, share: float, cv: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of TTFT, TPOT and E2E, of means and of 99th percentiles; numbers are lengths of all alike."""
    kinds = [{"kind": "fixed", "value": value} if isinstance(value, int) else value for value in lengths]
    (prompt, output), engine = map(lengths_as, kinds), Engine(float(CAP), float(budget))
    rate = share * most_of(discipline, straight_law(), (prompt, output), engine)
    requests = drawn(rate, lanes=2 * LANES, lengths=kinds, cv=cv)
    times = simulated(sched, requests, budget)
    output_tokens = np.stack([each.output for each in requests])
    metrics = request_metrics({**times, "output": output_tokens})
    load = Load(rate, prompt, output) if cv == 1.0 else Load(rate, prompt, output, cv**2)
    state = steady(discipline, straight_law(), load, engine)
    return errors(state, percentiles(state, load, as_float(0.99)), metrics)


@pytest.mark.parametrize("share", [0.5, 0.8])
@pytest.mark.parametrize(
    ("sched", "discipline", "budget"),
    [("vllm", prefill_first, 8192), ("vllm_v1", chunked, 2048), ("sarathi_fixed", chunked, 512)],
)
def test_few_short_prompts_in_a_step_take_no_longer_than_memory_does(sched, discipline, budget, share) -> None:
    """One token each: the time of a step is flat where the engine is idle and steep where it is full."""
    mean, end = compared(sched, discipline, (100, 1), budget, share)
    assert mean[0] <= 0.1 and end[0] <= 0.15, (mean, end)


def test_a_queue_that_lasts_fills_its_steps_with_its_own_decodes() -> None:
    """Bursts of prompts of two chunks: beside the mean number of decodes alone the 99th percentile is 16 % low."""
    mean, end = compared("sarathi_fixed", chunked, (1024, 64), 512, 0.7, cv=2.0)
    assert mean.max() <= 0.08 and end.max() <= 0.15, (mean, end)


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_prompt_of_many_steps_delays_a_short_decode_by_those_it_meets(share: float) -> None:
    """Ten tokens after prompts of 8,000: what comes while they are made is not worked off before the last of them."""
    assert compared("vllm_v1", chunked, (8000, 11), 2048, share)[0][1] <= 0.1


def test_a_prompt_of_a_whole_step_fits_in_one_where_nobody_decodes() -> None:
    assert compared("vllm_v1", chunked, (2048, 2), 2048, 0.1)[0][0] <= 0.1


def test_rows_of_prompts_vary_as_much_as_they_go_on_by_chance() -> None:
    """Where prompts go first, decodes wait for rows of steps that do not depend on how many prompts began them."""
    mean, end = compared("vllm", prefill_first, (100, 4), 8192, 0.5)
    assert mean.max() <= 0.1 and end.max() <= 0.1, (mean, end)


def test_decodes_that_wait_for_prompts_are_no_more_than_slots() -> None:
    """In rows of prompts sequences gather until no slot is free; then they go on."""
    assert compared("vllm", prefill_first, (100, 11), 8192, 0.8)[0][1] <= 0.2


def test_a_long_step_makes_the_next_one_long() -> None:
    """Steps of few prompts take what memory does, so what one more adds is not what one adds in the mean."""
    mean, end = compared("vllm_v1", chunked, (100, 4), 2048, 0.8)
    assert mean.max() <= 0.1 and end[:2].max() <= 0.15, (mean, end)


@pytest.mark.parametrize("prompt", [300, {"kind": "lognormal", "mean": 300, "cv": 1.5}])
def test_a_token_adds_what_the_others_in_its_step_make_it_add(prompt) -> None:
    mean, _ = compared("sarathi_fixed", chunked, (prompt, 50), 512, 0.7)
    assert mean[1:].max() <= 0.05, mean


@pytest.mark.long
def test_two_pools_are_the_simulated_ones() -> None:
    prompt, output, engine = lengths_as(PROMPT), lengths_as(OUTPUT), Engine(float(CAP), float(BUDGETS["vllm_v1"]))
    prefillers = decoders = LANES
    rate, transfer = 18.0 * LANES, 2e-3
    (requests,) = drawn(rate, lanes=1, count=LANES * REQUESTS)
    lanes = lambda values, engines: values.reshape(-1, engines).T  # noqa: E731
    prompts = [
        Requests(*each, np.ones_like(each[1]))
        for each in zip(lanes(requests.arrived, prefillers), lanes(requests.prompt, prefillers), strict=True)
    ]
    first = simulated("vllm_v1", prompts)["first_token"].T.reshape(-1) + transfer
    order = np.argsort(first, kind="stable")
    columns = [lanes(each[order], decoders) for each in (first, requests.prompt, requests.output)]
    outputs = [Requests(*each, brought=each[1]) for each in zip(*columns, strict=True)]
    completed = np.empty_like(first)
    completed[order] = simulated("vllm_v1", outputs)["completed"].T.reshape(-1)
    times = {"arrived": requests.arrived, "scheduled": requests.arrived, "first_token": first, "completed": completed}
    metrics = request_metrics({**times, "output": requests.output})

    @jax.jit
    def model(rate):
        load, pools = (
            Load(rate, prompt, output),
            Pools(prefillers, decoders, Sending(as_float(0.0), as_float(transfer))),
        )
        state = steady_pools(chunked, (straight_law(), straight_law()), load, (engine, engine), pools)
        return state, pools_percentile(state, load, pools, 0.99)

    state, ends = model(rate)
    assert 0.2 < float(state.utilization) < 0.8
    kept = {name: metrics[name][len(first) // 5 :] for name in LATENCIES}
    for name in LATENCIES:
        assert float(getattr(state, name)) == pytest.approx(np.nanmean(kept[name]), rel=0.1), name
    for name in ("ttft", "tpot"):  # requests dealt in turn come evenly
        assert float(ends[name]) == pytest.approx(np.nanquantile(kept[name], 0.99), rel=0.15), name


def test_who_comes_waits_for_the_step_that_was_formed_before() -> None:
    """Without that step the first token of short prompts is a third low; nothing else is different."""
    engine = Engine(float(CAP), float(BUDGETS["vllm_v1"]), ahead=1.0)
    kinds = {"kind": "fixed", "value": 100}, {"kind": "fixed", "value": 60}
    lengths = lengths_as(kinds[0]), lengths_as(kinds[1])
    rate = 0.4 * most_of(chunked, straight_law(), lengths, engine)
    requests = drawn(rate, lanes=4, lengths=kinds)
    times = simulated("vllm_v1", requests, ahead=True)
    metrics = request_metrics({**times, "output": np.stack([each.output for each in requests])})
    load, far = Load(rate, *lengths), []
    for each in (engine, replace(engine, ahead=as_float(0.0))):
        state = steady(chunked, straight_law(), load, each)
        far.append(errors(state, percentiles(state, load, as_float(0.99)), metrics))
    (means, ends), (before, _) = far
    assert means.max() < 0.04 and ends[0] < 0.1 and before[0] > 0.3
