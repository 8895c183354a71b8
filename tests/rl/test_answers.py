"""Answers of an iteration: the same work packed as drawn, every answer dealt once, prompts found in the cache."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.rl.answers import Answers, dealt, draw_answers
from jaxperf.rl.lengths import alike

LENGTHS = st.lists(st.integers(1, 1 << 17), min_size=1, max_size=50)
FIXED, SPREAD = {"kind": "fixed", "value": 40}, {"kind": "lognormal", "mean": 200.0, "cv": 1.0}


@given(LENGTHS)
def test_alike_sequences_have_the_same_tokens_and_the_same_attention(lengths: list[int]) -> None:
    found = alike(np.array(lengths))
    assert found.sequences * found.length == pytest.approx(sum(lengths), rel=1e-12)
    assert found.sequences * found.length**2 == pytest.approx(sum(each * each for each in lengths), rel=1e-12)
    assert found.sequences <= len(lengths) * (1 + 1e-12)


def test_alike_sequences_of_one_length_are_these() -> None:
    assert alike(np.full(7, 300)) == (7.0, 300.0)


def drawn(prompts: int = 6, samples: int = 4, longest: int | None = None, seed: int = 3) -> Answers:
    return draw_answers(prompts, samples, {"kind": "uniform", "low": 1, "high": 90}, SPREAD, longest, seed, "x.json")


def test_the_same_seed_draws_the_same_and_answers_to_one_prompt_have_its_length() -> None:
    first, again, other = drawn(), drawn(), drawn(seed=4)
    assert first.output.tolist() == again.output.tolist() != other.output.tolist()
    assert all(len(set(first.prompt[first.source == source])) == 1 for source in range(6))
    assert len(set(first.output)) > 12  # each answer has its own


def test_longest_cuts_and_counts() -> None:
    free, cut = drawn(), drawn(longest=150)
    assert cut.output.tolist() == np.minimum(free.output, 150).tolist()
    assert cut.cut == int((free.output > 150).sum()) > 0 == free.cut


def test_equalized_answers_have_the_mean() -> None:
    found = drawn()
    assert set(found.equalized.output) == {round(found.output.mean())}
    assert found.equalized.prompt.tolist() == found.prompt.tolist()


@given(prompts=st.integers(1, 9), samples=st.integers(1, 5), replicas=st.integers(1, 12))
def test_every_answer_is_dealt_once_and_those_to_one_prompt_together(prompts: int, samples: int, replicas: int) -> None:
    answers = drawn(prompts, samples)
    shares = dealt(answers, replicas, None)
    assert len(shares) == min(prompts, replicas)
    dealt_out = sorted(pair for each in shares for pair in zip(each.prompt, each.output, strict=True))
    assert dealt_out == sorted(zip(answers.prompt, answers.output, strict=True))
    sizes = [len(each.arrived) for each in shares]
    assert max(sizes) - min(sizes) <= samples
    assert all(size % samples == 0 for size in sizes)


def test_answers_to_one_prompt_share_the_nodes_of_its_full_blocks_and_no_others() -> None:
    answers = drawn()
    (share,) = dealt(answers, 1, 16)
    assert share.path is not None
    for one in range(len(answers.source)):
        assert (share.path[one] >= 0).sum() == answers.prompt[one] // 16
        for other in range(one):
            same = (share.path[one] == share.path[other]) & (share.path[one] >= 0)
            alike_prompts = answers.source[one] == answers.source[other]
            assert same.sum() == (answers.prompt[one] // 16 if alike_prompts else 0)


def test_a_distribution_that_is_none_names_file_and_field() -> None:
    with pytest.raises(InputError, match=r"x\.json: output: kind is \"lognormall\".*Did you mean lognormal"):
        draw_answers(2, 1, FIXED, {**SPREAD, "kind": "lognormall"}, None, 0, "x.json")
