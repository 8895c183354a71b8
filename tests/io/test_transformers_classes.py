"""What is read here against the configuration and model classes of Hugging Face transformers, where it is installed.

`pip install jaxperf[check]` brings transformers; with torch as well, each class is built without memory (on the "meta"
device) from the shipped configs and its parameters are counted again.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.families import MODEL_TYPES
from jaxperf.io.families.multimodal import TEXT_DEFAULTS
from jaxperf.io.huggingface import model_names, read_config
from jaxperf.models.parameters import parameter_count

transformers = pytest.importorskip("transformers", minversion="5.0")
CLASSES = pytest.importorskip("transformers.models.auto.configuration_auto").CONFIG_MAPPING
HEADS = pytest.importorskip("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

OURS = {"architectures", "model_type", "torch_dtype", "_jaxperf"}
# Fields of published configs that the class takes but does not keep: it turns them into `layer_types` and the like.
TURNED = {
    "block_ff_dim": ("lfm2",),
    "compress_ratios": ("deepseek_v4",),
    "full_attention_interval": ("qwen3_next",),
    "hybrid_override_pattern": ("nemotron_h",),
    "num_hash_layers": ("deepseek_v4",),
    "num_hidden_layers": ("nemotron_h",),
    "num_labels": ("vit", "deit", "dinov2"),
    "qk_ln": ("mpt",),
    "sliding_window_pattern": ("cohere2", "gemma3_text"),
}
# Defaults that describe no model: a size is null, zero or not a multiple of another.
INCOMPLETE = {"deepseek_v2", "dots1", "glm4_moe", "glm4v_moe_text", "lfm2_moe", "qwen3_omni_moe_text"}


def shipped(name: str) -> dict[str, Any]:
    text = (resources.files("jaxperf.models") / "configs" / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)


KNOWN = [name for name in model_names() if shipped(name)["model_type"] in CLASSES]
ONE_EACH = {shipped(name)["architectures"][0]: name for name in KNOWN if "ForCausalLM" in str(shipped(name))}


@pytest.mark.parametrize("kind", [kind for kind in MODEL_TYPES if kind in CLASSES])
def test_default_configs_are_described_or_refused_by_a_sentence(kind: str) -> None:
    fields = CLASSES[kind]().to_dict() | {"architectures": [MODEL_TYPES[kind]], "model_type": kind}
    try:
        config = read_config(json.loads(json.dumps(fields, default=str)))
    except InputError as error:
        assert "\n" not in str(error) and kind in INCOMPLETE, error
    else:
        assert parameter_count(config) > 0 and kind not in INCOMPLETE


@pytest.mark.parametrize("kind", TEXT_DEFAULTS)
def test_defaults_of_language_parts_are_those_of_the_class(kind: str) -> None:
    made = transformers.MllamaConfig().text_config if kind == "mllama_text_model" else CLASSES[kind]()
    values = made.to_dict()
    assert TEXT_DEFAULTS[kind].items() <= values.items()


@pytest.mark.parametrize("name", KNOWN)
def test_shipped_fields_are_fields_of_the_class(name: str) -> None:
    fields = shipped(name)
    if fields["model_type"] == "exaone4":
        fields.pop("sliding_window_pattern")  # a text in the published file; the class now wants a number
    made = CLASSES[fields["model_type"]](**{key: value for key, value in fields.items() if key not in OURS})
    known = set(made.to_dict()) | set(made.attribute_map) | OURS
    known |= set(made.to_dict().get("text_config") or {})  # older configs have the language part flat
    known |= {key for key, kinds in TURNED.items() if fields["model_type"] in kinds}
    assert set(fields) <= known


def built_parameters(architecture: str, made: Any) -> int:
    """Weights of the class without memory, and the trained biases it keeps as buffers."""
    import torch

    with torch.device("meta"):
        model = getattr(transformers, architecture)(made)
    biases = sum(b.numel() for key, b in model.named_buffers() if "correction_bias" in key or "expert_bias" in key)
    return sum(weight.numel() for weight in model.parameters()) + biases


@pytest.mark.parametrize("architecture", ONE_EACH)
def test_built_class_has_as_many_parameters(architecture: str) -> None:
    pytest.importorskip("torch")
    fields = shipped(ONE_EACH[architecture])
    if not hasattr(transformers, architecture) or HEADS.get(fields["model_type"]) != architecture:
        pytest.skip(f"{architecture} is code outside transformers")
    if fields["model_type"] == "exaone4":
        fields.pop("sliding_window_pattern")
    if isinstance(fields.get("moe_topk"), list):
        fields["moe_topk"] = fields["moe_topk"][0]
    made = CLASSES[fields["model_type"]](**{key: value for key, value in fields.items() if key not in OURS})
    assert parameter_count(read_config(shipped(ONE_EACH[architecture]))) == built_parameters(architecture, made)


# Options of classes whose shipped configs do not show them, and classes without a shipped config.
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("afmoe", {}),
    ("arcee", {}),
    ("apertus1p5_text", {"output_vocab_size": 131072}),
    ("bamba", {"attn_layer_indices": [3, 9], "mlp_bias": True}),
    ("beam", {"num_hidden_layers": 8, "attention_bias": True}),
    ("biogpt", {}),
    ("cohere", {"attention_bias": True, "use_qk_norm": True}),
    ("cwm", {"mlp_bias": True}),
    ("cohere2_moe", {"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 512, "num_shared_experts": 2}),
    ("deepseek_v3", {"q_lora_rank": None, "attention_bias": True}),
    ("ernie4_5", {"use_bias": True}),
    ("exaone_moe", {}),
    ("falcon", {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False, "num_kv_heads": 71}),
    ("falcon_h1", {"mamba_rms_norm": True, "attention_bias": True, "mlp_bias": True}),
    ("flex_olmo", {}),
    ("gemma4_text", {}),
    ("gemma4_text", {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 2}),
    ("gemma4_text", {"enable_moe_block": True, "num_experts": 16, "top_k_experts": 4, "moe_intermediate_size": 704}),
    ("gemma4_text", {"num_kv_shared_layers": 10, "use_double_wide_mlp": True}),
    ("glm4_moe", {"head_dim": 128, "attention_bias": True, "use_qk_norm": True}),
    ("glm4_moe_lite", {}),
    ("glm_moe_dsa", {}),
    ("glm_moe_dsa", {"indexer_types": ["full", "shared"] * 39}),
    ("gpt_neox", {"attention_bias": False}),
    ("granite_swa", {}),
    ("granitemoe_swa", {"shared_intermediate_size": 512, "attention_bias": True}),
    ("granitemoeshared", {"shared_intermediate_size": 512}),
    ("helium", {}),
    ("hunyuan_v1_moe", {"head_dim": 128, "attention_bias": True, "num_experts": 4, "moe_topk": 2}),
    ("hy_v3", {"attention_bias": True}),
    ("hyperclovax", {"use_post_norm": False, "attention_bias": True, "mlp_bias": True}),
    ("jais2", {}),
    ("laguna", {"gating": "per-element", "num_attention_heads_per_layer": [48, 64] * 20}),
    ("lfm2", {"conv_bias": True}),
    ("lfm3", {"conv_bias": True, "use_attention_gate": False, "use_sandwich_norm": False, "attention_bias": True}),
    ("mamba", {"use_bias": True}),
    ("mamba2", {"use_bias": True, "use_conv_bias": False}),
    ("mellum", {"mlp_layer_types": ["dense"] * 4 + ["sparse"] * 24, "attention_bias": True}),
    ("minimax_m3_vl_text", {"layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57}),
    ("ministral3", {}),
    ("mistral4", {}),
    ("nemotron_h", {"moe_latent_size": 512, "layers_block_type": ["mamba", "moe"]}),
    ("olmo_hybrid", {}),
    ("phi", {"qk_layernorm": True}),
    ("qwen3_5_moe_text", {}),
    ("qwen3_5_text", {}),
    ("solar_open", {"attention_bias": True}),
    ("stablelm", {"use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True}),
    ("starcoder2", {"use_bias": False}),
    ("vaultgemma", {}),
    ("youtu", {}),
]


# Parameters of a class with its default sizes, biases of the choice of experts included: counted once, with torch;
# of the language part where that is all there is (of Mistral Large 4 but for 32 factors of its frequencies).
COUNTED = {
    "apertus1p5_text": 8_091_086_912,
    "aria_text": 18_517_069_824,
    "axk1": 518_983_063_808,
    "beam": 501_267_612_352,
    "cohere2_moe": 190_004_928_512,
    "gemma4_unified_text": 3_010_758_400,
    "glm5_next_text": 313_326_828_862,
    "granite_docling_text": 386_630_656,
    "granitemoe_swa": 37_039_117_312,
    "hy_v4": 58_278_201_581,
    "hyperclovax": 6_738_677_760,
    "kolibri1": 78_103_074_560,
    "laguna": 33_189_975_808,
    "lfm3": 1_728_801_536,
    "mellum": 12_149_923_072,
    "mistral_large4_text": 1_050_118_202_880,
    "muse_glimmer_text": 27_854_780_928,
    "muse_spark_text": 819_990_552_064,
    "nanochat": 256_573_440,
    "paddleocr_vl_text": 360_748_032,
    "t5gemma": 5_596_853_760,
}


@pytest.mark.parametrize("kind", COUNTED)
def test_default_sizes_have_the_parameters_of_the_class(kind: str) -> None:
    if kind not in CLASSES:
        pytest.skip(f"{kind} is not in transformers {transformers.__version__}")
    fields = json.loads(json.dumps(CLASSES[kind]().to_dict(), default=str)) | {"architectures": [MODEL_TYPES[kind]]}
    assert parameter_count(read_config(fields)) == COUNTED[kind]


@pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=[f"{kind}-{len(options)}" for kind, options in OPTIONS])
def test_options_count_as_in_the_class(kind: str, options: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    if kind not in CLASSES:
        pytest.skip(f"{kind} is not in transformers {transformers.__version__}")
    made = CLASSES[kind](**options)
    fields = json.loads(json.dumps(made.to_dict(), default=str)) | {"architectures": [MODEL_TYPES[kind]]}
    assert parameter_count(read_config(fields)) == built_parameters(MODEL_TYPES[kind], made)
