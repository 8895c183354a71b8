"""Quantization configs: every method's fields, what its checkpoints weigh, and what is guessed or refused."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.core.formats import CACHE_FORMATS, FORMATS
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.io.quantization.methods import METHODS
from jaxperf.io.quantization.modelopt import ALGORITHMS
from jaxperf.io.quantization.pieces import ASYMMETRIC, FORMAT_BITS, GROUPED, MICROSCALED, NAMES
from jaxperf.io.quantization.torchao import TORCHAO
from jaxperf.models.block_formats import own_formats
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.memory import weight_bytes
from jaxperf.models.parameters import mtp_parameter_count, parameter_breakdown, parameter_count
from jaxperf.models.quantization import Quantization, bits_per_weight
from jaxperf.models.storage import stored_bytes
from tests.devices import H100, deployment

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LAYER = 64 * 8 * 16 + 64 * 64 + 3 * 64 * 96  # elements of the matrices of one layer


def read(quantization: Any, **changes: Any) -> ModelConfig:
    return read_config(LLAMA | {"quantization_config": quantization} | changes)


def scheme(quantization: Any) -> Quantization:
    found = read(quantization).quantization
    assert found is not None
    return found


def group(weights: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    """A compressed-tensors config with one group."""
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}


INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
BLOCK8 = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128], "symmetric": True}
TOKEN8 = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}

MX8 = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}
MX4 = MX8 | {"num_bits": 4}
HQQ = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 128}}}
TORCHAO_INT4 = {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}}


def quark(weight: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    """An AMD Quark config."""
    return {"quant_method": "quark", "global_quant_config": {"weight": weight, "input_tensors": inputs}}


QUARK_FP4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
QUARK_FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "group_size": None}

AUTO_ROUND = {"quant_method": "auto-round", "bits": 4}

# config -> (format, bits of a weight with its share of the scales, activations)
EXACT = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, ("int4", 4 + 20 / 128, None)),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False}, ("int4_asym", 4 + 20 / 128, None)),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128}, ("int8_group", 8 + 24 / 128, None)),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, ("int8_wo", 8, None)),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, ("int4_asym", 4 + 20 / 128, None)),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "zero_point": False}, ("int4", 4 + 16 / 128, None)),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, ("int4", 4 + 20 / 128, None)),
    ({"quant_method": "intel/auto-round", "bits": 4, "group_size": 128}, ("int4", 4 + 20 / 128, None)),
    ({"quant_method": "auto-round", "bits": 8, "group_size": 0}, ("int8_wo", 8, None)),  # one scale to a tensor
    (AUTO_ROUND | {"data_type": "mx_fp", "group_size": 32, "act_bits": 4}, ("mxfp4", 4.25, "fp4")),
    (AUTO_ROUND | {"data_type": "nv_fp4_with_static_gs", "group_size": 16, "act_bits": 16}, ("fp4_wo", 4.5, None)),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8", 8 + 32 / 16384, "fp8")),
    ({"quant_method": "fp8", "activation_scheme": "static"}, ("fp8", 8, "fp8")),
    ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, ("fp8", 8, "fp8")),
    ({"quant_method": "w8a8_fp8"}, ("fp8", 8, "fp8")),
    ({"quant_method": "w8a8_int8"}, ("int8", 8, "int8")),
    ({"quant_method": "blockwise_int8", "weight_block_size": [128, 128]}, ("int8", 8 + 32 / 16384, "int8")),
    ({"quant_method": "gptq_marlin", "bits": 4, "group_size": 128}, ("int4", 4 + 20 / 128, None)),
    ({"quant_method": "awq_marlin", "bits": 4, "group_size": 128}, ("int4_asym", 4 + 20 / 128, None)),
    ({"quant_method": "inc", "bits": 4, "group_size": 128}, ("int4", 4 + 20 / 128, None)),
    ({"quant_method": "fp_quant", "forward_dtype": "nvfp4"}, ("fp4", 4.5, "fp4")),
    ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, ("mxfp4", 4.25, "fp4")),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("int8", 8, "int8")),
    ({"load_in_4bit": True, "bnb_4bit_use_double_quant": True}, ("int4_g64s8", 4.125, None)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("int4_g64s32", 4.5, None)),
    ({"quant_method": "gptq", "bits": 4, "group_size": 32}, ("int4_g32", 4 + 20 / 32, None)),
    ({"quant_method": "gptq", "bits": 3, "group_size": 128}, ("int3", 3 + 19 / 128, None)),
    ({"quant_method": "awq", "bits": 4, "group_size": 64}, ("int4_asym_g64", 4 + 20 / 64, None)),
    (group(INT4 | {"group_size": 32}, None), ("int4_g32", 4.5, None)),
    (group(INT8, TOKEN8), ("int8", 8, "int8")),
    (group(INT8, None), ("int8_wo", 8, None)),
    (group(FLOAT8, FLOAT8), ("fp8", 8, "fp8")),
    (group(FLOAT8, None), ("fp8_wo", 8, None)),
    (group(BLOCK8, FLOAT8), ("fp8", 8 + 16 / 16384, "fp8")),
    (group(BLOCK8 | {"block_structure": "64x128"}, FLOAT8), ("fp8", 8 + 16 / 8192, "fp8")),
    (group(MX8, MX8), ("mxfp8", 8.25, "fp8")),
    (group(INT4, None), ("int4", 4 + 16 / 128, None)),
    (group(INT4 | {"symmetric": False}, None), ("int4_asym", 4 + 20 / 128, None)),
    (group(NVFP4, NVFP4), ("fp4", 4.5, "fp4")),
    (group(NVFP4, None), ("fp4_wo", 4.5, None)),
    (group(MX4, MX4), ("mxfp4", 4.25, "fp4")),
    (group(MX4, None), ("mxfp4_wo", 4.25, None)),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("fp8", 8, "fp8")),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, ("fp4", 4.5, "fp4")),
    ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, ("fp4", 4.5, "fp4")),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, ("int4", 4.125, None)),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, ("int4_fp8", 4.125, "fp8")),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_MXFP4_FP8"}, ("mxfp4_fp8", 4.25, "fp8")),
    ({"quant_method": "w4afp8", "weight_block_size": [128, 128]}, ("int4_fp8", 4.125, "fp8")),
    ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, ("mxfp8", 8.25, "fp8")),
    ({"quant_method": "mxfp4"}, ("mxfp4_wo", 4.25, None)),
    (quark(QUARK_FP4, QUARK_FP4), ("mxfp4", 4.25, "fp4")),
    (quark(QUARK_FP8, QUARK_FP8), ("fp8", 8, "fp8")),
    (quark({"dtype": "int8", "qscheme": "per_channel"}, None), ("int8_wo", 8, None)),
    ({"quant_method": "quanto", "weights": "int8"}, ("int8_wo", 8, None)),
    ({"quant_method": "quanto", "weights": "float8"}, ("fp8_wo", 8, None)),
    (HQQ, ("int4_asym", 4 + 20 / 128, None)),
    ({"quant_method": "eetq", "weights": "int8"}, ("int8_wo", 8, None)),
    ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, ("int8_wo", 8, None)),
    ({"quant_method": "torchao", "quant_type": TORCHAO_INT4}, ("int4_asym", 4 + 20 / 128, None)),
]

# config -> (format that stands in, bits, word of the sentence)
AQLM = {"quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16, "in_group_size": 8}
NEAREST = [
    ({"quant_method": "gptq", "bits": 3, "group_size": -1}, ("int4", 3, "3-bit")),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, ("int4", 4, "are timed as int4, which has 4.125")),
    (group(INT4, TOKEN8), ("int4", 4.125, "int8 activations")),
    (group(INT8, FLOAT8), ("fp8", 8, "fp8 activations")),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8"}, ("fp4_wo", 4.5, "fp8 activations")),
    (AQLM, ("int4", 2, "codebook")),
    ({"quant_method": "higgs", "bits": 4, "group_size": 256}, ("int4_g256", 4 + 16 / 256, "codebook")),
    ({"quant_method": "bitnet"}, ("int4", 2, "2-bit")),
]


@pytest.mark.parametrize(("config", "expected"), EXACT, ids=range(len(EXACT)))
def test_every_method(config: dict[str, Any], expected: tuple[str, float, str | None]) -> None:
    model = read(config)
    found = model.quantization
    assert found is not None
    assert (found.weights, float(bits_per_weight(found)), found.activations) == expected
    assert model.weight_format == found.weights and model.assumptions == () and found.unquantized == "bf16"


@pytest.mark.parametrize(("config", "expected"), NEAREST, ids=range(len(NEAREST)))
def test_what_has_no_format_is_the_nearest_and_said(config: dict[str, Any], expected: tuple[str, float, str]) -> None:
    model = read(config)
    assert model.quantization is not None
    assert (model.weight_format, float(bits_per_weight(model.quantization))) == expected[:2]
    assert len(model.assumptions) == 1 and expected[2] in model.assumptions[0]


def test_every_name_is_a_format_of_that_size() -> None:
    """The reader does not import JAX, so it spells the names of the formats; here they are held against the table."""
    named = {*NAMES.values(), *MICROSCALED.values(), *GROUPED.values(), *ASYMMETRIC.values()}
    assert named == set(FORMAT_BITS)
    assert {name: 8 * FORMATS[name].itemsize for name in FORMAT_BITS} == FORMAT_BITS
    for config, _ in [*EXACT, *NEAREST]:
        found = scheme(config)
        assert found.weights in FORMATS
        assert found.activations is None or found.activations in FORMATS
    for algorithm in ALGORITHMS:
        assert scheme({"quant_method": "modelopt", "quant_algo": algorithm}).weights in FORMATS
    for name in TORCHAO:
        assert scheme({"quant_method": "torchao", "quant_type": name}).weights in FORMATS
    tested = {config.get("quant_method", "bitsandbytes").replace("_", "-") for config, _ in [*EXACT, *NEAREST]}
    assert tested | {"modelopt-fp4", "modelopt-mixed"} == set(METHODS)


@pytest.mark.parametrize(
    ("config", "cache"),
    [
        (group(FLOAT8, FLOAT8) | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        (group(FLOAT8, FLOAT8) | {"kv_cache_scheme": None}, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
    ],
)
def test_cache_format(config: dict[str, Any], cache: str | None) -> None:
    found = scheme(config).kv_cache
    assert found == cache and (found is None or found in CACHE_FORMATS)


# --- what is stored ---------------------------------------------------------------------------------------------------


def shipped(name: str, quantization: dict[str, Any], dtype: str = "bfloat16") -> ModelConfig:
    text = (resources.files("jaxperf.models") / "configs" / f"{name}.json").read_text(encoding="utf-8")
    return read_config(json.loads(text) | {"quantization_config": quantization, "torch_dtype": dtype})


def test_llama_70b_awq_weighs_what_its_files_do() -> None:
    """Hugging Face, hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4: 4.97 + 6 x 4.89 + 3.36 + 2.1 GB."""
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
    assert stored_bytes(shipped("llama-3.1-70b", awq, "float16")) == pytest.approx(39.77e9, rel=0.001)


def test_deepseek_v3_weighs_what_its_files_do() -> None:
    """Hugging Face, deepseek-ai/DeepSeek-V3: 688,586,727,753 bytes, with the layer that predicts a second token.

    That layer is in FP8 too, but for its projection of 2 x 7168 x 7168, and stores table and head once more.
    """
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
    model = shipped("deepseek-v3", fp8)
    projection, tables = 2 * 7168 * 7168, 2 * 129_280 * 7168
    further = mtp_parameter_count(model) + projection + 2 * tables
    assert stored_bytes(model) + further == pytest.approx(688_586_727_753, rel=0.0005)


def test_kimi_k2_thinking_weighs_what_its_files_do_on_devices_too() -> None:
    """Hugging Face, moonshotai/Kimi-K2-Thinking: 594 GB, experts in groups of 32; the language model of Kimi K2.5."""
    kimi = load_model("kimi-k2.5")
    at = deployment(H100, weights=kimi.weight_format)
    for size in (stored_bytes(kimi), float(weight_bytes(at, transformer(kimi)))):
        assert size == pytest.approx(594e9, rel=0.001)


def test_w4afp8_has_routed_experts_in_4_bits_and_all_other_matrices_in_8() -> None:
    """DeepSeek-R1 as SGLang's w4afp8 has it: 653.9 of 671.0 B parameters are of routed experts."""
    model = shipped("deepseek-v3", {"quant_method": "w4afp8", "activation_scheme": "dynamic", "group_size": 128})
    parts = parameter_breakdown(model)
    experts = 58 * 256 * 3 * 7168 * 2048
    vectors = 61 * (1536 + 512)  # norms inside of attention
    other = parts["attention"] - vectors + parts["mlp"] + parts["shared_experts"]
    plain = parameter_count(model) - experts - other
    assert parts["experts"] == experts
    assert stored_bytes(model) == pytest.approx(experts * 4.125 / 8 + other + plain * 2, rel=1e-9)
    assert own_formats(model, 0) == (("mixer", "fp8"), ("ffn", "fp8"))
    assert own_formats(model, 5) == (("mixer", "fp8"), ("shared", "fp8"))


