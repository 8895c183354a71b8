"""Each architecture's fields are mapped as its Hugging Face class reads them, under every accepted spelling."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.config_fields import SYNONYMS
from jaxperf.io.families import FAMILIES, MODEL_TYPES
from jaxperf.io.huggingface import read_config
from jaxperf.models.config import Attention, Layer, Mlp, ModelConfig, Moe
from jaxperf.models.parameters import parameter_count

ROTARY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LEARNED: dict[str, Any] = {
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "vocab_size": 1000,
    "torch_dtype": "float32",
    "tie_word_embeddings": True,
}


def read(architecture: str, fields: dict[str, Any], **changes: Any) -> ModelConfig:
    return read_config({"architectures": [architecture], **fields, **changes})


def windows(config: ModelConfig) -> list[int | None]:
    return [layer.mixer.window for layer in config.layers]


def test_llama() -> None:
    config = read("LlamaForCausalLM", ROTARY)
    assert config == ModelConfig(
        name="LlamaForCausalLM",
        architecture="LlamaForCausalLM",
        hidden=64,
        vocabulary=1000,
        layers=(Layer(Attention(4, 2, 16), Mlp(96)),) * 4,
        tied_embeddings=False,
        positions=0,
        embedding_width=64,
        final_norm=True,
        norm_bias=False,
        max_context=512,
        weight_format="bf16",
        assumptions=(),
    )
    biased = read("LlamaForCausalLM", ROTARY, attention_bias=True, mlp_bias=True).layers[0]
    assert (biased.mixer.qkv_bias, biased.mixer.output_bias, biased.ffn) == (True, True, Mlp(96, bias=True))


def test_what_is_absent_is_assumed_in_plain_words() -> None:
    bare = {key: ROTARY[key] for key in ROTARY if key not in ("head_dim", "torch_dtype", "tie_word_embeddings")}
    del bare["num_key_value_heads"]
    config = read("LlamaForCausalLM", bare)
    assert config.layers[0].mixer == Attention(4, 4, 16)
    assert config.assumptions == (
        "head_dim is absent; hidden_size / num_attention_heads = 16 was used.",
        "num_key_value_heads is absent; one for each attention head (4) was used.",
        "torch_dtype is absent; bf16 weights were assumed.",
        "tie_word_embeddings is absent; false, the default of LlamaForCausalLM, was used.",
    )


def test_mistral_window() -> None:
    assert windows(read("MistralForCausalLM", ROTARY, sliding_window=256)) == [256] * 4
    assert windows(read("MistralForCausalLM", ROTARY, sliding_window=None)) == [None] * 4
    absent = read("MistralForCausalLM", ROTARY)
    assert windows(absent) == [4096] * 4
    assert absent.assumptions == ("sliding_window is absent; 4096, the default of MistralForCausalLM, was used.",)


def test_mixtral_experts_use_the_dense_width() -> None:
    config = read("MixtralForCausalLM", ROTARY, num_local_experts=8, num_experts_per_tok=2, sliding_window=None)
    assert config.layers[0].ffn == Moe(8, 2, 96)


def test_qwen2_biases_and_late_windows() -> None:
    plain = read("Qwen2ForCausalLM", ROTARY, use_sliding_window=False, sliding_window=64, max_window_layers=2)
    assert windows(plain) == [None] * 4
    assert (plain.layers[0].mixer.qkv_bias, plain.layers[0].mixer.output_bias) == (True, False)
    late = read("Qwen2ForCausalLM", ROTARY, use_sliding_window=True, sliding_window=64, max_window_layers=3)
    assert windows(late) == [None, None, None, 64]


def test_qwen2_moe_sparse_step_dense_layers_and_shared_expert() -> None:
    config = read(
        "Qwen2MoeForCausalLM",
        ROTARY | EXPERTS,
        num_hidden_layers=6,
        shared_expert_intermediate_size=48,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
    )
    sparse, dense = Moe(8, 2, 32, True, 48, True), Mlp(96)
    assert [layer.ffn for layer in config.layers] == [dense, sparse, dense, dense, dense, sparse]
    assert config.layers[0].mixer.qkv_bias
    unshared = read("Qwen2MoeForCausalLM", ROTARY | EXPERTS, shared_expert_intermediate_size=0)
    assert unshared.layers[0].ffn == Moe(8, 2, 32)
    windowed = read(
        "Qwen2MoeForCausalLM",
        ROTARY | EXPERTS,
        shared_expert_intermediate_size=0,
        use_sliding_window=True,
        sliding_window=64,
        max_window_layers=3,
    )
    assert windows(windowed) == [None, None, None, 64]
    assert "one of two readings" in windowed.assumptions[0]


def test_qwen3_head_norms_and_head_dim() -> None:
    config = read("Qwen3ForCausalLM", ROTARY, head_dim=32)
    assert config.layers[0].mixer == Attention(4, 2, 32, qk_norm=True)
    absent = read("Qwen3ForCausalLM", ROTARY, head_dim=None)
    assert absent.layers[0].mixer.head_dim == 128
    assert absent.assumptions == ("head_dim is absent; 128, the default of Qwen3ForCausalLM, was used.",)
    biased = read("Qwen3ForCausalLM", ROTARY, attention_bias=True).layers[0].mixer
    assert (biased.qkv_bias, biased.output_bias) == (True, True)


def test_qwen3_moe() -> None:
    config = read("Qwen3MoeForCausalLM", ROTARY | EXPERTS, mlp_only_layers=[0])
    assert [layer.ffn for layer in config.layers] == [Mlp(96), *[Moe(8, 2, 32)] * 3]
    windowed = read("Qwen3MoeForCausalLM", ROTARY | EXPERTS, use_sliding_window=True, sliding_window=64)
    assert windows(windowed) == [64] * 4
    all_sparse = {key: value for key, value in (ROTARY | EXPERTS).items() if key != "intermediate_size"}
    assert read("Qwen3MoeForCausalLM", all_sparse).layers[0].ffn == Moe(8, 2, 32)  # no dense layer needs it


def test_gpt2() -> None:
    config = read("GPT2LMHeadModel", LEARNED, n_inner=None, n_ctx=128)
    attention = Attention(4, 4, 16, None, False, True, True)
    assert config.layers == (Layer(attention, Mlp(256, False, True), 2, True),) * 3
    assert (config.positions, config.max_context, config.final_norm, config.norm_bias) == (128, 128, True, True)
    assert (config.tied_embeddings, config.weight_format, config.assumptions) == (True, "fp32", ())
    assert read("GPT2LMHeadModel", LEARNED, n_inner=100).layers[0].ffn == Mlp(100, False, True)


def test_opt_pre_norm_and_post_norm() -> None:
    sizes = {key: value for key, value in ROTARY.items() if key not in ("intermediate_size", "head_dim")}
    fields = sizes | {"ffn_dim": 256, "tie_word_embeddings": True}
    usual = read("OPTForCausalLM", fields, word_embed_proj_dim=64)
    assert (usual.positions, usual.max_context, usual.final_norm, usual.embedding_width) == (514, 512, True, 64)
    assert not usual.layers[0].mixer.rotary and usual.layers[0].mixer.kv_heads == 4
    post = read("OPTForCausalLM", fields, word_embed_proj_dim=32, do_layer_norm_before=False)
    assert (post.final_norm, post.embedding_width) == (False, 32)
    removed = 1000 * 32 - 2 * 64 * 32 + 2 * 64  # narrower table, two projections, no final norm
    assert parameter_count(usual) - parameter_count(post) == removed
    unbiased = read("OPTForCausalLM", fields, enable_bias=False).layers[0]
    assert (unbiased.mixer.qkv_bias, unbiased.mixer.output_bias, unbiased.ffn) == (False, False, Mlp(256, gated=False))
    assert not read("OPTForCausalLM", fields, _remove_final_layer_norm=True).final_norm
    assert "norms are counted" in read("OPTForCausalLM", fields, layer_norm_elementwise_affine=False).assumptions[0]


@pytest.mark.parametrize("architecture", ["MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_layer_types_decide_each_window(architecture: str) -> None:
    kinds = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    config = read(architecture, ROTARY, layer_types=kinds, sliding_window=64, use_sliding_window=True)
    assert windows(config) == [64, None, None, 64]
    assert windows(read(architecture, ROTARY, layer_types=["full_attention"] * 4, sliding_window=64)) == [None] * 4


@pytest.mark.parametrize(("field", "spelling"), [(field, key) for field, keys in SYNONYMS.items() for key in keys])
def test_every_spelling_is_read_alike(field: str, spelling: str) -> None:
    fields = ROTARY | EXPERTS | {"shared_expert_intermediate_size": 0, "decoder_sparse_step": 2}
    renamed = {spelling if key == field else key: value for key, value in fields.items()}
    assert read("Qwen2MoeForCausalLM", renamed) == read("Qwen2MoeForCausalLM", fields)


def test_spellings_that_disagree_are_noted() -> None:
    config = read("MixtralForCausalLM", ROTARY, num_local_experts=8, num_experts_per_tok=2, top_k=50)
    assert config.layers[0].ffn == Moe(8, 2, 96)
    assert config.assumptions == ("num_experts_per_tok = 2 was used and top_k = 50 ignored.",)


def test_irrelevant_fields_change_nothing() -> None:
    noise = {"rope_scaling": {"factor": 8.0}, "rope_parameters": None, "eos_token_id": [1, 2], "hidden_act": "silu"}
    assert read("LlamaForCausalLM", ROTARY | noise) == read("LlamaForCausalLM", ROTARY)
    windowed = read("LlamaForCausalLM", ROTARY, sliding_window=64)
    assert windowed.assumptions == ("sliding_window is ignored; LlamaForCausalLM attends to the whole context.",)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("float32", "fp32"), ("float8_e4m3fn", "fp8"), ("auto", "bf16")],
)
def test_weight_format(dtype: str, expected: str) -> None:
    assert read("LlamaForCausalLM", ROTARY, torch_dtype=dtype).weight_format == expected


def test_model_type_stands_in_for_architectures() -> None:
    config = read_config({"model_type": "llama", **ROTARY})
    assert config.architecture == "LlamaForCausalLM"
    assert config.assumptions == ("architectures is absent; model_type was read as LlamaForCausalLM.",)
    assert set(MODEL_TYPES.values()) <= set(FAMILIES)


def test_a_model_type_that_contradicts_the_class_is_said() -> None:
    """Mixtral's fields under the class of Llama: of 47 B parameters it reads 8 B."""
    said = read("LlamaForCausalLM", ROTARY, model_type="mixtral", num_local_experts=8).assumptions
    assert 'model_type "mixtral" means MixtralForCausalLM; architectures says LlamaForCausalLM, which was read.' in said
    agreeing = ("LlamaForCausalLM", "llama"), ("MistralForCausalLM", "mistral"), ("LlamaForCausalLM", "of-its-own")
    assert not [n for name, kind in agreeing for n in read(name, ROTARY, model_type=kind).assumptions if "means" in n]


