"""Ling, MiMo, Nemotron models found by Puzzle and others, at their published sizes; what is refused of them."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.models.config import Attention, Layer, Mlp, ModelConfig, Moe
from jaxperf.models.parameters import (
    active_parameter_count,
    kv_bytes_per_token,
    mlp_parameters,
    mtp_parameter_count,
    parameter_count,
)

PLAIN: dict[str, Any] = {"tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": 32768}

# Query heads to a key and value head (- without attention), ffn_mult, layers in a row: the block_configs of
# nvidia/Llama-3_3-Nemotron-Super-49B-v1, as in llama_nemotron_config.py of NeMo 2.4.0.
SUPER_49B = (
    "8 2.625 1, 8 5.25 5, - 2.625 2, 8 5.25 3, - 3.28125 1, 8 5.25 30, - 1.3125 1, - 2.625 2, - 1.3125 1, - 5.25 1, "
    "- 1.3125 1, - 2.625 1, - 1.3125 3, 8 5.25 1, - 1.3125 1, - 1.0 2, - 1.3125 1, - 1.0 3, - 1.3125 2, - 0.5 2, "
    "- 1.0 2, - 0.5 2, - 1.0 1, - 0.5 2, 8 5.25 9"
)


def block(group: int | None, factor: float | None) -> dict[str, Any]:
    attention = {"n_heads_in_group": group, "no_op": group is None, "replace_with_linear": False, "window_length": None}
    return {"attention": attention, "ffn": {"ffn_mult": factor, "no_op": factor is None, "replace_with_linear": False}}


def blocks(rows: str) -> list[dict[str, Any]]:
    parts = [row.split() for row in rows.split(", ")]
    return [block(None if g == "-" else int(g), float(f)) for g, f, times in parts for _ in range(int(times))]


def nemotron(listed: Any, **changes: Any) -> ModelConfig:
    sizes = {"hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": None, "vocab_size": 128256}
    more = {"num_hidden_layers": len(listed), "block_configs": listed, "attention_bias": False, "mlp_bias": False}
    return read_config(
        PLAIN | {"architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas"} | sizes | more | changes
    )


def test_nemotron_super_has_its_published_size_and_a_cache_in_the_layers_that_attend_only() -> None:
    model = nemotron(blocks(SUPER_49B))
    assert parameter_count(model) == 49_867_145_216
    attends = [layer.mixer for layer in model.layers if layer.mixer is not None]
    assert len(model.layers) == 80 and len(attends) == 49
    assert kv_bytes_per_token(model, 2) == 49 * 2 * 8 * 128 * 2
    assert all(layer.norms == (1 if layer.mixer is None else 2) for layer in model.layers)
    assert model.layers[0].ffn == Mlp(14336) and model.layers[1].ffn == Mlp(28672)  # 2.625 and 5.25 of 8,192


def test_a_layer_that_does_nothing_is_left_out_and_said() -> None:
    model = nemotron([block(8, 1.0), block(None, None), block(None, 1.0), block(16, None)])
    assert len(model.layers) == 3 and model.layers[2].mixer == Attention(64, 4, 128)
    assert "1 of the 4 layers do nothing (no_op) and are left out." in model.assumptions


OPENELM = PLAIN | {
    "architectures": ["OpenELMForCausalLM"],
    **dict(model_dim=1280, num_transformer_layers=16, head_dim=64, vocab_size=32000, max_context_length=2048),
    **dict(num_query_heads=[12] * 5 + [16] * 7 + [20] * 4, num_kv_heads=[3] * 5 + [4] * 7 + [5] * 4),
    "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
    **dict(ffn_dim_divisor=256, ffn_with_glu=True, normalize_qk_projections=True, share_input_output_layers=True),
}


def test_openelm_layers_grow() -> None:
    """OpenELM 270M has 271.5 M parameters (0.27 B in arXiv:2404.14619)."""
    model = read_config(OPENELM)
    assert parameter_count(model) == 271_527_168 and model.max_context == 2048 and model.tied_embeddings
    assert [layer.ffn.intermediate for layer in model.layers if isinstance(layer.ffn, Mlp)][:4] == [
        768,
        1024,
        1280,
        1536,
    ]
    assert model.layers[0].mixer == Attention(12, 3, 64, qk_norm=True)
    for changes, said in (
        ({"num_kv_heads": None}, "must list the heads of each layer"),
        ({"ffn_multipliers": [0.5]}, "ffn_multipliers must list 16 numbers"),
        ({"ffn_multipliers": [0.5] * 15 + [-1]}, "ffn_multipliers contains -1"),
    ):
        with pytest.raises(InputError, match=said):
            read_config(OPENELM | changes)


def test_a_matrix_in_the_place_of_a_block_has_its_weights_and_no_cache() -> None:
    """Nemotron 51B: one of 8192 x 8192, which two of half its size stand for."""
    matrix = {"replace_with_linear": True, "no_op": False}
    model = nemotron([block(8, 1.0) | {"attention": matrix}, block(8, 1.0) | {"ffn": matrix}, block(8, 1.0)])
    replaced, ffn, mixer = Mlp(4096, gated=False), Mlp(5632), Attention(64, 8, 128)
    assert model.layers == (
        Layer(None, replaced, norms=1),
        Layer(None, ffn, norms=1),
        Layer(mixer, replaced),
        Layer(mixer, ffn),
    )
    assert mlp_parameters(replaced, 8192) == 8192**2 and kv_bytes_per_token(model, 2) == 2 * 2 * 8 * 128 * 2
    assert model.assumptions[-1].startswith("A matrix in the place of a block (replace_with_linear) is timed as two")
    assert not any("replace_with_linear" in line for line in nemotron([block(8, 1.0)]).assumptions)


@pytest.mark.parametrize(
    ("listed", "changes", "said"),
    [
        ([block(8, 1.0)], {"num_hidden_layers": 2}, "must be a list of 2 objects"),
        ([3], {}, r"block_configs\[0\] is 3; it must be an object"),
        ([block(7, 1.0)], {}, r"block_configs\[0\]: n_heads_in_group is 7; it must divide the 64"),
        ([block(8, -1.0)], {}, r"block_configs\[0\]: ffn_mult is -1.0; it must be a number above 0"),
        ([block(8, 1e300)], {}, "must be a number above 0"),
        ([{"attention": {"no_op": True}, "ffn": {"sparsify": [0.5]}}], {}, "blocks with zeros among their weights"),
        (
            [{"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}}],
            {"hidden_size": 8191},
            "replace_with_linear needs an even hidden_size",
        ),
        ([block(None, None)], {}, "has no layer with attention or a feed-forward block"),
        ([{"attention": 4}], {}, "attention is 4"),
    ],
)
def test_what_is_refused_of_nemotron(listed: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        nemotron(listed, **changes)


LING = PLAIN | {
    "architectures": ["BailingMoeV2ForCausalLM"],
    "model_type": "bailing_moe",
    **dict(hidden_size=2048, intermediate_size=5120, num_hidden_layers=20, vocab_size=157184, head_dim=128),
    **dict(num_attention_heads=16, num_key_value_heads=4, moe_intermediate_size=512, num_experts=256),
    **dict(num_experts_per_tok=8, num_shared_experts=1, n_group=8, topk_group=4, first_k_dense_replace=1),
    **dict(use_qk_norm=True, use_bias=False, use_qkv_bias=False),
}


def test_ling_has_its_published_size() -> None:
    """Ling-mini-2.0: 16.26 B, of which a token uses 1.43 (its head and token table included)."""
    model = read_config(LING)
    assert parameter_count(model) == pytest.approx(16.26e9, rel=1e-3)
    assert active_parameter_count(model) == pytest.approx(1.43e9, rel=5e-3) and not model.assumptions
    moe = model.layers[1].ffn
    assert isinstance(moe, Moe) and moe.correction_bias and (moe.groups, moe.groups_per_token) == (8, 4)


def test_first_ling_has_no_correction_and_shared_experts_of_their_own_width() -> None:
    wide = {
        "architectures": ["BailingMoeForCausalLM"],
        "num_shared_experts": 2,
        "moe_shared_expert_intermediate_size": 640,
    }
    moe = read_config(LING | wide).layers[1].ffn
    assert isinstance(moe, Moe) and moe.shared_intermediate == 1280 and not moe.correction_bias


def test_mimo_has_its_published_size_without_the_layer_that_predicts() -> None:
    sizes = dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=36, vocab_size=151680, head_dim=128)
    more = dict(num_attention_heads=32, num_key_value_heads=8, num_nextn_predict_layers=1, attention_bias=True)
    model = read_config(PLAIN | {"architectures": ["MiMoForCausalLM"], "model_type": "mimo"} | sizes | more)
    assert parameter_count(model) + mtp_parameter_count(model) == pytest.approx(7.83e9, rel=1e-3)


MIMO_V2 = PLAIN | {
    "architectures": ["MiMoV2FlashForCausalLM"],
    "model_type": "mimo_v2_flash",
    **dict(hidden_size=4096, intermediate_size=16384, num_hidden_layers=48, vocab_size=152576, head_dim=192),
    **dict(v_head_dim=128, num_attention_heads=64, num_key_value_heads=4, sliding_window=128),
    **dict(n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048, n_shared_experts=None),
}
OWN = {"hybrid_layer_pattern": [0, *[1] * 4, 0, *([1] * 5 + [0]) * 7], "moe_layer_freq": [0, *[1] * 47]}


def test_mimo_v2_flash_has_its_published_size() -> None:
    """309 B, of which a token uses 15; of 48 layers 9 attend to everything."""
    model = read_config(MIMO_V2 | OWN | {"swa_num_key_value_heads": 8})
    assert parameter_count(model) == pytest.approx(309e9, rel=2e-3)
    assert active_parameter_count(model) == pytest.approx(15.4e9, rel=5e-3)
    full = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention) and layer.mixer.window is None]
    assert len(full) == 9 and full[0] == Attention(64, 4, 192, value_dim=128)
    assert model.layers[1].mixer == Attention(64, 8, 192, value_dim=128, window=128, sinks=True)
    types = ["sliding_attention" if each else "full_attention" for each in OWN["hybrid_layer_pattern"]]
    kinds = ["sparse" if each else "dense" for each in OWN["moe_layer_freq"]]
    assert read_config(MIMO_V2 | {"layer_types": types, "mlp_layer_types": kinds}).layers == model.layers
    guessed = read_config(MIMO_V2)
    assert guessed.layers == model.layers and len(guessed.assumptions) == 2


def test_qwen_3_5_predicts_with_a_layer_of_full_attention() -> None:
    """Qwen3.5-27B: 26.90 B of text, and 0.42 B beside them in the 15 tensors under "mtp."."""
    sizes = dict(hidden_size=5120, intermediate_size=17408, num_hidden_layers=64, vocab_size=248320, head_dim=256)
    heads = dict(num_attention_heads=24, num_key_value_heads=4, linear_num_value_heads=48, mtp_num_hidden_layers=1)
    model = read_config(PLAIN | {"architectures": ["Qwen3_5ForCausalLM"]} | sizes | heads)
    assert parameter_count(model) == pytest.approx(26.90e9, rel=1e-3)
    assert mtp_parameter_count(model) == pytest.approx(0.425e9, rel=0.01)
    assert model.mtp_layers == (model.layers[3],) and isinstance(model.layers[3].mixer, Attention)
    assert any(note.startswith("mtp_num_hidden_layers is 1") for note in model.assumptions)


def test_cwm_and_the_spelling_of_k_exaone() -> None:
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, vocab_size=100, head_dim=16)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, sliding_window=8)
    cwm = read_config(PLAIN | {"architectures": ["CwmForCausalLM"]} | sizes | heads)
    assert [layer.mixer.window for layer in cwm.layers] == [None, 8, 8, 8]  # type: ignore[union-attr]
    moe = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, num_shared_experts=1)
    both = [
        read_config(PLAIN | {"architectures": [f"Exaone{each}ForCausalLM"]} | sizes | heads | moe)
        for each in ("Moe", "MoE")
    ]
    assert both[0].layers == both[1].layers and both[0].mtp_layers == ()


def test_k_exaone_has_its_published_size_and_a_dense_layer_that_predicts() -> None:
    """K-EXAONE-236B-A23B: 236 B, of which a token uses 23 (github.com/LG-AI-EXAONE/K-EXAONE)."""
    sizes = dict(hidden_size=6144, intermediate_size=18432, num_hidden_layers=48, vocab_size=153600, head_dim=128)
    heads = dict(num_attention_heads=64, num_key_value_heads=8, sliding_window=128, sliding_window_pattern="LLLG")
    moe = dict(num_experts=128, num_experts_per_tok=8, moe_intermediate_size=2048, num_shared_experts=1)
    more = {"architectures": ["ExaoneMoEForCausalLM"], "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}
    model = read_config(PLAIN | sizes | heads | moe | more)
    assert parameter_count(model) == pytest.approx(236e9, rel=0.01)
    assert active_parameter_count(model) == pytest.approx(23e9, rel=0.03)
    assert model.mtp_layers == (model.layers[0],) and model.layers[0].ffn == Mlp(18432)
    full = read_config(PLAIN | sizes | heads | moe | more | {"mtp_layer_types": ["full_attention"]})
    assert full.mtp_layers[0].mixer == model.layers[3].mixer


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (2, True)),
        ({"mtp_hybrid_override_pattern": "*E"}, (2, True)),
        ({"mtp_layers_block_type": ["attention"]}, (1, False)),
        ({"num_nextn_predict_layers": 0}, None),
    ],
)
def test_nemotron_3_predicts_with_attention_and_experts(changes: dict[str, Any], expected: Any) -> None:
    sizes = dict(hidden_size=64, num_hidden_layers=3, vocab_size=100, head_dim=16, num_attention_heads=4)
    mamba = dict(num_key_value_heads=2, mamba_num_heads=4, mamba_head_dim=32, n_groups=2, ssm_state_size=16)
    moe = dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=0)
    more = {"architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "M*E", "conv_kernel": 4}
    model = read_config(PLAIN | sizes | mamba | moe | more | {"num_nextn_predict_layers": 1} | changes)
    found = [(layer.norms, isinstance(layer.ffn, Moe)) for layer in model.mtp_layers]
    assert found == ([] if expected is None else [expected])
    assert all(layer.mixer == model.layers[1].mixer for layer in model.mtp_layers)
    with pytest.raises(InputError, match="must be a mixer, a feed-forward block, or one after the other"):
        read_config(
            PLAIN | sizes | mamba | moe | more | {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "**"}
        )


def test_shipped_models_that_predict_have_the_layer() -> None:
    """Qwen3.5-397B-A17B: `mtp_num_hidden_layers` 1; Nemotron 3 Super: attention and experts."""
    for name in ("qwen3.5-397b-a17b", "nemotron-3-super-120b-a12b"):
        (layer,) = load_model(name).mtp_layers
        assert isinstance(layer.mixer, Attention) and isinstance(layer.ffn, Moe) and layer.norms == 2


@pytest.mark.parametrize(
    ("wrapper", "kind", "plain"),
    [
        ("Glm4vForConditionalGeneration", "glm4v_text", "Glm4ForCausalLM"),
        ("Glm4vMoeForConditionalGeneration", "glm4v_moe_text", "Glm4MoeForCausalLM"),
        ("Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_text", "Qwen2ForCausalLM"),
        ("Qwen3OmniMoeThinkerForConditionalGeneration", "qwen3_omni_moe_text", "Qwen3MoeForCausalLM"),
    ],
)
def test_language_parts_that_are_a_known_model(wrapper: str, kind: str, plain: str) -> None:
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, vocab_size=100, head_dim=16)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, attention_bias=True, first_k_dense_replace=1)
    moe = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1)
    inner = PLAIN | {"model_type": kind} | sizes | heads | moe
    model = read_config({"architectures": [wrapper], "text_config": inner})
    assert model.layers == read_config(inner | {"architectures": [plain]}).layers
    assert f"the class {wrapper} wraps {plain}; only its text_config is described." in model.assumptions
