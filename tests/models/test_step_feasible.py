"""Why a step cannot run: each reason alone, and NaN exactly where there is one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxperf as jp
from jaxperf.core.feasible import Reason
from jaxperf.core.formats import COMPUTE_FORMATS
from jaxperf.core.numerics import as_float
from jaxperf.models.feasibility import no_count
from tests.devices import H100, decode_step, deployment, model, prefill_step

ROOMY = H100.replace(memory_capacity=4e12)
LLAMA, MIXTRAL, QWEN = "llama-2-70b", "mixtral-8x7b", "qwen3-30b-a3b"
DECODE = jp.decode_step(jp.load_model("mixtral-8x7b"))

CASES: list[tuple[Reason, str, dict[str, Any], int, int]] = [
    (Reason(0), LLAMA, {}, 1, 4096),
    (Reason(0), LLAMA, {"tensor": 8, "pipeline": 80}, 1, 1024),
    (Reason(0), LLAMA, {"tensor": 16}, 1, 1024),  # KV heads replicated twice
    (Reason(0), MIXTRAL, {"tensor": 4, "data": 2, "expert": 8}, 2, 1024),
    (Reason(0), MIXTRAL, {"tensor": 8, "expert": 2}, 1, 1024),
    (Reason.MEMORY, LLAMA, {"device": H100}, 1, 1024),
    (Reason.TENSOR_PARALLEL, LLAMA, {"tensor": 3}, 1, 1024),
    (Reason.TENSOR_PARALLEL, LLAMA, {"tensor": 128}, 1, 1024),
    (Reason.TENSOR_PARALLEL, "qwen2.5-7b", {"tensor": 8}, 1, 1024),  # 28 heads
    (Reason.PIPELINE_PARALLEL, LLAMA, {"pipeline": 81}, 1, 1024),
    (Reason.EXPERT_PARALLEL, LLAMA, {"tensor": 2, "expert": 2}, 1, 1024),  # no experts
    (Reason.EXPERT_PARALLEL, MIXTRAL, {"tensor": 2, "expert": 4}, 1, 1024),  # fewer ranks than that
    (Reason.EXPERT_PARALLEL, MIXTRAL, {"tensor": 16, "expert": 16}, 1, 1024),  # eight experts
    (Reason.EXPERT_PARALLEL, MIXTRAL, {"tensor": 8, "data": 3, "expert": 3}, 3, 1024),
    (Reason.DATA_PARALLEL, LLAMA, {"data": 4}, 3, 1024),
    (Reason.CONTEXT, LLAMA, {}, 1, 4097),
    (Reason.TENSOR_PARALLEL | Reason.CONTEXT, LLAMA, {"tensor": 5}, 1, 8192),
]


@pytest.mark.parametrize(("reason", "name", "layout", "batch", "length"), CASES)
def test_each_reason_has_its_bit_and_no_other(
    reason: Reason, name: str, layout: dict[str, Any], batch: int, length: int
) -> None:
    at = deployment(**{"device": ROOMY, **layout})
    for step in (decode_step(at, model(name), batch, length), prefill_step(at, model(name), batch, length)):
        assert Reason(int(step.reason)) == reason
        assert math.isnan(float(step.time)) == math.isnan(float(step.stage_time)) == bool(reason)


def test_a_prefix_counts_towards_the_context() -> None:
    at, llama = deployment(ROOMY), model(LLAMA)
    assert int(prefill_step(at, llama, 1, 96, 4000).reason) == 0
    assert int(prefill_step(at, llama, 1, 97, 4000).reason) == Reason.CONTEXT


def test_an_unknown_context_limit_is_no_limit() -> None:
    endless = dataclasses.replace(model("llama-2-7b"), max_context=as_float(math.inf))
    assert int(decode_step(deployment(ROOMY), endless, 1, 1_000_000).reason) == 0


def test_the_cache_decides_how_many_sequences_fit() -> None:
    at, llama = deployment(), model("llama-2-7b")
    free = 0.9 * 80e9 - float(decode_step(at, llama, 1, 1).memory.weights)
    most = int(free // (4096 * 2 * 32 * 4096 * 2))
    assert int(decode_step(at, llama, most - 1, 4096).reason) == 0
    assert int(decode_step(at, llama, most + 1, 4096).reason) == Reason.MEMORY


counts = st.sampled_from([1, 2, 3, 4, 6, 8, 16])


@given(st.sampled_from([LLAMA, MIXTRAL, QWEN]), counts, counts, counts, counts, st.integers(1, 64), st.booleans())
def test_a_time_is_undefined_exactly_where_there_is_a_reason(
    name: str, tensor: int, pipeline: int, expert: int, data: int, batch: int, small: bool
) -> None:
    at = deployment(H100 if small else ROOMY, tensor=tensor, pipeline=pipeline, expert=expert, data=data)
    step = decode_step(at, model(name), batch, 2048)
    assert math.isnan(float(step.time)) == math.isnan(float(step.stage_time)) == (int(step.reason) != 0)
    if int(step.reason) == 0:
        assert 0.0 < float(step.time) < 10.0 and float(step.memory.total) <= float(step.memory.usable)
    assert math.isfinite(float(step.memory.total)) and math.isfinite(float(step.flops))


def test_a_device_without_the_arithmetic_is_infeasible_with_its_reason() -> None:
    without = ROOMY.replace(peak_flops=ROOMY.peak_flops.at[COMPUTE_FORMATS.index("fp64")].set(0.0))
    for device, expected in ((without, Reason.FORMAT), (ROOMY, Reason(0))):
        step = decode_step(deployment(device=device, weights="fp64"), model("gpt2"), 1, 64)
        assert Reason(int(step.reason)) == expected
        assert math.isnan(float(step.time)) == bool(expected)


@pytest.mark.parametrize("value", [-8.0, 0.0, 0.5, math.nan, math.inf])
@pytest.mark.parametrize(
    "name",
    ["tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "routing_skew", "batch", "context"],
)
def test_a_count_below_one_or_not_finite_has_its_bit(name: str, value: float) -> None:
    found = DECODE(ROOMY, **{"context": 64, name: value})
    assert int(found.reason) & Reason.COUNT and math.isnan(float(found.time))


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (jp.prefill_step, {"prompt": -10}),
        (jp.prefill_step, {"prompt": math.nan}),
        (jp.prefill_step, {"prefix": -500}),
        (jp.prefill_step, {"prefix": math.nan}),
        (jp.prefill_step, {"outputs": -200}),
        (jp.prefill_step, {"outputs": 0}),
        (jp.prefill_step, {"outputs": math.nan}),
        (jp.serve_step, {"output": -100}),
        (jp.serve_step, {"output": math.nan}),
        (jp.serve_step, {"prompt": 0}),
    ],
)
def test_a_length_below_one_or_not_a_number_has_its_bit(step: Any, given: dict[str, Any]) -> None:
    found = step(jp.load_model("llama-3-8b"))("h100-sxm", **given)
    times = (found.ttft, found.tpot, found.tokens_per_second) if step is jp.serve_step else (found.time,)
    assert int(found.reason) == Reason.COUNT and all(math.isnan(float(time)) for time in times)


def test_media_tokens_are_counted_from_none() -> None:
    step = jp.prefill_step(jp.load_model("llava-1.5-7b"))
    none, fewer = (step(ROOMY, prompt=1, prefix=0, media_tokens=number) for number in (0, -1))
    assert int(none.reason) == 0 and int(fewer.reason) == Reason.COUNT and math.isnan(float(fewer.time))


def test_no_more_positions_have_logits_than_the_prompt_has() -> None:
    step = jp.prefill_step(jp.load_model("gpt2"))
    some, all_of_them, more = (step(ROOMY, prompt=100, outputs=outputs) for outputs in (1, 100, 101))
    assert float(some.time) < float(all_of_them.time) and int(all_of_them.reason) == 0
    assert int(more.reason) == Reason.PROMPT and math.isnan(float(more.time))


def test_the_smallest_counts_and_lengths_are_feasible() -> None:
    llama = jp.load_model("llama-3-8b")
    assert int(DECODE(ROOMY, batch=1, context=1, routing_skew=1).reason) == 0
    assert int(jp.prefill_step(llama)(ROOMY, prompt=1, prefix=0).reason) == 0
    assert int(jp.serve_step(llama)(ROOMY, prompt=1, output=1).reason) == 0


def test_a_plain_number_of_python_is_a_count() -> None:
    at = deployment(H100)
    assert [bool(no_count(at, count)) for count in (16.0, 1, 0.5, math.nan, math.inf)] == [
        False,
        False,
        True,
        True,
        True,
    ]
