"""Our own step times as a table: pure steps are those of the step models, mixed ones run the linear layers once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.cli.engines import Served, step_times_of
from jaxperf.core.numerics import as_float
from jaxperf.io.request_traces import RequestTrace
from jaxperf.models.step import decode_cost, prefill_cost
from jaxperf.serving.simulator import composed
from jaxperf.serving.simulator.fused_attention import FusedAttention
from jaxperf.serving.simulator.settings import parse_scheduler
from jaxperf.serving.simulator.step_time import AbstractStepTime, StepTimeTable, Timing, Work
from jaxperf.serving.simulator.tabulate import LENGTH_STEP, tabulated, tabulated_fused
from jaxperf.serving.techniques.mixed_attention import fused_attention_cost
from tests.devices import H100, QUICK, deployment, model

GPT2 = model("gpt2")
AT = deployment(H100)
decode_step, prefill_step = (jax.jit(cost, compiler_options=QUICK) for cost in (decode_cost, prefill_cost))


@pytest.fixture(scope="module")
def table() -> StepTimeTable:
    return tabulated(AT, GPT2, decodes=8, tokens=256, context=512, cached=1024)


@pytest.fixture(scope="module")
def fused() -> FusedAttention:
    return tabulated_fused(AT, GPT2, decodes=8, tokens=256, context=512, cached=1024)


def timing(table: AbstractStepTime, decodes: list[int], prompts: list[tuple[int, int]]) -> Timing:
    """A step of decodes with these contexts and prompts of (context, tokens)."""
    tokens = [1] * len(decodes) + [tokens for _, tokens in prompts]
    context = [*decodes, *(context for context, _ in prompts)]
    decoding = [True] * len(decodes) + [False] * len(prompts)
    return table(Work(jnp.asarray(tokens, jnp.int32), jnp.asarray(context, jnp.int32), jnp.asarray(decoding)))


@pytest.mark.parametrize(("number", "context"), [(1, 64), (3, 192), (8, 512)])
def test_decodes_alone_take_the_time_of_the_decode_step(table: StepTimeTable, number: int, context: int) -> None:
    expected = decode_step(AT, GPT2, as_float(number), as_float(context)).time
    assert float(timing(table, [context] * number, []).seconds) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(("tokens", "prefix"), [(64, 0), (256, 0), (128, 192)])
def test_a_prompt_alone_takes_the_time_of_the_prefill(table: StepTimeTable, tokens: int, prefix: int) -> None:
    expected = prefill_step(AT, GPT2, as_float(1.0), as_float(tokens), as_float(prefix)).time
    assert float(timing(table, [], [(prefix, tokens)]).seconds) == pytest.approx(float(expected), rel=1e-12)


def test_a_mixed_step_takes_less_than_its_parts_one_after_the_other(table: StepTimeTable) -> None:
    decode, prefill = timing(table, [256] * 4, []).seconds, timing(table, [], [(0, 128)]).seconds
    mixed = timing(table, [256] * 4, [(0, 128)]).seconds
    assert float(max(decode, prefill)) < float(mixed) < 0.9 * float(decode + prefill)


@pytest.mark.parametrize(("decodes", "prompts"), [([256] * 4, []), ([], [(192, 128)])])
def test_one_kernel_for_both_changes_no_step_of_one_kind(fused: FusedAttention, decodes: list, prompts: list) -> None:
    assert float(timing(fused, decodes, prompts).seconds) == float(timing(fused.apart, decodes, prompts).seconds)


def test_one_kernel_for_both_takes_the_busier_resource_of_both(fused: FusedAttention) -> None:
    """Kernels of attention as the steps have them: a decode waits for memory and a prompt after 192 for arithmetic."""
    decode = decode_step(AT, GPT2, as_float(4.0), as_float(256.0)).kernels["attention"]
    prefill = prefill_step(AT, GPT2, as_float(1.0), as_float(128.0), as_float(192.0)).kernels["attention"]
    hidden = decode.time + prefill.time - fused_attention_cost(prefill, decode).time
    saved = (float(timing(table, [256] * 4, [(192, 128)]).seconds) for table in (fused.apart, fused))
    assert next(saved) - next(saved) == pytest.approx(float(hidden), rel=1e-9) and float(hidden) > 1e-6


@pytest.mark.parametrize(
    "prompts",
    [
        [(448, 16), (0, 256)],
        [(320, 100), (0, 200), (64, 64)],
        [(512, 16)] * 4,
        [(0, 128), (0, 128)],
        [(448, 3), (0, 32)],
    ],
)
def test_prompts_in_one_step_take_no_longer_than_one_after_the_other(
    table: StepTimeTable, prompts: list[tuple[int, int]]
) -> None:
    """A step takes the context rounded up to the table's, and lengths to the nearest: a part in a hundred."""
    together = float(timing(table, [], prompts).seconds)
    apart = [float(timing(table, [], [each]).seconds) for each in prompts]
    assert max(apart) * 0.99 < together < 1.01 * sum(apart)


