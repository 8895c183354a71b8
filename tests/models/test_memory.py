"""Bytes on the fullest device: weights, KV cache, activations."""

from __future__ import annotations

import dataclasses

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.feasible import Reason
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.cache_elements import recurrent_elements
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer, transformer
from jaxperf.models.memory import MemoryUse, memory_use, weight_bytes
from jaxperf.models.parameters import kv_bytes_per_token, parameter_breakdown, parameter_count, state_bytes
from jaxperf.models.step import prefill_cost
from tests.devices import H100, deployment, model
from tests.models.shipped import one_of_each

compiled = jax.jit(memory_use)
MIXTRAL, LLAMA, SMALL = "mixtral-8x7b", "llama-2-70b", "llama-2-7b"


def use(at: Deployment, transformer: Transformer, sequences: float, length: float, tokens: float = 1) -> MemoryUse:
    return compiled(at, transformer, as_float(sequences), as_float(length), as_float(tokens))


@pytest.mark.parametrize("name", [*one_of_each(), "opt-350m"])
def test_weights_on_one_device_are_all_parameters(name: str) -> None:
    plain = dataclasses.replace(load_model(name), quantization=None)
    found = memory_use(deployment(), transformer(plain), as_float(1), as_float(1), as_float(1)).weights
    assert float(found) == pytest.approx(2 * parameter_count(plain), rel=0.002)


@pytest.mark.parametrize("name", one_of_each())
def test_a_sequence_takes_the_published_bytes_of_cache_and_state(name: str) -> None:
    """Keys and values of every token while windows are not full; states once, those that add up in fp32."""
    described, length = load_model(name), 100
    recurrent = sum(
        recurrent_elements(mixer) for layer in described.layers for mixer in (layer.mixer, layer.beside) if mixer
    )
    cross = sum(2 * layer.cross.kv_heads * layer.cross.head_dim for layer in described.layers if layer.cross)
    found = memory_use(deployment(), model(name), as_float(3), as_float(length), as_float(1), as_float(7)).kv_cache
    kept = length * kv_bytes_per_token(described, 2) + 7 * 2 * cross  # the encoder handed on seven tokens
    assert float(found) == 3 * (kept + state_bytes(described, 2) + 2 * recurrent)


@pytest.mark.parametrize(("weights", "stored"), [("fp8", 1.0), ("int4", 0.515625), ("fp4", 0.5625)])
@pytest.mark.parametrize("name", [SMALL, MIXTRAL, "qwen3-30b-a3b"])
def test_quantization_shrinks_the_matrices_and_leaves_the_tables(name: str, weights: str, stored: float) -> None:
    described = load_model(name)
    parts = parameter_breakdown(described)
    matrices = sum(parts[part] for part in ("attention", "mlp", "experts", "shared_experts"))
    rest = parameter_count(described) - matrices  # the router too
    found = use(deployment(weights=weights), model(name), 1, 1).weights
    assert float(found) == pytest.approx(matrices * stored + rest * 2, rel=1e-5)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tensor_parallelism_divides_weights_and_cache(ranks: int) -> None:
    one, shard = (use(deployment(tensor=tensor), model(LLAMA), 16, 4096) for tensor in (1, ranks))
    norms = 2 * 2 * 8192 * 80  # replicated
    assert float(shard.weights - norms) == pytest.approx(float(one.weights - norms) / ranks, rel=1e-14)
    assert float(shard.kv_cache) == float(one.kv_cache) / ranks


def test_per_layer_tables_are_divided_like_the_token_table() -> None:
    """Gemma 3n: 262,144 rows of 256 for each of 30 layers, two of its five billion parameters."""
    one, shard = (weight_bytes(deployment(H100, tensor=ranks), model("gemma-3n-e2b-text")) for ranks in (1, 2))
    table = 2 * 262144 * 30 * 256
    assert float(shard) == pytest.approx(float(one) / 2, rel=0.03) and float(one) > 2 * table


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    eight, sixteen = (use(deployment(tensor=tensor), model(LLAMA), 16, 4096) for tensor in (8, 16))
    assert float(sixteen.kv_cache) == float(eight.kv_cache)


