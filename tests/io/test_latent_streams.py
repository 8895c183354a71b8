"""GLM 5.3 and Hy4 at the sizes of their classes: parameters counted by transformers 5.24 with torch, and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.latent import latent_mixer
from jaxperf.models.blocks.phase import Decode, Phase, Prefill
from jaxperf.models.config import Indexer, KimiDelta, Mla
from jaxperf.models.flops import mixer_flops
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import kv_bytes_per_token, parameter_breakdown, parameter_count
from tests.devices import H100, deployment
from tests.io.test_recent_families import PLAIN

EXPERTS = dict(n_shared_experts=1, num_experts_per_tok=8, n_group=1, topk_group=1, hc_mult=4)
GLM53: dict[str, Any] = PLAIN | {
    "model_type": "glm5_next_text",
    **dict(vocab_size=154880, hidden_size=4096, intermediate_size=12288, moe_intermediate_size=2048, **EXPERTS),
    **dict(num_hidden_layers=45, num_attention_heads=64, n_routed_experts=288, q_lora_rank=1536, kv_lora_rank=512),
    **dict(qk_nope_head_dim=256, qk_rope_head_dim=0, v_head_dim=256, index_kpool=16, index_topk=2048),
    **dict(index_head_dim=128, index_n_heads=32, linear_head_dim=128, linear_num_heads=64, linear_conv_kernel_dim=4),
}
HY4: dict[str, Any] = PLAIN | {
    "architectures": ["HYV4ForCausalLM"],
    **dict(vocab_size=120832, hidden_size=2816, intermediate_size=6912, moe_intermediate_size=768, **EXPERTS),
    **dict(num_hidden_layers=34, num_attention_heads=32, n_routed_experts=256, q_lora_rank=1536, kv_lora_rank=512),
    **dict(qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256, index_topk=2048, index_head_dim=128),
    "index_n_heads": 16,
}
POOLED = Mla(64, 1536, 512, 256, 0, 256, rotary=False, indexer=Indexer(32, 128, 2048, pool=16))


def test_glm_5_3_counts_as_its_class() -> None:
    config = read_config(GLM53)
    assert parameter_count(config) == 313_326_828_862
    delta = KimiDelta(64, 128, 4)
    assert [layer.mixer for layer in config.layers] == [delta, delta, delta, POOLED] * 11 + [delta]
    assert kv_bytes_per_token(config, 2) == 11 * (512 + 128 // 16) * 2


def test_a_checkpoint_of_text_alone_has_the_fields_at_the_top() -> None:
    """As GLM 5.3 Flash does, whose class is that of images and text."""
    flat = read_config(GLM53 | {"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next"})
    assert flat.layers == read_config(GLM53).layers
    assert "the config has no text_config; its own fields were read as Glm5NextForCausalLM." in flat.assumptions
    with pytest.raises(InputError, match='the architecture "Glm5NextForConditionalGeneration" is not supported'):
        read_config({"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next"})


def test_hy4_counts_as_its_class() -> None:
    config = read_config(HY4)
    assert parameter_count(config) == 58_278_201_581
    indexers = [layer.mixer.indexer for layer in config.layers if isinstance(layer.mixer, Mla) and layer.mixer.indexer]
    assert [index for index, one in enumerate(indexers) if not one.shared] == [0, *range(1, 34, 4)]
    larger = dict(hidden_size=6144, intermediate_size=18432, moe_intermediate_size=2048, num_hidden_layers=78)
    large = HY4 | larger | {"num_attention_heads": 64, "q_lora_rank": 2048, "index_n_heads": 32}
    assert parameter_count(read_config(large)) == 769_907_408_797


@pytest.mark.parametrize("fields", [GLM53, HY4], ids=["glm-5.3", "hy4"])
def test_one_rank_holds_all_weights(fields: dict[str, Any]) -> None:
    config = read_config(fields)
    stored = group_weight_bytes(deployment(H100), as_float(config.hidden), transformer(config).groups)
    parts = parameter_breakdown(config)
    layers = parameter_count(config) - parts["embedding"] - parts["output_head"]
    assert float(stored) == pytest.approx(2 * layers, rel=1e-4)


@pytest.mark.parametrize("phase", [Decode(3, 3200), Prefill(3, 1, 3199)], ids=["decode", "prefill"])
def test_a_pool_of_16_tokens_is_scored_and_cached_as_one(phase: Phase) -> None:
    kernels = latent_mixer(POOLED).kernels(deployment(H100), as_float(4096), phase)
    assert float(kernels["indexer"].flops) == 3 * 3200 / 16 * 32 * (2 * 128 + 3)
    assert float(kernels["indexer_key_projection"].flops) == 3 * 2 * 4096 * (2 * 128 + 32)
    assert float(kernels["indexer_key_write"].bytes_moved) == 3 * 128 / 16 * 2 * 2
    assert mixer_flops(POOLED, 3200) == 2 * 64 * 512 * 2048 + 2 * 32 * 128 * 200


def test_a_gate_for_each_element_of_the_output() -> None:
    mixer = Mla(32, 1536, 512, 192, 64, 256, output_gate=True)
    kernels = latent_mixer(mixer).kernels(deployment(H100, tensor=2), as_float(2816), Decode(3, 10))
    assert float(kernels["gate_projection"].flops) == 3 * 2 * 2816 * 16 * 256


def test_mistakes() -> None:
    with pytest.raises(InputError, match=r"Indexer\.top_k is 2048; it must be whole blocks of 7 tokens"):
        read_config(GLM53 | {"index_kpool": 7})
    with pytest.raises(InputError, match="a layer has one of them"):
        Mla(4, None, 8, 6, 2, 5, head_gate=True, output_gate=True)