def test_prompts_have_their_own_scores_and_none_of_one_another(table: StepTimeTable) -> None:
    """One of 16 tokens after 448 has 16 x 448 more scores; by a law of sums the other 256 would have these too."""
    fresh, both = (timing(table, [], prompts).seconds for prompts in ([(0, 256)], [(0, 256), (448, 16)]))
    beside = float(both - fresh) - float(table.tokens[272] - table.tokens[256])
    alone = float(timing(table, [], [(448, 16)]).seconds - table.tokens[16])
    law_of_sums = StepTimeTable(**{name: getattr(table, name) for name in StepTimeTable.__dataclass_fields__})
    assert 0.0 <= beside <= alone
    assert float(timing(law_of_sums, [], [(0, 256), (448, 16)]).seconds) > float(both)
    assert float(timing(law_of_sums, [], [(448, 16)]).seconds) == float(timing(table, [], [(448, 16)]).seconds)


def test_a_table_repeats_until_the_context_leaves_its_bucket(table: StepTimeTable) -> None:
    first = timing(table, [100, 101], [])
    assert int(first.alike) == 29  # means 100 to 128 share an entry
    same, after = (timing(table, [100 + more, 101 + more], []) for more in (28, 29))
    assert float(same.seconds) == float(first.seconds) < float(after.seconds)


def test_beyond_the_table_its_last_entry_is_taken_and_the_step_is_marked(table: StepTimeTable) -> None:
    inside, beyond = timing(table, [512], []), timing(table, [5000], [])
    assert bool(inside.covered) and not bool(beyond.covered)
    assert float(inside.seconds) == float(beyond.seconds)


def test_cached_tokens_of_several_prompts_are_more_than_a_context(table: StepTimeTable) -> None:
    one, two, three = (timing(table, [], [(448, 16)] * number) for number in (1, 2, 3))
    assert bool(two.covered) and not bool(three.covered)
    assert float(two.seconds) > float(one.seconds)


@pytest.mark.parametrize(
    ("hashes", "caching", "cached"), [([[1, 2]] * 4, True, 1024), (None, True, 0), ([[1, 2]] * 4, False, 0)]
)
def test_the_table_reaches_all_that_the_prompts_of_a_step_find(monkeypatch, hashes, caching: bool, cached: int) -> None:
    """Three prompts of 130 tokens fit in a step, each in three steps of 64 tokens: 3 x 192, in powers of two 1024."""
    reach: dict[str, int] = {}
    monkeypatch.setattr(composed, "tabulated", lambda *_, **asked: reach.update(asked))
    settings = {"sched": "vllm_v1", "num_blocks": 99, "batch_size_cap": 3, "enable_prefix_caching": caching}
    lengths = (np.full(4, 130), np.ones(4, int))
    trace = RequestTrace([], np.arange(4), np.zeros(4), *lengths, hashes, {}, ())
    step_times_of(None, parse_scheduler(settings), trace, Served("gpt2", "h100-sxm"))
    assert reach["context"] == 256 and reach["cached"] == cached


def test_one_kernel_for_both_is_said(monkeypatch) -> None:
    monkeypatch.setattr(composed, "tabulated_fused", lambda *_, **asked: "fused")
    trace = RequestTrace([], np.arange(2), np.zeros(2), np.full(2, 9), np.ones(2, int), None, {}, ())
    scheduler = parse_scheduler({"sched": "vllm_v1", "num_blocks": 99})
    times, said = step_times_of(None, scheduler, trace, Served("gpt2", "h100-sxm", fused=True))
    assert times == "fused" and said.endswith(", prompts and decodes attending in one kernel")


def test_lengths_between_two_entries_take_the_nearer(table: StepTimeTable) -> None:
    near, exact = (timing(table, [], [(0, length)]) for length in (130, 128))
    attention = [float(each.seconds - table.tokens[length]) for each, length in ((near, 130), (exact, 128))]
    assert attention[0] == pytest.approx(attention[1], rel=1e-9)
    assert LENGTH_STEP == 16 and bool(np.isfinite(table.prefill).all())