def test_wrapped_language_model_is_read_with_a_note() -> None:
    inner = {key: value for key, value in ROTARY.items() if key not in ("torch_dtype", "tie_word_embeddings")}
    outer = {"torch_dtype": "float16", "tie_word_embeddings": True, "vision_config": {}}
    config = read(
        "UnheardOfForConditionalGeneration",
        outer,
        text_config={"model_type": "mistral", "sliding_window": None, **inner},
    )
    assert config.architecture == "MistralForCausalLM"
    assert (config.weight_format, config.tied_embeddings) == ("fp16", True)
    note = "the class UnheardOfForConditionalGeneration wraps MistralForCausalLM; only its text_config is described."
    assert config.assumptions == (note,)


def test_other_wrapped_models_are_refused_by_name() -> None:
    with pytest.raises(
        InputError,
        match="the class UnheardOfForConditionalGeneration wraps .* class unheard_of, which is not supported",
    ):
        read("UnheardOfForConditionalGeneration", {}, text_config={"model_type": "unheard_of"})
    with pytest.raises(InputError, match="wraps a language model of an unnamed class"):
        read("SomethingForConditionalGeneration", {}, text_config={})
    with pytest.raises(InputError, match="architectures is a list of 1; it must be"):
        read("two\nlines", {}, text_config={})


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("limit", "scaling", "expected"),
    [
        (
            40960,
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            131072,
        ),
        (32768, {"type": "yarn", "factor": 4}, 131072),
        (163840, {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163840),  # DeepSeek-V3
        (4096, {"type": "linear", "factor": 4.0}, 16384),  # vicuna-7b-v1.5-16k
        (4096, {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 2048}, 8192),
        (4096, {"rope_type": "longrope", "factor": 32.0}, 4096),
        (131072, {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131072),
    ],
)
def test_scaled_positions_stretch_the_context(name: str, limit: int, scaling: dict[str, Any], expected: int) -> None:
    config = read("LlamaForCausalLM", ROTARY, max_position_embeddings=limit, **{name: scaling})
    assert config.max_context == expected
    assert any("stretches the context" in note for note in config.assumptions) == (expected > limit)


def test_a_context_without_limit_is_said() -> None:
    config = read("LlamaForCausalLM", ROTARY, max_position_embeddings=None)
    assert config.max_context is None
    assert "max_position_embeddings is absent; the context was taken to have no limit." in config.assumptions
    wrapped = {"model_type": "gemma3_text"} | {key: ROTARY[key] for key in ("hidden_size", "num_hidden_layers")}
    assert read("Gemma3ForConditionalGeneration", {}, text_config=wrapped).max_context == 131072


def test_the_limit_of_gemma_3_is_of_after_its_linear_scaling() -> None:
    config = read("Gemma3ForCausalLM", ROTARY, sliding_window=128, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert config.max_context == 512