@pytest.mark.parametrize(("name", "size"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_gpt_oss_weighs_what_its_report_says(name: str, size: float) -> None:
    """arXiv:2508.10925, table 1: checkpoint size in GiB. Only the experts are quantized."""
    excluded = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    model = shipped(name, {"quant_method": "mxfp4", "modules_to_not_convert": excluded})
    assert stored_bytes(model) / 2**30 == pytest.approx(size, rel=0.005)


def plain_bytes(model: ModelConfig) -> int:
    """Tables, head and norms of the small Llama in two bytes."""
    parts = parameter_breakdown(model)
    return 2 * (parts["embedding"] + parts["output_head"] + parts["norms"])


@pytest.mark.parametrize(
    ("excluded", "share"),
    [
        ([], 1.0),
        (["lm_head"], 1.0),
        (["self_attn"], 3 * 64 * 96 / LAYER),
        (["re:.*self_attn.*"], 3 * 64 * 96 / LAYER),
        (["model.layers.*.mlp"], 1 - 3 * 64 * 96 / LAYER),
        (["model.layers.0"], 0.75),
        (["model.layers.0*", "model.language_model.layers.3"], 0.5),
        (["language_model.model.layers.1.mlp.down_proj"], 1 - 3 * 64 * 96 / LAYER / 4),
        (["re:model.layers.[12].mlp.(up|down)_proj"], 1 - 2 * 3 * 64 * 96 / LAYER / 4),
        (["model.layers.1.mlp.up_proj"], 1.0),  # a block goes with its last projection
        (["model.layers.10"], 1.0),
        (["attn"], 1.0),  # part of a word is no module
    ],
)
def test_excluded_modules_keep_the_dtype(excluded: list[str], share: float) -> None:
    model = read({"quant_method": "fp8", "modules_to_not_convert": excluded})
    matrices = 4 * LAYER
    expected = plain_bytes(model) + matrices * share + 2 * matrices * (1 - share)
    assert stored_bytes(model) == pytest.approx(expected, abs=1)


@given(st.integers(1, 8), st.sampled_from([-1, 16, 32, 64, 128, 1024]))
def test_stored_bytes_are_those_of_the_bits(bits: int, size: int) -> None:
    model = read({"quant_method": "gptq", "bits": bits, "group_size": size})
    per_weight = Fraction(bits) + (Fraction(16 + bits, size) if size > 0 else 0)
    exact = 4 * LAYER * per_weight / 8 + plain_bytes(model)
    assert stored_bytes(model) == -(-exact.numerator // exact.denominator)
    assert stored_bytes(model) < 2 * parameter_count(model) == stored_bytes(read(None))


# --- what is guessed and refused --------------------------------------------------------------------------------------


def test_an_unknown_method_is_refused_and_an_empty_object_says_nothing() -> None:
    """Taken for the dtype, the weights would be four times too large."""
    for config in ({"quant_method": "vptq", "bits": 2}, {"quant_method": "gptqq"}, {"fmt": "e4m3"}):
        hint = "Did you mean gptq" if config.get("quant_method") == "gptqq" else ""
        with pytest.raises(InputError, match=f"it must be one of gptq, .*torchao. Without quantization_config.*{hint}"):
            read(config)
    assert read({}).quantization is None and read({}).assumptions == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("int4", 'quantization_config is "int4"; it must be an object'),
        ([1], "quantization_config is a list of 1"),
        ({"quant_method": 4}, "quantization_config: quant_method is 4; it must be a short text"),
        ({"quant_method": "two\nlines"}, "it must be a short text"),
        ({"quant_method": "gptq"}, "quantization_config: the required field bits is missing"),
        ({"quant_method": "gptq", "bits": "4"}, 'bits is "4"; it must be an integer from 1 to 8'),
        ({"quant_method": "gptq", "bits": 4, "group_size": -2}, "group_size is -2"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size is 0; it must be -1 (one scale to a row)"),
        ({"quant_method": "awq", "bits": 4, "q_group_size": 0}, "group_size is 0"),
        ({"quant_method": "gptq", "bits": 4, "group_size": False}, "group_size is false"),
        ({"quant_method": "awq", "bits": 4, "zero_point": "yes"}, 'zero_point is "yes"; it must be true or false'),
        (
            {"quant_method": "fp8", "weight_block_size": [128]},
            "has 1 item; it must have 2, one for each side of a block",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "An item of weight_block_size is 0"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size is 128; it must be a list"),
        ({"quant_method": "fp8", "activation_scheme": "none"}, "it must be one of dynamic, static"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit and load_in_8bit are both false"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": 1}, "load_in_4bit is 1; it must be true or false"),
        ({"quant_method": "compressed-tensors"}, "the required field config_groups is missing"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups has no group with weights"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": 1}}, "g is 1; it must be an object"),
        (group({"num_bits": 8, "type": "complex"}, None), "it must be one of int, float"),
        (group({"num_bits": 8, "strategy": "diagonal"}, None), "strategy is"),
        (group(INT8, {"type": "int"}), "the required field num_bits is missing"),
        (group(INT8, None) | {"ignore": "lm_head"}, 'ignore is "lm_head"; it must be a list of texts'),
        (group(INT8, None) | {"ignore": ["re:("]}, "it must be a plain regular expression"),
        (group(INT8, None) | {"ignore": ["re:(a+)+b"]}, "it must be a plain regular expression"),
        ({"quant_method": "modelopt", "quant_algo": "FP9"}, 'quant_algo is "FP9"; it must be one of FP8'),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP9"}, "kv_cache_quant_algo is"),
        ({"quant_method": "quanto", "weights": "int3"}, 'weights is "int3"; it must be one of float8'),
        ({"quant_method": "hqq"}, "quant_config.weight_quant_params is missing"),
        ({"quant_method": "aqlm", "nbits_per_codebook": 1000}, "bits to a weight; at most 16"),
        ({"quant_method": "torchao", "quant_type": "int3"}, 'quant_type is "int3"; it must be one of'),
        ({"quant_method": "quark"}, "global_quant_config.weight is missing"),
        (quark({"dtype": "fp3"}, None), 'dtype is "fp3"; it must be one of fp8_e4m3'),
    ],
    ids=range(34),
)
def test_mistakes_are_one_sentence(config: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(config)
    said = str(caught.value)
    assert message in said and "\n" not in said and said.endswith(".") and len(said) < 800


GARBAGE = st.sampled_from([None, True, -1, 0, 2**41, 1.5, "", "4", [], [1, 2], ["a"], {"a": 1}, {}, "FP8", "float"])
KEYS = ["bits", "group_size", "weight_block_size", "config_groups", "ignore", "weights", "quant_algo", "quant_type"]
KEYS += [
    "extra_config",
    "quant_config",
    "kv_cache_scheme",
    "modules_to_not_convert",
    "load_in_4bit",
    "data_type",
    "sparsity_config",
]


@given(st.sampled_from([*METHODS, "vptq", None]), st.dictionaries(st.sampled_from(KEYS), GARBAGE, max_size=6))
def test_garbage_is_described_or_refused_but_never_crashes(method: str | None, fields: dict[str, Any]) -> None:
    try:
        model = read({"quant_method": method} | fields)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert stored_bytes(model) > 0


@pytest.mark.parametrize(
    "changes",
    [{"bits": 0}, {"bits": True}, {"bits": 4.0}, {"group_size": 0}, {"scale_format": "fp12"}, {"method": ""}]
    + [{"excluded": ["a"]}, {"kv_cache": ""}, {"zero_points": 1}],
)
def test_the_description_checks_itself(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Quantization"):
        Quantization(**({"method": "gptq", "weights": "int4", "bits": 4} | changes))
