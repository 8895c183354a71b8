"""Every scheduler against plain Python, step for step, on traces that are short of blocks, places and tokens."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxperf.core.compiler_options import QUICK_LOOPS
from jaxperf.serving.simulator import run
from jaxperf.serving.simulator.run import simulate
from jaxperf.serving.simulator.state import Status
from tests.serving.simulator.fuzz import (
    KINDS,
    Case,
    Draw,
    compare,
    compiled,
    draw,
    draw_brought,
    draw_pipeline,
    draw_priorities,
    draw_shared,
    draw_swap,
    unrolled,
)

# Of what is varied, the scheduler in which it is most different, at length three; `fuzz` compares the others too.
# Steps formed ahead are the most different with cached prefixes.
SELDOM = (
    *(", formed ahead", ", formed ahead, priorities", ", formed ahead, prompts brought"),
    ", four stages, vLLM's queue",
)
COMPARED = [
    pytest.param(what, name, marks=[pytest.mark.long] if what and (at or what in SELDOM) else [])
    for what, _, names in KINDS
    for at, name in enumerate(names[:3] if what else names)
]


@pytest.mark.parametrize(("what", "name"), COMPARED)
def test_two_hundred_small_traces_agree_step_for_step(what: str, name: str) -> None:
    """`python -m tests.serving.simulator.fuzz` compares ten thousand."""
    drawn = next(drawn for kind, drawn, _ in KINDS if kind == what)
    assert compare(name, 200, drawn=drawn) == []


def test_the_traces_evict_reject_and_skip() -> None:
    """What the comparison would not see, it could not find wrong."""
    random = np.random.default_rng(1)
    found = compiled("vllm_v1", [draw(random, "vllm_v1") for _ in range(200)])
    assert found.requests.restarts.sum() > 100
    assert (found.requests.status == Status.REJECTED).sum() > 10
    assert found.totals.steps.sum() > 2 * found.log.count.sum()


def test_lanes_agree_one_after_the_other_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is how quick loops do it, which the other tests have."""
    random = np.random.default_rng(2)
    cases = [draw(random, "vllm_v1") for _ in range(200)]
    apart = compiled("vllm_v1", cases)
    simulate.clear_cache()
    monkeypatch.setattr(run, "lanes_together", lambda: 48)  # the last tile is not full
    try:
        together = compiled("vllm_v1", cases)
    finally:
        simulate.clear_cache()
    for one, other in zip(jax.tree.leaves(apart), jax.tree.leaves(together), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("flags", "lanes"), [(" ".join(QUICK_LOOPS), 1), ("", run.TILE)])
