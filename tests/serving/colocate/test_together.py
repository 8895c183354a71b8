"""Engines that share a device: equal to plain Python that couples them at every instant, and what must hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.serving.colocate.overlap import IDLE, mean_stretch, overlap_of, timeline_of
from jaxperf.serving.colocate.speeds import combinations, speeds_in_turns
from jaxperf.serving.colocate.together import STATES, Member, simulate_together
from jaxperf.serving.simulator.policies import POLICIES
from jaxperf.serving.simulator.run import Simulated, simulate
from jaxperf.serving.simulator.state import Settings, Sizes, Status
from jaxperf.serving.simulator.trace import pad_traces
from tests.serving.colocate.exact import Engine, coupled
from tests.serving.simulator.fuzz import (
    LOG,
    REQUESTS,
    SLOTS,
    Case,
    Draw,
    draw,
    draw_brought,
    draw_priorities,
    draw_shared,
    draw_swap,
    seconds,
    table,
)
from tests.serving.simulator.reference import Request

SIZES = Sizes(SLOTS, LOG, nodes=64 * REQUESTS, groups=256)
PAIRS = [("vllm_v1", "vllm"), ("sarathi", "orca"), ("lightllm", "faster_transformer"), ("vllm", "vllm_v1", "vllm_v1")]


def member(name: str, case: Case) -> Member:
    numbers, trace = case
    kinds = {name: jnp.float64 if isinstance(value, float) else jnp.int32 for name, value in numbers.items()}
    settings = Settings(**{name: jnp.asarray(value, kinds[name]) for name, value in numbers.items()})
    if (path := getattr(trace, "path", None)) is not None:  # of one width, so that one program serves all
        trace = SimpleNamespace(
            **{**vars(trace), "path": np.pad(path, [(0, 0), (0, 64 - path.shape[1])], constant_values=-1)}
        )
    one = jax.tree.map(lambda values: values[0], pad_traces([trace], REQUESTS))
    return Member(settings, one, table(), POLICIES[name], SIZES)


def dyadic(random: np.random.Generator, engines: int) -> np.ndarray:
    """Speeds of 1, 1/2 and 1/4, with which times of whole ticks stay exact and ties are ties; 1 for who is alone."""
    found = random.choice([0.25, 0.5, 1.0], (STATES,) * engines + (engines,))
    for state in np.ndindex(*(STATES,) * engines):
        if sum(each != IDLE for each in state) < 2:
            found[state] = 1.0
    return found


def plain(names: Sequence[str], cases: Sequence[Case], speeds: np.ndarray) -> list[list[tuple[Any, ...]]]:
    """What became of every request of each engine."""
    engines, asked = [], []
    for name, (numbers, trace) in zip(names, cases, strict=True):
        columns = zip(trace.arrived.tolist(), trace.prompt.tolist(), trace.output.tolist(), strict=True)
        asked.append([Request(i, arrived, p, p + d) for i, (arrived, p, d) in enumerate(columns)])
        for one, path in zip(asked[-1], getattr(trace, "path", ()), strict=False):
            one.path = [node for node in path.tolist() if node >= 0]
        for name_of in ("brought", "priority"):
            for one, value in zip(asked[-1], getattr(trace, name_of, ()), strict=False):
                setattr(one, name_of, int(value))
        engines.append(Engine(name, numbers, asked[-1], seconds))
    coupled(engines, lambda state: speeds[state].tolist())
    names_of = ("scheduled", "first_token", "completed", "restarts", "rejected")
    return [[tuple(getattr(one, name) for name in names_of) for one in each] for each in asked]


def records(found: Simulated, count: int) -> list[tuple[Any, ...]]:
    one = found.requests
    rejected = one.status == Status.REJECTED
    columns = (one.scheduled, one.first_token, one.completed, one.restarts, rejected)
    return list(zip(*(values[0, :count].tolist() for values in columns), strict=True))


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_every_request_is_as_in_plain_python(names: tuple[str, ...]) -> None:
    """Schedulers short of blocks, places and tokens, to the last bit; engines do feel each other."""
    random, felt, evicted = np.random.default_rng(7), 0, 0
    speeds = dyadic(random, len(names))
    for _ in range(12):
        cases = [draw(random, name) for name in names]
        found = simulate_together([member(*each) for each in zip(names, cases, strict=True)], speeds)
        ours = [records(own, len(trace.prompt)) for own, (_, trace) in zip(found, cases, strict=True)]
        assert ours == plain(names, cases, speeds)
        felt += ours != plain(names, cases, np.ones_like(speeds))
        evicted += sum(int(own.requests.restarts.sum()) for own in found)
    assert felt > 6 and (evicted > 0) == ("lightllm" not in names)


@pytest.mark.parametrize(
    "drawn",
    [
        draw_shared,
        pytest.param(draw_priorities, marks=pytest.mark.long),
        pytest.param(draw_brought, marks=pytest.mark.long),
    ],
)
def test_what_requests_bring_and_share_is_as_in_plain_python(drawn: Draw) -> None:
    random, names = np.random.default_rng(9), ("vllm_v1", "vllm_v1")
    speeds = dyadic(random, 2)
    for _ in range(12):
        cases = [drawn(random, name) for name in names]
        found = simulate_together([member(*each) for each in zip(names, cases, strict=True)], speeds)
        ours = [records(own, len(trace.prompt)) for own, (_, trace) in zip(found, cases, strict=True)]
        assert ours == plain(names, cases, speeds)


def test_copies_to_the_host_are_waited_for_once() -> None:
    random, swaps = np.random.default_rng(3), 0
    for _ in range(12):
        cases = [draw_swap(random, "vllm") for _ in range(2)]
        cases = [({**numbers, "swap_seconds": float(numbers["swap_seconds"])}, trace) for numbers, trace in cases]
        speeds = dyadic(random, 2)
        found = simulate_together([member("vllm", case) for case in cases], speeds)
        ours = [records(own, len(trace.prompt)) for own, (_, trace) in zip(found, cases, strict=True)]
        assert ours == plain(("vllm", "vllm"), cases, speeds)
        swaps += sum(int(own.requests.swaps.sum()) for own in found if own.requests.swaps is not None)
    assert swaps > 0


@pytest.mark.parametrize("name", ["vllm_v1", "vllm"])
def test_one_engine_is_the_simulator_itself(name: str) -> None:
    random = np.random.default_rng(5)
    for _ in range(5):
        case = draw(random, name)
        one = member(name, case)
        (found,) = simulate_together([one], np.ones((STATES, 1)))
        settings, trace = jax.tree.map(lambda values: values[None], (one.settings, one.trace))
        alone = simulate(one.policy, one.step_time, settings, trace, SIZES)
        assert records(found, len(case[1].prompt)) == records(jax.tree.map(np.asarray, alone), len(case[1].prompt))
        assert found.totals.busy[0] == alone.totals.busy[0] and found.totals.steps[0] == alone.totals.steps[0]


def test_a_log_that_is_too_short_grows() -> None:
    one = member("vllm_v1", draw(np.random.default_rng(5), "vllm_v1"))
    (found,) = simulate_together([dataclasses.replace(one, sizes=SIZES._replace(log=2))], np.ones((STATES, 1)))
    assert 2 < found.log.count[0] <= found.log.start.shape[1]
    assert found.log.steps[0, : found.log.count[0]].tolist() == [1] * int(found.log.count[0])


def test_steps_in_turns_take_up_to_twice_as_long_and_always_twice_beside_a_twin() -> None:
    random = np.random.default_rng(11)
    speeds = speeds_in_turns(combinations(2))
    table_of = speeds.reshape(STATES, STATES, 2)
    for _ in range(6):
        first, second = (draw(random, "vllm_v1") for _ in range(2))
        for pair, twins in (((first, second), False), ((first, first), True)):
            found = simulate_together([member("vllm_v1", case) for case in pair], table_of)
            overlap = overlap_of([timeline_of(jax.tree.map(lambda values: values[0], own.log)) for own in found])
            met = speeds[np.ravel_multi_index(tuple(overlap.states.T), (STATES, STATES))]
            stretch = mean_stretch(overlap, met)
            assert (stretch >= 1.0 - 1e-12).all() and (stretch <= 2.0 + 1e-9).all()
            some = [[(overlap.states[:, engine] == phase).any() for phase in (0, 1)] for engine in (0, 1)]
            assert not twins or np.allclose(stretch[np.array(some)], 2.0)
