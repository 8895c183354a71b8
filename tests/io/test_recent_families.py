"""Step-3 and 3.5, Mistral 4 and others of 2025 and 2026 at their published sizes, and what is refused of them."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.models.config import (
    Attention,
    KimiDelta,
    LightningAttention,
    Mla,
    Mlp,
    ModelConfig,
    Moe,
)
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import (
    active_parameter_count,
    kv_bytes_per_token,
    mtp_parameter_count,
    parameter_breakdown,
    parameter_count,
)
from tests.devices import H100, deployment

PLAIN: dict[str, Any] = {"tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": 65536}


def numbers(first: int, last: int) -> str:
    return ",".join(str(index) for index in range(first, last + 1))


STEP3 = PLAIN | {
    "architectures": ["Step3TextForCausalLM"],
    **dict(hidden_size=7168, intermediate_size=18432, num_hidden_layers=61, vocab_size=128815, head_dim=256),
    **dict(num_attention_heads=64, num_attention_groups=1, share_q_dim=2048, share_expert_dim=5120),
    **dict(moe_num_experts=48, moe_top_k=3, moe_intermediate_size=5120, moe_layers_enum=numbers(4, 59)),
}
WINDOWED = {
    "attention_type": "sliding_attention",
    "num_attention_heads": 96,
    "num_attention_groups": 8,
    "head_dim": 128,
}
STEP35 = PLAIN | {
    "architectures": ["Step3p5ForCausalLM"],
    **dict(hidden_size=4096, intermediate_size=11264, num_hidden_layers=45, vocab_size=128896, head_dim=128),
    **dict(num_attention_heads=64, num_attention_groups=8, sliding_window=512, share_expert_dim=1280),
    **dict(moe_num_experts=288, moe_top_k=8, moe_intermediate_size=1280, moe_layers_enum=numbers(3, 44)),
    **dict(use_head_wise_attn_gate=True, attention_other_setting=WINDOWED, num_nextn_predict_layers=3),
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 12,
}
MISTRAL4 = PLAIN | {
    "architectures": ["Mistral4ForCausalLM"],
    **dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, vocab_size=131072, n_group=1, topk_group=1),
    **dict(num_attention_heads=32, q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=64),
    **dict(v_head_dim=128, n_routed_experts=128, num_experts_per_tok=4, moe_intermediate_size=2048, n_shared_experts=1),
    "first_k_dense_replace": 0,
}

RING = PLAIN | {
    "architectures": ["BailingMoeLinearV2ForCausalLM"],
    **dict(hidden_size=2048, intermediate_size=5120, num_hidden_layers=20, vocab_size=157184, head_dim=128),
    **dict(num_attention_heads=16, num_key_value_heads=4, layer_group_size=5, first_k_dense_replace=1),
    **dict(num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512, num_shared_experts=1),
    **dict(n_group=8, topk_group=4, use_qk_norm=True),
}
RING_FLASH = RING | {
    **dict(hidden_size=4096, intermediate_size=9216, num_hidden_layers=32, num_attention_heads=32),
    **dict(layer_group_size=8, moe_intermediate_size=1024),
}
LING25 = RING | {
    "architectures": ["BailingMoeV2_5ForCausalLM"],
    **dict(hidden_size=8192, intermediate_size=18432, num_hidden_layers=80, num_attention_heads=64),
    **dict(layer_group_size=8, moe_intermediate_size=2048, first_k_dense_replace=4, q_lora_rank=1536),
    **dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
}
LING26_FLASH = LING25 | {
    **dict(hidden_size=4096, intermediate_size=9216, num_hidden_layers=32, num_attention_heads=32),
    **dict(moe_intermediate_size=1024, first_k_dense_replace=1),
}
LING3 = LING26_FLASH | {
    "architectures": ["BailingMoeV3ForCausalLM"],
    **dict(hidden_size=2560, intermediate_size=6144, num_hidden_layers=42, layer_group_size=6, q_lora_rank=None),
    **dict(num_experts=512, moe_intermediate_size=768, first_k_dense_replace=2, short_conv_kernel_size=4),
}

# (billions, tolerance, billions that a token uses beside the token table, tolerance, KV bytes of a token, source)
SIZES = {
    "Step-3": (STEP3, 316.0, 0.002, 38.0, 0.01, 61 * 2 * 256 * 2, "github.com/stepfun-ai/Step3: 316 B, 38 active"),
    "Step-3.5-Flash": (STEP35, 196.81, 0.001, 11.4, 0.01, 45 * 2 * 8 * 128 * 2, "its card: 196.81 B, 11 active"),
    "Mistral Small 4": (MISTRAL4, 119.0, 0.001, 6.1, 0.02, 36 * 320 * 2, "mistral.ai: 119 B, 6 without tables"),
}


def test_ring_linear_and_ling_2_5_have_their_published_sizes() -> None:
    """Ring-linear 2.0 (arXiv:2510.19338): 16 and 104 B, 957 M and 6.1 B active without tables; Ling-2.5-1T: 63 B
    active with them, and one layer of latent attention in eight."""
    mini, flash, ling = (read_config(each) for each in (RING, RING_FLASH, LING25))
    for model, total, active in ((mini, 16.4, 0.957), (flash, 104.0, 6.1)):
        tables = 2 * parameter_breakdown(model)["embedding"]
        assert parameter_count(model) == pytest.approx(total * 1e9, rel=0.002)
        assert active_parameter_count(model) - tables == pytest.approx(active * 1e9, rel=0.01)
    assert active_parameter_count(ling) == pytest.approx(63e9, rel=0.01)
    assert parameter_count(ling) == pytest.approx(1e12, rel=0.015)
    linear = LightningAttention(16, 128, rotary=True, qk_norm=True)
    assert [layer.mixer == linear for layer in mini.layers[:6]] == [True] * 4 + [False, True]
    assert mini.layers[4].mixer == Attention(16, 4, 128, qk_norm=True)
    assert [isinstance(layer.mixer, Mla) for layer in ling.layers] == ([False] * 7 + [True]) * 10
    assert kv_bytes_per_token(ling, 2) == 10 * 576 * 2
    rest = read_config(RING | {"num_hidden_layers": 22, "num_nextn_predict_layers": 1})
    assert [isinstance(layer.mixer, Attention) for layer in rest.layers[19:]] == [True] * 3
    assert rest.mtp_layers == (rest.layers[-1],)


ERNIE_VL = PLAIN | {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
    **dict(hidden_size=2560, intermediate_size=12288, num_hidden_layers=28, vocab_size=103424, head_dim=128),
    **dict(num_attention_heads=20, num_key_value_heads=4, moe_k=6, moe_num_shared_experts=2, spatial_conv_size=2),
    **dict(moe_num_experts=[64, 64], moe_intermediate_size=[1536, 512], moe_layer_start_index=[1, 1]),
    **dict(moe_layer_end_index=[27, 27], moe_layer_interval=1, tie_word_embeddings=True),
    "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "patch_size": 14}
    | {"hidden_size": 1280, "spatial_merge_size": 2},
}


def test_ling_2_6_and_3_have_their_sizes() -> None:
    """Ling-2.6-flash: 104 B, 7.4 active (its card); Ling 3.0 Flash: 124,414,211,552 as transformers 5.24 counts it."""
    flash, third = read_config(LING26_FLASH), read_config(LING3)
    assert parameter_count(flash) == pytest.approx(104e9, rel=0.003)
    assert active_parameter_count(flash) == pytest.approx(7.4e9, rel=0.01)
    assert parameter_count(third) == 124_414_211_552
    delta, latent = KimiDelta(32, 128, 4, full=True), Mla(32, None, 512, 128, 64, 128, head_gate=True)
    assert [layer.mixer for layer in third.layers] == ([delta] * 5 + [latent]) * 7
    groups = transformer(third).groups
    stored = float(group_weight_bytes(deployment(H100), as_float(2560), groups))
    tables = 2 * parameter_breakdown(third)["embedding"]
    assert stored == pytest.approx(2 * (parameter_count(third) - tables), rel=1e-4)


def test_ernie_4_5_vl_stores_the_experts_of_images_which_no_text_visits() -> None:
    """ERNIE-4.5-VL-28B-A3B: 29,399,294,336 parameters as transformers 5.24 counts its class; 3 B are active."""
    model = read_config(ERNIE_VL)
    text = read_config(
        ERNIE_VL
        | {"architectures": ["Ernie4_5_MoeForCausalLM"], "moe_num_experts": 64, "moe_intermediate_size": 1536}
        | {"moe_layer_start_index": 1, "moe_layer_end_index": 27}
    )
    images = 27 * 64 * (3 * 2560 * 512 + 2560 + 1)
    assert parameter_count(model) == 29_399_294_336
    assert parameter_count(model) - parameter_count(text) - parameter_breakdown(model)["encoders"] == images
    assert active_parameter_count(text) == pytest.approx(3.35e9, rel=0.01)
    assert active_parameter_count(model) - active_parameter_count(text) == parameter_breakdown(model)["encoders"]
    (note,) = model.assumptions
    assert "none visits them" in note and text.assumptions == ()
    at = deployment(H100)
    groups = [transformer(each).groups for each in (model, text)]
    stored = [float(group_weight_bytes(at, as_float(2560), each)) for each in groups]
    assert stored[0] - stored[1] == pytest.approx(2 * images)


def test_phi_4_multimodal_is_phi_4_mini_with_towers_left_out() -> None:
    sizes = dict(hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, vocab_size=200064)
    heads = dict(num_attention_heads=24, num_key_value_heads=8, tie_word_embeddings=True, sliding_window=262144)
    model = read_config(PLAIN | sizes | heads | {"architectures": ["Phi4MMForCausalLM"]})
    mini = load_model("phi-4-mini")
    assert parameter_count(model) == parameter_count(mini) and model.layers == mini.layers
    assert "adapters (LoRA) are not described" in model.assumptions[-1]


def without_table(model: ModelConfig) -> int:
    return active_parameter_count(model) - parameter_breakdown(model)["embedding"]


@pytest.mark.parametrize("name", SIZES)
def test_published_sizes(name: str) -> None:
    fields, total, close, active, closer, cache, _source = SIZES[name]
    model = read_config(fields)
    assert parameter_count(model) == pytest.approx(total * 1e9, rel=close)
    assert without_table(model) == pytest.approx(active * 1e9, rel=closer)
    assert kv_bytes_per_token(model, 2) == cache
    assert all("num_nextn_predict_layers" in note for note in model.assumptions)


def test_step_3_compresses_its_queries() -> None:
    """Multi-matrix factorization attention (arXiv:2507.19427): dense are the first four layers and the last."""
    model = read_config(STEP3)
    assert model.layers[0].mixer == Attention(64, 1, 256, q_rank=2048)
    assert [index for index, layer in enumerate(model.layers) if isinstance(layer.ffn, Mlp)] == [0, 1, 2, 3, 60]
    text = read_config(
        {"architectures": ["Step3VLForConditionalGeneration"], "text_config": STEP3 | {"model_type": "step3_text"}}
    )
    assert text.layers == model.layers and "only its text_config is described" in text.assumptions[0]


def test_step_3_5_has_more_heads_in_windows_and_dense_layers_that_predict() -> None:
    """Step-3.5-Flash: 0.81 B beside the 196 in three layers that predict further tokens."""
    model = read_config(STEP35)
    full, windowed = model.layers[0].mixer, model.layers[1].mixer
    assert full == Attention(64, 8, 128, qk_norm=True, head_gate=True)
    assert windowed == Attention(96, 8, 128, window=512, qk_norm=True, head_gate=True)
    assert [layer.mixer for layer in model.layers] == ([full, windowed, windowed, windowed] * 12)[:45]
    assert len(model.mtp_layers) == 3 and model.mtp_layers[0].ffn == Mlp(11264)
    assert mtp_parameter_count(model) == pytest.approx(0.81e9, rel=0.05)
    moe = model.layers[3].ffn
    assert isinstance(moe, Moe) and moe.correction_bias and moe.shared_intermediate == 1280


def test_mistral_4_is_latent_with_experts_in_each_layer() -> None:
    model = read_config(MISTRAL4)
    assert {layer.mixer for layer in model.layers} == {Mla(32, 1024, 256, 64, 64, 128)}
    assert all(isinstance(layer.ffn, Moe) and not layer.ffn.correction_bias for layer in model.layers)
    inner = {key: value for key, value in MISTRAL4.items() if key != "architectures"} | {"model_type": "mistral4"}
    wrapped = read_config({"architectures": ["Mistral3ForConditionalGeneration"], "text_config": inner})
    assert wrapped.layers == model.layers and len(wrapped.encoders) == 1


SMALL = PLAIN | {
    **dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=100, head_dim=16),
    **dict(
        num_attention_heads=4, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
}


def test_bitnet_has_norms_inside_its_blocks() -> None:
    """BitNet-b1.58-2B-4T, 2.4 B: 2,741,155,840 with the defaults of its class, as transformers 5.24 counts them."""
    sizes = dict(hidden_size=2560, intermediate_size=6912, num_hidden_layers=30, vocab_size=128256)
    heads = dict(num_attention_heads=20, num_key_value_heads=5, tie_word_embeddings=False)
    model = read_config(PLAIN | sizes | heads | {"architectures": ["BitNetForCausalLM"]})
    assert parameter_count(model) == 2_741_155_840
    assert parameter_breakdown(model)["other"] == 30 * (2560 + 6912)


def test_the_text_of_a_thinker_is_read() -> None:
    """Qwen3-Omni wraps its thinker, which wraps its language model."""
    inner = {key: value for key, value in SMALL.items()} | {"model_type": "qwen3_omni_moe_text"}
    outer = {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], "thinker_config": {"text_config": inner}}
    model = read_config(outer)
    assert model.architecture == "Qwen3MoeForCausalLM" and "only its text_config" in model.assumptions[0]


def test_another_spelling_of_the_tie() -> None:
    tied = {key: value for key, value in SMALL.items() if key != "tie_word_embeddings"} | {"tie_embedding": True}
    model = read_config(tied | {"architectures": ["LlamaForCausalLM"]})
    assert model.tied_embeddings and model.assumptions == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (STEP35 | {"layer_types": ["full_attention"]}, "layer_types must have full_attention or sliding_attention"),
        (STEP35 | {"moe_layers_enum": "3,45"}, "An item of moe_layers_enum is 45"),
        (STEP35 | {"moe_layers_enum": "3-44"}, "it must list layers"),
        (
            {"architectures": ["R"], "text_config": {"model_type": "phi3small"}},
            "its block-sparse attention is not among",
        ),
        (RING | {"use_qkv_bias": True}, "linear attention is described without biases only"),
        (STEP35 | {"attention_other_setting": 96}, "attention_other_setting is 96; it must be an object"),
    ],
)
def test_mistakes(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(fields)


@pytest.mark.parametrize(("kind", "language"), [("qwen3_vl_text", "Qwen3"), ("granite4_vision_text", "Granite")])
def test_language_parts_that_are_named_after_their_wrapper(kind: str, language: str) -> None:
    text = {"model_type": kind, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes = {"num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 1000, "head_dim": 16}
    config = read_config({"architectures": ["UnknownForConditionalGeneration"], "text_config": text | sizes})
    assert config.architecture == f"{language}ForCausalLM"
