"""Qwen4-Exp at the sizes of its class, counted by transformers 5.24 with torch; its kernels by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.families.qwen4 import _primes
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.attention import attention_mixer
from jaxperf.models.blocks.phase import Decode, Phase, Prefill
from jaxperf.models.config import Attention, GatedDelta, Indexer, Table
from jaxperf.models.flops import flops_per_token, mixer_flops
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import kv_bytes_per_token, parameter_count
from jaxperf.models.transformer import group_kernels
from tests.devices import H100, deployment
from tests.io.test_recent_families import PLAIN

QWEN4: dict[str, Any] = PLAIN | {
    "architectures": ["Qwen4ExpForCausalLM"],
    **dict(vocab_size=248320, hidden_size=2048, num_hidden_layers=40, num_attention_heads=16, num_key_value_heads=2),
    **dict(head_dim=256, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128),
    **dict(linear_value_head_dim=128, linear_conv_kernel_dim=4, moe_intermediate_size=512, num_experts=512),
    **dict(shared_expert_intermediate_size=512, num_experts_per_tok=10, hc_count=4, hc_lowrank=320),
    **dict(indexer_n_heads=16, indexer_kv_heads=1, indexer_head_dim=256, indexer_budget=2048),
    "indexer_compress_ratio": 16,
}
NGRAMS = dict(ple_layer_ids=[2, 6], ngram_vocab_size_base=1000, attention_bias=True)
CHOOSING = Attention(16, 2, 256, qk_norm=True, output_gate=True, indexer=Indexer(16, 256, 2048, pool=16))
WIDE = 4 * 2048  # elements of all streams of a token


def test_qwen4_counts_as_its_class() -> None:
    config = read_config(QWEN4)
    delta = GatedDelta(16, 32, 128, 128, 4)
    assert parameter_count(config) == 67_410_763_392
    assert [layer.mixer for layer in config.layers] == [delta, delta, delta, CHOOSING] * 10
    assert kv_bytes_per_token(config, 2) == 10 * (2 * 2 * 256 + 256 // 16) * 2


def test_tables_of_ngrams_have_prime_rows() -> None:
    """Two orders of n-grams with eight heads each, in two layers; rows of a layer are padded to 128."""
    config = read_config(QWEN4 | NGRAMS)
    assert parameter_count(config) == 67_457_488_512
    assert _primes(1000, 3) == [1009, 1013, 1019] and _primes(20_000_000, 1) == [20_000_003]
    rows = [sum(_primes(1000, 32)[start : start + 16]) for start in (0, 16)]
    assert config.tables == tuple(Table(f"n-grams {i}", 128 * -(-n // 128), 128) for i, n in enumerate(rows))
    assert config.layers[1].projections[-2:] == ((2048, WIDE), (2048, 2048))


def test_streams_are_gated_by_a_low_rank() -> None:
    """Around both blocks of all layers a projection of 4 x 2048 to 320 and back, and one to 4 weights."""
    config, at = read_config(QWEN4 | {"num_hidden_layers": 4}), deployment(H100)
    arrays = transformer(config)
    kernels = group_kernels(at, as_float(2048), arrays.groups, Decode(as_float(3), as_float(10)))
    assert float(kernels["layer_projections"].flops) == 3 * 4 * 2 * 2 * (2 * WIDE * 320)
    assert float(kernels["ffn_streams_projection"].flops) == 3 * 4 * 2 * WIDE * 4
    assert "ffn_norm" not in kernels
    less = parameter_count(config) - 2 * 248320 * 2048 - (WIDE + 2 * WIDE * 320)
    assert float(group_weight_bytes(at, as_float(2048), arrays.groups)) == pytest.approx(2 * less, rel=1e-4)
    assert flops_per_token(config, 10) < 2 * parameter_count(config)


@pytest.mark.parametrize("phase", [Decode(3, 3200), Prefill(3, 1, 3199)], ids=["decode", "prefill"])
def test_blocks_are_scored_by_their_mean_key_on_every_rank(phase: Phase) -> None:
    mixer, at = attention_mixer(CHOOSING), deployment(H100, tensor=2)
    kernels = mixer.kernels(at, as_float(2048), phase)
    assert float(kernels["indexer"].flops) == 3 * 3200 / 16 * 16 * (2 * 256 + 3)
    assert float(kernels["indexer_projection"].flops) == 3 * 2 * 2048 * 17 * 256
    assert float(kernels["indexer_key_write"].bytes_moved) == 3 * 256 / 16 * 2 * 2
    assert float(mixer.cached_elements(at.layout, as_float(16))) == 16 * 2 * 256 + 256
    assert mixer_flops(CHOOSING, 3200) == 4 * 16 * 256 * 2048 + 2 * 16 * 256 * 200


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"indexer_kv_heads": 2}, "indexer_kv_heads is not 1"),
        ({"indexer_compress_ratio": 7}, "it must be whole blocks of 7 tokens"),
        ({"ple_layer_ids": [41]}, "An item of ple_layer_ids is 41; it must be an integer from 1 to 40"),
        ({"ple_layer_ids": [2], "ple_embed_dim": 100}, "ple_embed_dim is 100; it must be a multiple of the 16 heads"),
    ],
)
def test_mistakes(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(QWEN4 | changes)
