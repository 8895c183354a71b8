"""Cache, state and FLOP of one token against published figures and hand counts."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.models.cache_elements import cache_elements, state_elements
from jaxperf.models.config import (
    Attention,
    GatedDelta,
    Indexer,
    KimiDelta,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mla,
    Mlp,
    Moe,
    ShortConv,
)
from jaxperf.models.flops import active_matrix_parameters, flops_per_token, mixer_flops, tokens_seen
from jaxperf.models.parameters import kv_bytes_per_token, parameter_breakdown, state_bytes

# Bytes of one more token at two bytes an element: layers that attend x elements each x 2.
KV_BYTES = {
    "deepseek-v3": 61 * 576 * 2,  # 70 KB: arXiv:2505.09343, table 1
    "deepseek-v2": 60 * 576 * 2,  # latent of 512 and rotary key of 64: arXiv:2405.04434, section 2.1.4
    "deepseek-v3.2": 61 * (576 + 128) * 2,  # and the key of the indexer
    "kimi-k2": 61 * 576 * 2,
    "kimi-linear-48b-a3b": 7 * 576 * 2,
    "minicpm3-4b": 62 * (256 + 32) * 2,
    "gpt-oss-120b": 36 * 2 * 8 * 64 * 2,
    "gemma-2-27b": 46 * 2 * 16 * 128 * 2,
    "gemma-3n-e4b-text": 20 * 2 * 2 * 256 * 2,  # 15 of 35 layers reuse earlier keys and values
    "hunyuan-large": 32 * 2 * 8 * 80 * 2,  # every other of 64 layers reuses those before it
    "falcon-7b": 32 * 2 * 1 * 64 * 2,
    "starcoder-15b": 40 * 2 * 1 * 128 * 2,
    "jamba-v0.1": 4 * 2 * 8 * 128 * 2,  # 4 GB at 256K tokens: arXiv:2403.19887, table 1
    "nemotron-h-56b": 10 * 2 * 8 * 128 * 2,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "minimax-text-01": 10 * 2 * 8 * 128 * 2,
    "lfm2-1.2b": 6 * 2 * 8 * 64 * 2,
    "falcon-h1-7b": 44 * 2 * 2 * 128 * 2,
    "mamba-2.8b": 0,
    "mamba-codestral-7b": 0,
}

# Bytes of state a sequence holds at two bytes an element: recurrent layers x (state + (taps - 1) x channels) x 2.
STATE_BYTES = {
    "llama-3-8b": 0,
    "mamba-2.8b": 64 * (5120 * 16 + 3 * 5120) * 2,
    "mamba-codestral-7b": 64 * (128 * 64 * 128 + 3 * (8192 + 2 * 8 * 128)) * 2,
    "jamba-v0.1": 28 * (8192 * 16 + 3 * 8192) * 2,
    "qwen3-next-80b-a3b": 36 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128)) * 2,
    "kimi-linear-48b-a3b": 20 * (32 * 128 * 128 + 3 * 3 * 32 * 128) * 2,
    "minimax-text-01": 70 * 64 * 128 * 128 * 2,
    "lfm2-1.2b": 10 * 2 * 2048 * 2,
    "nemotron-h-8b": 24 * (128 * 64 * 128 + 3 * (8192 + 2 * 8 * 128)) * 2,
}


@pytest.mark.parametrize("name", KV_BYTES)
def test_kv_bytes_per_token(name: str) -> None:
    assert kv_bytes_per_token(load_model(name), 2) == KV_BYTES[name]


@pytest.mark.parametrize("name", STATE_BYTES)
def test_state_bytes_of_a_sequence(name: str) -> None:
    config = load_model(name)
    assert state_bytes(config, 2) == STATE_BYTES[name]
    assert state_bytes(config, 4) == 2 * STATE_BYTES[name]


def test_jamba_keeps_4_gigabytes_at_256k_tokens() -> None:
    """arXiv:2403.19887, table 1: 4 GB for Jamba, 32 GB for Mixtral 8x7B, 128 GB for Llama 2 7B."""
    gigabytes = {"jamba-v0.1": 4, "mixtral-8x7b": 32, "llama-2-7b": 128}
    for name, expected in gigabytes.items():
        assert kv_bytes_per_token(load_model(name), 2) * 2**18 == expected * 2**30


def test_published_cache_sizes_of_deepseek_v3_qwen_and_llama() -> None:
    """arXiv:2505.09343, table 1: 70.272, 327.680 and 516.096 KB a token."""
    for name, kilobytes in (("deepseek-v3", 70.272), ("qwen2.5-72b", 327.680), ("llama-3.1-405b", 516.096)):
        assert kv_bytes_per_token(load_model(name), 2) / 1000 == kilobytes


def test_a_layer_that_reuses_the_choice_of_tokens_caches_no_key_of_the_indexer() -> None:
    own, shared = (Mla(4, 7, 8, 6, 2, 5, indexer=Indexer(3, 4, 6, shared=again)) for again in (False, True))
    assert (cache_elements(own), cache_elements(shared)) == (8 + 2 + 4, 8 + 2)


def test_an_encoder_layer_and_cross_attention_remember_nothing_of_the_sequence_written() -> None:
    assert cache_elements(Attention(4, 4, 8, causal=False)) == 0
    base = load_model("gpt2")
    crossed = dataclasses.replace(base.layers[0], cross=Attention(4, 4, 8, causal=False))
    config = dataclasses.replace(base, layers=(crossed,))
    assert kv_bytes_per_token(config, 2) == 2 * 768 * 2


# --- FLOP -------------------------------------------------------------------------------------------------------------


def test_flops_of_llama_3_8b_by_hand() -> None:
    """32 layers of 4096: q and o 4096 x 4096, k and v 4096 x 1024, three of 4096 x 14336; the head 128256 x 4096."""
    matrices = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 128256 * 4096
    config = load_model("llama-3-8b")
    assert active_matrix_parameters(config) == matrices
    assert flops_per_token(config, 1000) == 2 * matrices + 32 * 2 * 32 * (128 + 128) * 1000


def test_flops_of_mixtral_count_two_experts_and_the_router() -> None:
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 3 * 4096 * 14336
    assert active_matrix_parameters(load_model("mixtral-8x7b")) == 32 * layer + 32000 * 4096


def test_flops_of_a_window_stop_growing() -> None:
    config = load_model("mistral-7b-v0.1")
    assert flops_per_token(config, 4095) < flops_per_token(config, 4096) == flops_per_token(config, 32768)


@pytest.mark.parametrize(
    ("mixer", "context", "expected"),
    [
        (Attention(4, 2, 6), 10, 2 * 4 * 12 * 10),
        (Attention(4, 2, 6, value_dim=5), 10, 2 * 4 * 11 * 10),
        (Attention(4, 2, 6, window=3), 10, 2 * 4 * 12 * 3),
        (Attention(4, 2, 6, chunk=4), 10, 2 * 4 * 12 * 2),
        (Attention(4, 2, 6, chunk=4), 12, 2 * 4 * 12 * 4),
        (Mla(4, None, 8, 6, 2, 5), 10, 2 * 4 * 13 * 10),
        (Mla(4, 7, 8, 6, 2, 5, indexer=Indexer(3, 4, 6)), 10, 2 * 4 * 13 * 6 + 2 * 3 * 4 * 10),
        (Mla(4, 7, 8, 6, 2, 5, indexer=Indexer(3, 4, 6, shared=True)), 10, 2 * 4 * 13 * 6),
        (Mamba1(20, 16, 3, 4), 10, 5 * 320 + 2 * 4 * 20),
        (Mamba2(2, 3, 1, 5, 4), 10, 5 * 30 + 2 * 4 * 16),
        (GatedDelta(2, 4, 3, 5, 4), 10, 7 * 4 * 15 + 2 * 4 * 32),
        (KimiDelta(3, 4, 2), 10, 7 * 48 + 2 * 2 * 36),
        (LightningAttention(3, 4), 10, 5 * 48),
        (ShortConv(10, 3), 10, 2 * 3 * 10),
    ],
)
def test_work_on_what_is_remembered_by_hand(mixer: object, context: int, expected: int) -> None:
    assert mixer_flops(mixer, context) == expected  # type: ignore[arg-type]


def test_latent_experts_and_missing_blocks_by_hand() -> None:
    base = load_model("gpt2")
    sparse = Layer(None, Moe(8, 2, 7, gated=False, shared_intermediate=6, shared_gate=True, latent=4), norms=1)
    config = dataclasses.replace(base, hidden=10, embedding_width=10, vocabulary=11, layers=(sparse,))
    assert active_matrix_parameters(config) == 10 * 9 + 2 * 10 * 4 + 2 * (2 * 4 * 7 + 10 * 6) + 110
    crossed = Layer(ShortConv(10, 3), Mlp(5), cross=Attention(1, 1, 4))
    config = dataclasses.replace(config, layers=(crossed, dataclasses.replace(crossed, shared=True)))
    assert active_matrix_parameters(config) == 2 * (4 * 100 + 10 * 1 * 8 + 3 * 10 * 5) + 110


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2-xl", "qwen3-14b", "olmo-2-13b", "command-r-35b", "falcon-40b"])
def test_flops_of_dense_models_are_two_for_each_weight_but_the_vectors(name: str) -> None:
    config = load_model(name)
    parts = parameter_breakdown(config)
    weights = parts["attention"] + parts["mlp"] + config.vocabulary * config.hidden
    assert 0.999 * weights < active_matrix_parameters(config) <= weights


@given(st.integers(1, 2**20), st.integers(1, 4096), st.sampled_from(["window", "chunk"]))
def test_a_query_sees_from_one_token_to_the_limit(context: int, limit: int, kind: str) -> None:
    seen = tokens_seen(dataclasses.replace(Attention(1, 1, 1), **{kind: limit}), context)
    assert 1 <= seen <= min(context, limit)
    assert seen == context if context <= limit else seen == limit or kind == "chunk"


@pytest.mark.parametrize("context", [0, -1, 1.5, True, None, "8"])
def test_bad_context_is_refused(context: object) -> None:
    with pytest.raises(InputError, match="context is"):
        flops_per_token(load_model("gpt2"), context)  # type: ignore[arg-type]


def test_recurrent_layers_do_the_same_work_at_any_length() -> None:
    config = load_model("mamba-2.8b")
    assert flops_per_token(config, 1) == flops_per_token(config, 2**20)
    assert state_elements(Attention(4, 4, 8)) == state_elements(None) == 0
