"""Times of a step: physical bounds, orderings, and how they compose over layers, devices and formats."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxperf.core.cost import Limiter
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.blocks.launch import flagged
from jaxperf.models.layers import Transformer
from jaxperf.models.parameters import parameter_count
from jaxperf.models.transformer import END_KERNELS
from tests.devices import A100, DEVICES, H100, decode_step, deployment, faster, model, prefill_step

LLAMA_7B, LLAMA_70B, MIXTRAL = model("llama-2-7b"), model("llama-2-70b"), model("mixtral-8x7b")
ROOMY = H100.replace(memory_capacity=4e12)
some = settings(max_examples=20)


def test_a_single_7b_request_on_an_a100_obeys_the_published_lower_bounds() -> None:
    parameters = parameter_count(load_model("llama-2-7b"))
    for level in ("low", "nominal", "high"):
        at = deployment(A100, level=level)
        first, token = prefill_step(at, LLAMA_7B, 1, 2048), decode_step(at, LLAMA_7B, 1, 2048)
        assert float(first.time) >= 2 * parameters * 2048 / 312e12 >= 0.088
        assert float(token.time) >= 13.2e9 / 2.039e12  # all weights but the embedding table
    assert 0.0066 <= float(decode_step(deployment(A100), LLAMA_7B, 1, 2048).time) < 0.015
    assert float(prefill_step(deployment(A100), LLAMA_7B, 1, 2048).time) < 0.2


@some
@given(st.sampled_from(sorted(DEVICES)), st.integers(1, 64), st.integers(1, 4096), st.sampled_from([1, 2, 4, 8]))
def test_no_token_is_faster_than_reading_what_it_must(name: str, batch: int, context: int, tensor: int) -> None:
    device = DEVICES[name].replace(memory_capacity=4e12)
    step = decode_step(deployment(device, tensor=tensor, level="high"), LLAMA_70B, batch, context)
    cache = float(step.memory.kv_cache)
    weights = float(step.memory.weights) - 2 * 32000 * 8192 / tensor
    assert float(step.time) >= (weights + cache) / float(device.memory_bandwidth)
    assert float(step.time) >= float(step.flops) / float(device.peak_flops[3] + device.vector_flops)


@pytest.mark.parametrize("transformer", [LLAMA_7B, MIXTRAL], ids=["dense", "moe"])
@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.long
def test_levels_of_assumptions_are_ordered(transformer: Transformer, tensor: int) -> None:
    for step in (decode_step, prefill_step):
        slow, usual, fast = (
            step(deployment(ROOMY, tensor=tensor, level=level), transformer, 4, 1024)
            for level in ("low", "nominal", "high")
        )
        assert float(slow.time) > float(usual.time) > float(fast.time) > 0.0
        assert float(slow.flops) == float(fast.flops)


def test_narrow_weights_speed_up_a_single_stream_in_the_order_of_their_bytes() -> None:
    times = {
        weights: float(decode_step(deployment(weights=weights), LLAMA_7B, 1, 512).time)
        for weights in ("bf16", "fp8", "int8_wo", "int4")
    }
    assert times["int4"] < times["fp8"] <= times["int8_wo"] < times["bf16"]
    assert times["bf16"] / times["int4"] < 2 / 0.515625


def test_weight_only_formats_do_not_speed_up_a_long_prompt_and_fp8_does() -> None:
    times = {
        weights: float(prefill_step(deployment(weights=weights), LLAMA_7B, 4, 2048).time)
        for weights in ("bf16", "fp8", "int4")
    }
    assert times["fp8"] < 0.8 * times["bf16"]
    assert times["int4"] == pytest.approx(times["bf16"], rel=0.02)


def test_fp8_without_fp8_units_saves_bytes_but_no_arithmetic() -> None:
    for name in ("up_projection", "qkv_projection"):
        wide, narrow = (
            prefill_step(deployment(A100, weights=weights), LLAMA_7B, 1, 4096).kernels[name]
            for weights in ("bf16", "fp8")
        )
        assert float(narrow.compute) == float(wide.compute)
        assert float(narrow.bytes_moved) < float(wide.bytes_moved)


@pytest.mark.long
def test_layers_that_differ_add_up_layer_by_layer() -> None:
    """A hybrid of full and windowed layers takes the mean of the two pure models, weighted by its layers."""
    group = LLAMA_7B.groups[0]

    def hybrid(full: int, windowed: int) -> Transformer:
        narrow = dataclasses.replace(group.mixer, window=as_float(1024))
        return dataclasses.replace(
            LLAMA_7B,
            groups=(
                dataclasses.replace(group, repeats=as_float(full)),
                dataclasses.replace(group, mixer=narrow, repeats=as_float(windowed)),
            ),
        )

    for step in (decode_step, prefill_step):
        mixed, full, windowed = (step(deployment(), hybrid(*layers), 1, 4000) for layers in ((8, 24), (32, 0), (0, 32)))
        np.testing.assert_allclose(mixed.time, 0.25 * full.time + 0.75 * windowed.time, rtol=1e-12)
        plain = step(deployment(), LLAMA_7B, 1, 4000)
        np.testing.assert_allclose(full.time, plain.time, rtol=1e-12)
        assert float(windowed.time) < float(full.time)
        share = 0.25 * full.kernels["attention"].flops + 0.75 * windowed.kernels["attention"].flops
        np.testing.assert_allclose(mixed.kernels["attention"].flops, share, rtol=1e-14)


def test_twice_the_layers_take_twice_the_time_between_the_ends() -> None:
    def body(layers: int) -> float:
        group = dataclasses.replace(LLAMA_7B.groups[0], repeats=as_float(layers))
        step = decode_step(deployment(), dataclasses.replace(LLAMA_7B, groups=(group,)), 8, 1024)
        return float(step.time - step.host) - sum(
            float(step.kernels[name].time) for name in END_KERNELS if name in step.kernels
        )

    assert body(32) == pytest.approx(2 * body(16), rel=1e-12)


def test_one_device_pays_no_collective_and_eight_pay_two_all_reduces_a_layer() -> None:
    one, eight = (decode_step(deployment(ROOMY, tensor=tensor), LLAMA_70B, 16, 1024) for tensor in (1, 8))
    names = ("attention_all_reduce", "ffn_all_reduce", "logits_all_gather", "pipeline_send")
    assert all(float(one.kernels[name].time) == 0.0 for name in names)
    message = 16 * 8192 * 2
    phase, rate = float(ROOMY.launch_latency) + 2 * 3e-6, 0.75 * 450e9  # a kernel's start, flags before and after
    one_shot, two_shot = phase + 7 * message / rate, 2 * phase + 2 * 7 / 8 * message / rate
    for name in names[:2]:
        np.testing.assert_allclose(eight.kernels[name].time, 80 * min(one_shot, two_shot), rtol=1e-12)
    gathered = phase + 7 / 8 * 16 * 32000 * 2 / rate
    np.testing.assert_allclose(eight.kernels["logits_all_gather"].time, gathered, rtol=1e-12)
    assert float(one.time) / 8 < float(eight.time) < float(one.time)


@some
@given(st.integers(1, 64), st.integers(2, 3000), st.sampled_from([1, 4, 8]), st.floats(1.0, 4.0))
def test_a_better_device_is_never_slower(batch: int, length: int, tensor: int, more: float) -> None:
    for step in (decode_step, prefill_step):
        time = float(step(deployment(ROOMY, tensor=tensor), LLAMA_70B, batch, length).time)
        for field in ("memory_bandwidth", "peak_flops", "vector_flops", "link_bandwidth", "network_bandwidth"):
            better = ROOMY.replace(**{field: getattr(ROOMY, field) * more})
            assert float(step(deployment(better, tensor=tensor), LLAMA_70B, batch, length).time) <= time * (1 + 1e-14)


@some
@given(st.integers(-10, 10), st.sampled_from([1, 8]), st.integers(1, 32))
def test_a_world_with_faster_clocks_scales_a_step(exponent: int, tensor: int, batch: int) -> None:
    for transformer in (LLAMA_70B, MIXTRAL):
        base = decode_step(deployment(ROOMY, tensor=tensor, level="high"), transformer, batch, 777)
        scaled = decode_step(
            deployment(faster(ROOMY, 2.0**exponent), tensor=tensor, level="high"), transformer, batch, 777
        )
        assert float(scaled.time) == float(base.time) / 2.0**exponent


@pytest.mark.parametrize("name", sorted(DEVICES))
def test_decode_waits_for_memory_and_a_long_prefill_for_arithmetic(name: str) -> None:
    assert int(decode_step(deployment(DEVICES[name]), LLAMA_7B, 1, 2048).limiter) == Limiter.MEMORY
    assert int(prefill_step(deployment(DEVICES[name]), LLAMA_7B, 8, 2048).limiter) == Limiter.COMPUTE


def test_a_cached_prefix_is_not_computed_again_but_attended_to() -> None:
    fresh, cached, whole = (
        prefill_step(deployment(), LLAMA_7B, 1, prompt, prefix) for prompt, prefix in ((512, 0), (512, 3000), (3512, 0))
    )
    assert float(cached.kernels["up_projection"].time) == float(fresh.kernels["up_projection"].time)
    pairs = 512 * 3000
    extra = float(cached.kernels["attention"].flops - fresh.kernels["attention"].flops)
    assert extra == 4 * 4096 * 32 * pairs
    assert float(fresh.time) < float(cached.time) < float(whole.time)
    assert float(cached.memory.kv_cache) == float(whole.memory.kv_cache)


def test_rings_of_a_torus_start_no_kernel_in_each_step() -> None:
    torus = ROOMY.replace(torus_dimensions=2.0, node_size=256.0)
    at = deployment(torus, tensor=4)
    assert float(flagged(at, at.tensor_fabric).local_latency) == float(torus.link_latency)
    at = deployment(ROOMY, tensor=4)
    assert float(flagged(at, at.tensor_fabric).local_latency) == pytest.approx(
        float(2.0 * ROOMY.link_latency + ROOMY.launch_latency)
    )