@pytest.mark.parametrize(("stages", "layers"), [(2, 40), (4, 20), (8, 10), (3, 27), (80, 1)])
def test_the_fullest_stage_has_the_most_layers_and_one_table(stages: int, layers: int) -> None:
    one, stage = (use(deployment(pipeline=pipeline), model(LLAMA), 4, 1000) for pipeline in (1, stages))
    table = 2 * 32000 * 8192
    assert float(stage.weights - table) == pytest.approx(float(one.weights - 2 * table) * layers / 80, rel=1e-14)
    assert float(stage.kv_cache) == pytest.approx(float(one.kv_cache) * layers / 80, rel=1e-14)


def test_experts_are_spread_over_expert_parallel_ranks_and_split_over_the_rest() -> None:
    hidden, width, layers = 4096, 14336, 32
    experts = 2 * layers * 8 * 3 * hidden * width
    for tensor, data, expert in ((8, 1, 8), (8, 1, 4), (1, 8, 8), (2, 4, 2)):
        whole = use(deployment(tensor=tensor, data=1, expert=1), model(MIXTRAL), 8, 1000).weights
        found = use(deployment(tensor=tensor, data=data, expert=expert), model(MIXTRAL), 8, 1000).weights
        dense = float(whole) - experts / tensor
        assert float(found) == pytest.approx(dense + experts / (tensor * data), rel=1e-12)


def test_a_window_caps_the_cache_of_its_layers() -> None:
    full, windowed = model("mistral-7b-v0.2"), model("mistral-7b-v0.1")
    at = deployment()
    assert float(use(at, windowed, 1, 4096).kv_cache) == float(use(at, full, 1, 4096).kv_cache)
    assert float(use(at, windowed, 1, 20_000).kv_cache) == float(use(at, full, 1, 4096).kv_cache)
    group = full.groups[0]
    some = (
        dataclasses.replace(group, repeats=as_float(24)),
        dataclasses.replace(group, mixer=dataclasses.replace(group.mixer, window=as_float(1000)), repeats=as_float(8)),
    )
    hybrid = dataclasses.replace(full, groups=some)
    assert float(use(at, hybrid, 1, 8000).kv_cache) == 2 * 2 * 8 * 128 * (24 * 8000 + 8 * 1000)


def test_activations_are_the_widest_layer_or_the_logits() -> None:
    many = use(deployment(tensor=8), model(LLAMA), 1, 4096, 4096).activations
    assert float(many) == 4096 * (2 * 8192 + 3 * 28672 / 8) * 2
    one = use(deployment(), model("qwen3-0.6b"), 256, 128, 256).activations
    assert float(one) == max(256 * 151936 * 4, 256 * (2 * 1024 + 3 * 3072) * 2)


def test_logits_of_every_position_of_a_prompt_are_in_memory() -> None:
    numbers = (as_float(number) for number in (64, 2048, 0))
    every = prefill_cost(deployment(), model("qwen3-0.6b"), *numbers, outputs=as_float(2048))
    assert float(every.memory.activations) == 64 * 2048 * 151936 * 4
    assert int(every.reason) == Reason.MEMORY


@given(st.integers(1, 512), st.integers(1, 100_000), st.integers(1, 512))
def test_memory_grows_with_sequences_and_lengths_and_adds_up(sequences: int, length: int, more: int) -> None:
    at, llama = deployment(tensor=8), model(LLAMA)
    base, wider, longer = (
        use(at, llama, sequences, length),
        use(at, llama, sequences + more, length),
        use(at, llama, sequences, length + more),
    )
    assert float(base.total) == float(base.weights) + float(base.kv_cache) + float(base.activations)
    assert float(wider.kv_cache) > float(base.kv_cache) and float(longer.kv_cache) > float(base.kv_cache)
    assert float(wider.weights) == float(base.weights)
    assert float(base.usable) == pytest.approx(0.9 * float(H100.memory_capacity), rel=1e-15)
