"""Speculative decoding: tokens of a round, the verification as a decode of several tokens, drafts, when it pays."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.layers import transformer
from jaxperf.models.step import decode_cost, step_kernels
from jaxperf.serving.techniques.break_even import first_of_the_rest, speculative_step
from jaxperf.serving.techniques.drafts import DraftHeads, DraftLayer, DraftModel, as_draft
from jaxperf.serving.techniques.speculative import Speculation, expected_tokens, token_distribution
from jaxperf.serving.techniques.step import several_token_kernels, with_kernels
from jaxperf.sweeps.once import host_first
from tests.devices import H100, QUICK, close, deployment, model

LLAMA, SMALL = model("llama-3.1-8b"), model("llama-3.2-1b")
AT = deployment(H100.replace(memory_capacity=4e12))
chances = st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5)
several = jax.jit(several_token_kernels, compiler_options=QUICK)
stepping = jax.jit(step_kernels, compiler_options=QUICK)
speculative = jax.jit(speculative_step, compiler_options=QUICK)
proposing = jax.jit(
    lambda draft, at, widths: draft.round_kernels(at, as_float(2), as_float(2000), widths, as_float(1.5)),
    compiler_options=QUICK,
)


@host_first
@functools.partial(jax.jit, compiler_options=QUICK)
def plain_and_again(batch, context):
    """A decode step, and that of its own kernels: compiled together, for apart they may be added in another order."""
    step = decode_cost(AT, LLAMA, batch, context)
    return step, with_kernels(AT, step, step.kernels)


def kernels(transformer, sequences: float, context: float, tokens: float):
    return several(AT, transformer, as_float(sequences), as_float(context), as_float(tokens), as_float(0.0))


def speculation(acceptance, widths=None, draft=None) -> Speculation:
    return Speculation(
        DraftModel(SMALL, 1.0) if draft is None else draft, acceptance, widths or [1.0] * len(acceptance)
    )


@given(st.floats(0.0, 0.99), st.sampled_from([1, 4, 9]))
def test_equal_chances_give_the_closed_form(chance: float, count: int) -> None:
    """Leviathan et al. 2023, equation 1."""
    found = expected_tokens(as_float([chance] * count))
    np.testing.assert_allclose(found, (1.0 - chance ** (count + 1)) / (1.0 - chance), rtol=1e-12)


@given(chances)
def test_the_distribution_is_that_of_every_outcome(acceptance: list[float]) -> None:
    """Against all 2^k outcomes of k trials, of which the first failure ends the round."""
    want = np.zeros(len(acceptance) + 1)
    for outcome in itertools.product((True, False), repeat=len(acceptance)):
        chance = np.prod([a if right else 1.0 - a for a, right in zip(acceptance, outcome, strict=True)])
        want[outcome.index(False) if False in outcome else len(acceptance)] += chance
    found = np.asarray(token_distribution(as_float(acceptance)))
    np.testing.assert_allclose(found, want, atol=1e-12)
    np.testing.assert_allclose(found @ np.arange(1, len(found) + 1), expected_tokens(as_float(acceptance)), rtol=1e-12)


@settings(max_examples=15)
@given(st.integers(1, 300), st.integers(2, 8192))
def test_one_token_is_a_plain_decode_bit_for_bit(sequences: int, context: int) -> None:
    phase = Decode(as_float(sequences), as_float(context))
    plain = stepping(AT, LLAMA, phase, as_float(sequences))
    del plain["pipeline_send"]
    assert close(kernels(LLAMA, sequences, context, 1), plain, 0.0)


def test_the_same_kernels_make_the_same_step() -> None:
    step, again = plain_and_again(as_float(7), as_float(1000))
    assert close((again.time, again.stage_time, again.host), (step.time, step.stage_time, step.host), 0.0)
    assert int(again.reason) == 0


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v2-lite"])
def test_the_tokens_of_a_sequence_share_its_cache(name: str) -> None:
    """FLOP of attention grow with the tokens, keys and values are read once, products see every token.

    As many sequences as keep all cores busy: the cache is not split, so no partial outputs are moved.
    """
    own = model(name)
    one, five, apart = (kernels(own, *case) for case in ((600, 16384, 1), (600, 16384, 5), (3000, 16384, 1)))
    np.testing.assert_allclose(five["attention"].flops, 5.0 * one["attention"].flops, rtol=1e-12)
    assert one["attention"].bytes_moved < five["attention"].bytes_moved < 1.1 * one["attention"].bytes_moved
    np.testing.assert_allclose(apart["attention"].bytes_moved, 5.0 * one["attention"].bytes_moved, rtol=1e-12)
    rest = [name for name in five if name != "attention"]
    assert close({name: five[name] for name in rest}, {name: apart[name] for name in rest}, 0.0)


def test_recurrent_layers_take_one_token_after_the_other() -> None:
    own = model("mamba-130m")
    assert close(kernels(own, 4, 1000, 5), kernels(own, 20, 1000, 1), 0.0)


def test_a_round_is_its_draft_and_its_verification() -> None:
    """Four steps of the draft and one step of the target over five tokens of each sequence."""
    step, token = speculative(AT, LLAMA, speculation([0.8, 0.7, 0.6, 0.5]), as_float(8), as_float(2000))
    draft = as_draft(kernels(SMALL, 8, 2000, 1))["draft"]
    np.testing.assert_allclose(step.kernels["draft"].time, 4.0 * draft.time, rtol=1e-12)
    verification = kernels(LLAMA, 8, 2000, 5)
    np.testing.assert_allclose(step.kernels["attention"].time, verification["attention"].time, rtol=1e-12)
    np.testing.assert_allclose(token, step.time / (1 + 0.8 + 0.56 + 0.336 + 0.168), rtol=1e-12)


def test_a_tree_is_verified_whole_and_proposed_level_by_level() -> None:
    tree = speculation([0.9, 0.8], widths=[4.0, 8.0])
    assert float(tree.verified) == 13.0
    found = as_draft(proposing(tree.draft, AT, tree.widths))["draft"].time
    levels = [as_draft(kernels(SMALL, 2, 2000, tokens))["draft"].time for tokens in (1, 4)]
    np.testing.assert_allclose(found, sum(levels), rtol=1e-12)


def test_a_layer_of_the_target_proposes_cheaper_than_a_model_and_heads_cheaper_still() -> None:
    import dataclasses

    config = load_model("llama-3.1-8b")
    layer = DraftLayer(transformer(dataclasses.replace(config, layers=config.layers[-1:])))
    drafts = [DraftModel(SMALL, 1.0), layer, DraftHeads(config.hidden, config.vocabulary)]
    times = [float(as_draft(proposing(draft, AT, jnp.ones(2)))["draft"].time) for draft in drafts]
    assert times[0] > times[1] > times[2] > 0.0
    weights = [float(draft.weight_bytes(AT, 3)) for draft in drafts]
    # One layer of the 8B model and its joining matrix; three heads of 4096 x (4096 + 128256) (Medusa).
    assert weights[1] == pytest.approx(2 * (218_112_000 - 8192 + 8192 + 2 * 4096**2), rel=1e-6)
    assert weights[2] == 3 * 4096 * (4096 + 128256) * 2
    assert float(drafts[2].cache_bytes(AT, as_float(4), as_float(1000))) == 0.0


def test_it_pays_for_few_sequences_and_more_the_longer_their_context_is() -> None:
    """Large batches are compute-bound in a verification; a long cache is read once for all (MagicDec, 2408.11049)."""
    given = speculation([0.6] * 4)

    def gain(batch: float, context: float) -> float:
        _, token = speculative(AT, LLAMA, given, as_float(batch), as_float(context))
        return float(plain_and_again(as_float(batch), as_float(context))[0].time / token)

    few, many = gain(1, 1000), gain(512, 1000)
    assert few > 1.2 and many < 1.0
    gains = [gain(128, context) for context in (1000, 8000, 64000)]
    assert gains == sorted(gains) and gains[-1] > gains[0] + 0.1


def test_more_acceptance_is_never_slower_and_the_slope_is_that_of_a_difference() -> None:
    def token(chance):
        return speculative_step(AT, LLAMA, speculation(jnp.full(3, chance)), as_float(4), as_float(900))[1]

    compiled = jax.jit(jax.value_and_grad(token), compiler_options=QUICK)
    (low, _), (middle, slope), (high, _) = (compiled(as_float(at)) for at in (0.7 - 1e-5, 0.7, 0.7 + 1e-5))
    assert low > middle > high
    np.testing.assert_allclose(slope, (high - low) / 2e-5, rtol=1e-6)


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_the_first_of_the_rest(conditions: list[bool]) -> None:
    values = [2.0**power for power in range(len(conditions))]
    kept = [value for place, value in enumerate(values) if all(conditions[place:])]
    assert float(first_of_the_rest(jnp.asarray(conditions), as_float(values))) == (kept[0] if kept else float("inf"))
