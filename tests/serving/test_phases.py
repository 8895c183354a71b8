"""A request's two phases: the throughput identity, lengths of a whole life, infeasible points."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.feasible import Reason
from jaxperf.core.numerics import as_float
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.serving.phases import ServingCost, serving_cost
from tests.devices import A100, H100, QUICK, close, decode_step, deployment, model, prefill_step, single

compiled = jax.jit(serving_cost, compiler_options=QUICK)
LLAMA, MIXTRAL = model("llama-3.1-8b"), model("mixtral-8x7b")
ROOMY = H100.replace(memory_capacity=4e12)
some = settings(max_examples=20)
counts = st.sampled_from([1, 2, 4, 8])


def serve(at: Deployment, transformer: Transformer, batch: float, prompt: float, output: float) -> ServingCost:
    return compiled(at, transformer, as_float(batch), as_float(prompt), as_float(output))


@some
@given(counts, st.sampled_from([1, 2, 3]), counts, st.integers(8, 64), st.integers(1, 4096), st.integers(1, 1024))
def test_throughput_is_tokens_over_the_prefills_and_decodes_of_a_generation(
    tensor: int, pipeline: int, data: int, batch: int, prompt: int, output: int
) -> None:
    at = deployment(ROOMY, tensor=tensor, pipeline=pipeline, data=data)
    cost = serve(at, LLAMA, batch, prompt, output)
    assert int(cost.reason) == 0
    prefill = prefill_step(at, LLAMA, min(batch, data), prompt)
    decode = decode_step(at, LLAMA, batch, prompt + output / 2)
    np.testing.assert_allclose(cost.ttft, prefill.time, rtol=1e-13)
    np.testing.assert_allclose(cost.tpot, decode.time, rtol=1e-13)
    generation = -(-batch // data) * float(prefill.stage_time) + (output - 1) * float(decode.time)
    np.testing.assert_allclose(cost.tokens_per_second * generation, batch * output, rtol=1e-12)


def test_a_single_output_token_comes_from_the_prefill() -> None:
    cost = serve(deployment(), LLAMA, 4, 1000, 1)
    np.testing.assert_allclose(cost.tokens_per_second, 1 / cost.ttft, rtol=1e-13)


def test_memory_is_that_of_requests_at_their_full_length() -> None:
    cost = serve(deployment(), LLAMA, 16, 1000, 500)
    assert float(cost.memory.kv_cache) == 16 * 1500 * 2 * 8 * 128 * 32 * 2
    assert float(cost.memory.kv_cache) > float(cost.decode.memory.kv_cache)


@pytest.mark.parametrize(
    ("reason", "layout", "batch", "prompt", "output"),
    [
        (Reason.CONTEXT, {}, 1, 131_000, 73),
        (Reason.MEMORY, {}, 512, 4096, 4096),
        (Reason.DATA_PARALLEL, {"data": 8}, 7, 128, 128),
        (Reason.TENSOR_PARALLEL, {"tensor": 3}, 1, 128, 128),
    ],
)
def test_what_cannot_run_has_no_times_but_a_reason(
    reason: Reason, layout: dict[str, float], batch: int, prompt: int, output: int
) -> None:
    cost = serve(deployment(**layout), LLAMA, batch, prompt, output)
    assert Reason(int(cost.reason)) == reason
    assert math.isnan(float(cost.ttft)) and math.isnan(float(cost.tpot)) and math.isnan(float(cost.tokens_per_second))
    assert math.isfinite(float(cost.memory.total))


def test_a_request_may_fit_at_first_and_not_at_its_full_length() -> None:
    cost = serve(deployment(A100), LLAMA, 128, 2048, 4096)
    assert int(cost.prefill.reason) == 0 and Reason(int(cost.reason)) == Reason.MEMORY
    assert not math.isnan(float(cost.prefill.time)) and math.isnan(float(cost.ttft))


def test_more_concurrent_requests_raise_throughput_and_slow_each_token() -> None:
    costs = [serve(deployment(ROOMY), LLAMA, batch, 1024, 256) for batch in (1, 4, 16, 64)]
    rates = [float(cost.tokens_per_second) for cost in costs]
    waits = [float(cost.tpot) for cost in costs]
    assert rates == sorted(rates) and waits == sorted(waits)
    assert rates[1] > 3 * rates[0]
    assert len({float(cost.ttft) for cost in costs}) == 1  # a prefill takes one prompt at a time


@pytest.mark.long
@pytest.mark.parametrize(
    ("transformer", "layout"),
    [(LLAMA, {}), (LLAMA, {"tensor": 4, "pipeline": 2}), (MIXTRAL, {"data": 8, "expert": 8})],
    ids=["dense", "tensor and pipeline", "experts"],
)
def test_single_precision_agrees_with_double(transformer: Transformer, layout: dict[str, float]) -> None:
    arguments = (deployment(ROOMY, **layout), transformer, as_float(16), as_float(1000), as_float(301))
    double = compiled(*arguments)
    with jax.enable_x64(False):
        narrow = compiled(*single(arguments))
    assert all(leaf.dtype in (np.float32, np.int32) for leaf in jax.tree.leaves(narrow))
    assert close(narrow, double, 1e-5)


def test_every_layout_of_a_sweep_gives_the_same_cost() -> None:
    at = deployment(ROOMY)
    batch, output = as_float([1.0, 7.0, 64.0]), as_float([1.0, 300.0])
    inner = jax.vmap(serving_cost, (None, None, None, None, 0))
    grid = jax.jit(jax.vmap(inner, (None, None, 0, None, None)))(at, LLAMA, batch, as_float(999), output)
    points = [serve(at, LLAMA, float(b), 999, float(o)) for b in batch for o in output]
    assert close(grid, jax.tree.map(lambda *leaves: np.asarray(leaves).reshape(3, 2), *points))
