"""Drawn workloads against what they are meant to be, and against the replica that serves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwspecs.errors import InputError
from jaxperf.cli.fleets import requests_of
from jaxperf.io.session_traces import SessionTrace, read_sessions, trace_of
from jaxperf.serving.fleet.build import simulate_fleet
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.workloads.drawn import Stage, text_paths, through_stage
from jaxperf.serving.workloads.kinds import draw_workload
from tests.serving.simulator import fuzz

FEW = {"kind": "uniform", "low": 5, "high": 20}
PLAIN: dict[str, Any] = {
    "count": 12,
    "seed": 7,
    "arrivals": {"kind": "poisson", "rate": 4.0},
    "prompt": FEW,
    "output": {"kind": "uniform", "low": 2, "high": 9},
}
AGENTS = {
    **PLAIN,
    **{"kind": "agents", "turns": {"kind": "uniform", "low": 1, "high": 4}},
    **{"system": {"kind": "fixed", "value": 19}, "think": {"kind": "exponential", "mean": 0.3}},
}
BEST_OF_N = {**PLAIN, "kind": "best_of_n", "samples": {"kind": "fixed", "value": 4}}
RAG = {
    **PLAIN,
    **{"kind": "rag", "document": {"kind": "fixed", "value": 30}, "documents": 3, "skew": 1.0},
    **{
        "embed": {"time": {"kind": "fixed", "mean": 0.2}},
        "retrieve": {"servers": 4, "time": {"kind": "exponential", "mean": 0.1}},
    },
}


def shared_blocks(paths: np.ndarray, one: int, other: int) -> int:
    """Leading nodes that two requests have in common."""
    same = (paths[one] == paths[other]) & (paths[one] >= 0)
    return int(np.cumprod(same).sum())


def test_copies_of_a_prompt_share_its_full_blocks_and_nothing_else() -> None:
    drawn = draw_workload(BEST_OF_N)
    paths = text_paths(drawn.texts, 4)
    assert len(drawn.arrived) == 48 and len(np.unique(drawn.output)) > 1
    for first in range(0, 48, 4):
        assert len(set(drawn.arrived[first : first + 4])) == len(set(drawn.prompt[first : first + 4])) == 1
        assert shared_blocks(paths, first, first + 3) == drawn.prompt[first] // 4
        assert shared_blocks(paths, first, (first + 4) % 48) == 0


def test_a_turn_begins_with_all_that_was_said_before() -> None:
    drawn = draw_workload(AGENTS)
    paths, ends = text_paths(drawn.texts, 4), drawn.prompt + drawn.output
    assert drawn.after is not None and drawn.delay is not None and (drawn.after >= 0).sum() > 5
    for turn, before in enumerate(drawn.after):
        if before < 0:
            assert 19 + 5 <= drawn.prompt[turn] <= 19 + 20 and drawn.delay[turn] == 0.0
            assert shared_blocks(paths, turn, 0) >= 19 // 4
            continue
        assert before == turn - 1 and 5 <= drawn.prompt[turn] - ends[before] <= 20
        assert shared_blocks(paths, turn, before) == ends[before] // 4
        assert drawn.arrived[turn] == drawn.arrived[before]


def test_questions_about_one_document_share_it() -> None:
    drawn = draw_workload(RAG)
    paths = text_paths(drawn.texts, 4)
    names = [text[0][1] for text in drawn.texts]
    assert len(set(names)) <= 3 and drawn.asked is not None
    for one in range(1, 12):
        assert shared_blocks(paths, one, 0) == (30 // 4 if names[one] == names[0] else 0)
    assert (np.diff(drawn.arrived) >= 0.0).all() and (drawn.arrived >= drawn.asked + 0.2).all()


def test_a_stage_serves_as_many_as_it_has_servers() -> None:
    """Four at once, one second each: with two servers they leave in pairs; the last comes to an empty stage."""
    ends = through_stage(np.array([0.0, 0.0, 0.0, 0.0, 9.0]), Stage(np.ones(5), 2))
    assert ends.tolist() == [1.0, 1.0, 2.0, 2.0, 10.0]


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    for workload in (BEST_OF_N, AGENTS, RAG):
        one, two, other = (draw_workload({**workload, "seed": seed}) for seed in (7, 7, 8))
        np.testing.assert_array_equal(one.output, two.output)
        assert one.texts == two.texts
        assert len(one.output) != len(other.output) or (one.output != other.output).any()


def test_a_turn_is_sent_when_the_one_before_has_ended_and_finds_it_cached() -> None:
    """On one replica with room for everything, all but what is new is a hit: fewer tokens are computed."""
    drawn = draw_workload(AGENTS)
    settings = {"sched": "vllm_v1", "num_blocks": 4000, "block_size": 4, "batch_size_cap": 8, "max_tokens_in_batch": 64}
    scheduler = parse_scheduler(settings)
    trace = requests_of(trace_of(drawn), scheduler)
    found = simulate_fleet(scheduler, fuzz.table(), trace, 1, "least_outstanding")
    assert drawn.after is not None and drawn.delay is not None
    follows = drawn.after >= 0
    ended = found.requests.completed[drawn.after[follows]]
    np.testing.assert_array_equal(found.requests.arrived[follows], ended + drawn.delay[follows])
    log = found.found.replicas.log
    computed = int((log.steps[0] * (log.tokens[0] - log.decodes[0]))[: int(log.count[0])].sum())
    new = drawn.prompt - 4 * np.where(follows, (drawn.prompt + drawn.output)[drawn.after] // 4, 0)
    assert new[follows].sum() <= computed <= new.sum() + 4 * follows.sum()


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({**PLAIN, "kind": "agent"}, "agents"),
        ({**BEST_OF_N, "samples": None}, "samples"),
        ({**BEST_OF_N, "turns": FEW}, "turns"),
        ({**AGENTS, "think": {"kind": "fixed", "mean": -1.0}}, "mean"),
        ({**AGENTS, "think": {"kind": "gamma", "mean": 1.0}}, "fixed or exponential"),
        ({**AGENTS, "think": {"kind": "fixed", "value": 1.0}}, '"fixed", "mean": 2.0}; it has kind, value'),
        ({**BEST_OF_N, "samples": 4}, 'samples is 4; write it as, say, {"kind": "fixed", "value": 4}'),
        ({**AGENTS, "count": 0}, "count"),
        ({**AGENTS, "count": 10**6, "turns": {"kind": "fixed", "value": 1 << 20}}, "turns make 1,048,576,000,000"),
        ({**BEST_OF_N, "count": 10**6, "samples": {"kind": "fixed", "value": 1 << 20}}, "samples make .* at most"),
        ({**AGENTS, "total": FEW}, "it has count, seed, arrivals, prompt, output, turns"),
        ({**AGENTS, "think": {"kind": [], "mean": 1.0}}, "fixed or exponential"),
        ({**AGENTS, "seed": None}, "seed is null"),
        ({**RAG, "documents": 2.5}, "whole"),
        ({**RAG, "documents": 10**400}, "documents is 1000"),
        ({**RAG, "embed": 1}, "embed is 1; write it as an object with servers and time"),
        ({**RAG, "skew": float("nan")}, "skew is NaN"),
        ({**RAG, "embed": {"server": 2}}, "servers"),
        ({**RAG, "skew": -1.0}, "skew"),
    ],
)
def test_what_cannot_be_drawn_is_named(workload: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        draw_workload(workload)


def test_a_file_without_a_kind_is_read_as_before(tmp_path) -> None:
    import json

    for name, workload, kind in (("plain", PLAIN, False), ("agents", AGENTS, True)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(workload))
        trace = read_sessions(path)
        assert isinstance(trace, SessionTrace) == kind and len(trace.rows) == len(trace.arrived) >= 12