def test_lanes_share_a_loop_where_each_turn_costs_calls(
    monkeypatch: pytest.MonkeyPatch, flags: str, lanes: int
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert run.lanes_together() == (lanes if jax.default_backend() == "cpu" else run.TILE)


def cases_of(drawn: Draw, name: str) -> list[Case]:
    random = np.random.default_rng(1)
    return [drawn(random, name) for _ in range(200)]


def test_swapping_traces_swap_and_find_no_room_and_end_with_nothing_in_host_memory() -> None:
    found = compiled("vllm", cases_of(draw_swap, "vllm"))
    assert found.requests.swaps is not None and found.requests.swaps.sum() > 100
    assert found.requests.restarts.sum() > 10  # where the host's memory was full
    assert ((found.requests.status == Status.REJECTED) & (found.requests.swaps > 0)).sum() > 5
    assert (found.requests.status != Status.SWAPPED).all()


def test_priorities_are_felt() -> None:
    """Against the same traces in order of arrival: the urgent wait less, the others more."""
    cases = cases_of(draw_priorities, "vllm_v1")
    urgent, plain = (
        compiled("vllm_v1", cases),
        compiled("vllm_v1", [(numbers, bare(trace)) for numbers, trace in cases]),
    )
    assert urgent.requests.restarts.sum() > 100
    waited = {True: [], False: []}
    for lane, (_, trace) in enumerate(cases):
        now, before = (found.requests.first_token[lane, : len(trace.prompt)] for found in (urgent, plain))
        done = (now >= 0.0) & (before >= 0.0)
        for first in waited:
            waited[first] += (now - before)[done & ((trace.priority < 0) == first)].tolist()
    assert np.mean(waited[True]) < 0.0 < np.mean(waited[False])


def test_what_is_brought_is_not_computed_and_is_lost_by_an_eviction() -> None:
    cases = cases_of(draw_brought, "vllm_v1")
    found = compiled("vllm_v1", cases)
    plain = compiled("vllm_v1", [(numbers, bare(trace)) for numbers, trace in cases])
    assert found.requests.brought is not None
    assert found.totals.busy.sum() < plain.totals.busy.sum()
    evicted = found.requests.restarts > 0
    assert evicted.sum() > 50 and (found.requests.brought[evicted] == 0).all()
    # Whose first token was made before it came has had it when it came.
    for lane, (_, trace) in enumerate(cases):
        whole = np.flatnonzero(trace.brought == trace.prompt)
        made = found.requests.first_token[lane, whole]
        assert np.isin(made, [-1.0]).sum() + (made == trace.arrived[whole]).sum() == len(whole)


def test_a_pipeline_has_several_batches_under_way() -> None:
    """Its steps overlap, each request is in one at a time, and the stages are never busy longer than the clock."""
    found = compiled("vllm_v1", cases_of(draw_pipeline, "vllm_v1"))
    overlapping = 0
    for lane in range(len(found.events)):
        steps = unrolled(found, lane)
        ends = [start + seconds for start, seconds, *_ in steps]
        overlapping += sum(later[0] < end for later, end in zip(steps[1:], ends, strict=False))
        assert found.totals.busy[lane] <= (max(ends) if ends else 0.0)
        assert sorted(ends) == ends
    assert overlapping > 1000 and found.requests.restarts.sum() > 100


def test_traces_with_prefixes_hit_evict_and_copy() -> None:
    random = np.random.default_rng(1)
    cases = [draw_shared(random) for _ in range(200)]
    without = [(numbers, bare(trace)) for numbers, trace in cases]
    cached, plain = compiled("vllm_v1", cases), compiled("vllm_v1", without)
    assert cached.cache is not None and cached.cache.copies.sum() > 10 and cached.requests.restarts.sum() > 50
    assert cached.totals.busy.sum() < plain.totals.busy.sum()
    # At the end every block is free, in the groups of the queue.
    assert (cached.cache.plain + cached.cache.nodes.sum(axis=1)).tolist() == [each["blocks"] for each, _ in cases]
    assert (cached.cache.holders == 0).all()


def bare(trace: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(arrived=trace.arrived, prompt=trace.prompt, output=trace.output)


def test_a_prompt_evicted_before_its_end_is_kept_whole_or_as_vidur_has_it() -> None:
    """Vidur makes the rest of such a prompt token by token, as if it were output: `sarathi` does so, `sarathi_fixed`
    prefills it again. A decode that outgrows the cache evicts the prompt begun beside it."""
    case = (
        {
            **{"blocks": 10, "block_size": 4, "watermark": 0, "cap": 2, "batch_tokens": 64, "chunk": 5},
            **{"reserved": 10, "waiting_steps": 1},
        },
        SimpleNamespace(arrived=np.array([0.0, 1e-9]), prompt=np.array([4, 28]), output=np.array([12, 2])),
    )
    steps = {name: unrolled(compiled(name, [case]), 0) for name in ("sarathi", "sarathi_fixed")}
    restarts = {name: int(compiled(name, [case]).requests.restarts.sum()) for name in steps}
    assert min(restarts.values()) >= 1
    prefilled = {name: sum(tokens - decodes for *_, tokens, decodes in each) for name, each in steps.items()}
    decoded = {name: sum(decodes for *_, decodes in each) for name, each in steps.items()}
    assert prefilled["sarathi"] < prefilled["sarathi_fixed"]
    assert decoded["sarathi"] > decoded["sarathi_fixed"] == 11 + 1


def test_a_request_that_fits_no_empty_replica_is_rejected_and_the_others_go_on() -> None:
    """Vidur would stop here, with everything behind it in the queue."""
    numbers = {
        **{"blocks": 8, "block_size": 4, "watermark": 0, "cap": 4, "batch_tokens": 64, "chunk": 16},
        **{"reserved": 8, "waiting_steps": 1},
    }
    for name in ("vllm", "vllm_v1", "sarathi"):
        trace = type(
            "Trace", (), {"arrived": np.zeros(3), "prompt": np.array([4, 40, 4]), "output": np.array([3, 3, 3])}
        )
        found = compiled(name, [(numbers, trace)])
        assert found.requests.status[0, :3].tolist() == [Status.COMPLETED, Status.REJECTED, Status.COMPLETED]
        assert found.requests.completed[0, 1] == -1.0


def test_a_request_that_outgrows_the_cache_ends() -> None:
    """It evicts itself when no block is left, then no longer fits: found, not looped on."""
    numbers = {
        **{"blocks": 4, "block_size": 4, "watermark": 0, "cap": 4, "batch_tokens": 64, "chunk": 16},
        **{"reserved": 4, "waiting_steps": 1},
    }
    trace = SimpleNamespace(arrived=np.zeros(1), prompt=np.array([8]), output=np.array([24]))
    for name in ("vllm", "vllm_v1", "sarathi"):
        found = compiled(name, [(numbers, trace)])
        assert found.requests.status[0, 0] == Status.REJECTED and found.requests.restarts[0, 0] >= 1
