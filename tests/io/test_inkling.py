"""Inkling at the sizes of its class, counted by transformers 5.24 with torch."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import read_config
from jaxperf.models.config import Attention, Mlp, Moe
from jaxperf.models.parameters import active_parameter_count, kv_bytes_per_token, parameter_count
from tests.io.test_recent_families import PLAIN

INKLING: dict[str, Any] = PLAIN | {
    "architectures": ["InklingForCausalLM"],
    **dict(vocab_size=201024, hidden_size=6144, num_hidden_layers=66, num_attention_heads=64, num_key_value_heads=8),
    **dict(head_dim=128, swa_num_attention_heads=64, swa_num_key_value_heads=16, swa_head_dim=128, d_rel=16),
    **dict(sliding_window_size=512, rel_extent=1024, intermediate_size=24576, moe_intermediate_size=3072),
    **dict(n_routed_experts=256, num_experts_per_tok=6, n_shared_experts=2, conv_kernel_size=4),
}


def test_inkling_counts_as_its_class() -> None:
    """975 B, 41 B of them active; five windowed layers with 16 key and value heads to a full one with 8."""
    config = read_config(INKLING)
    assert parameter_count(config) == 975_340_287_042
    assert active_parameter_count(config) == pytest.approx(41e9, rel=0.002)
    full = Attention(64, 8, 128, rotary=False, qk_norm=True, alibi=True)
    near = Attention(64, 16, 128, window=512, rotary=False, qk_norm=True, alibi=True)
    assert [layer.mixer for layer in config.layers] == ([near] * 5 + [full]) * 11
    assert config.layers[0].ffn == Moe(256, 6, 3072, shared_intermediate=6144, correction_bias=True)
    assert kv_bytes_per_token(config, 2) == (55 * 16 + 11 * 8) * 2 * 128 * 2


def test_first_layers_may_be_dense_and_names_of_the_checkpoint_are_read() -> None:
    config = read_config(INKLING | {"dense_mlp_idx": 2})
    assert parameter_count(config) == 947_025_564_226 and config.layers[1].ffn == Mlp(24576)
    renamed = read_config(INKLING | {"dense_mlp_idx": 2, "intermediate_size": 3072, "dense_intermediate_size": 24576})
    assert renamed.layers == config.layers
    listed = read_config(INKLING | {"local_layer_ids": [1]})
    assert [layer.mixer.window for layer in listed.layers[:3]] == [None, 512, None]


def test_an_unknown_kind_of_layer() -> None:
    with pytest.raises(InputError, match="only hybrid and hybrid_sliding layers are supported"):
        read_config(INKLING | {"layer_types": ["full_attention"] * 66})


INKLING_2: dict[str, Any] = {
    "architectures": ["Inkling2ForCausalLM"],
    **dict(vocab_size=201_024, unpadded_vocab_size=200_058, hidden_size=4608, num_hidden_layers=48),
    **dict(num_attention_heads=48, num_key_value_heads=8, head_dim=128, sliding_window_size=1024, d_rel=16),
    **dict(rel_extent=1024, conv_kernel_size=4, moe_intermediate_size=2304, n_routed_experts=384),
    **dict(num_experts_per_tok=8, max_position_embeddings=1_048_576, tie_word_embeddings=False),
    "torch_dtype": "bfloat16",
}


def test_inkling_2_counts_as_its_class() -> None:
    """593,718,478,848 in transformers 5.24, without the biases that choose experts; its head has 966 rows less."""
    config = read_config(INKLING_2)
    assert parameter_count(config) == 593_718_478_848 + 48 * 384 + 966 * 4608
    assert [layer.mixer.window for layer in config.layers[4:7]] == [1024, None, 1024]
    assert (config.layers[0].norms, config.layers[5].norms) == (2, 4)
    assert "200,058 rows" in config.assumptions[1] and len(config.assumptions) == 2
