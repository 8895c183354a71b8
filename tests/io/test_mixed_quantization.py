"""Checkpoints with several quantization schemes: which block of which layer has which."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.models.block_formats import own_formats
from jaxperf.models.layers import transformer
from jaxperf.models.parameters import parameter_breakdown, parameter_count
from jaxperf.models.quantization import bits_per_weight
from jaxperf.models.storage import stored_bytes
from tests.devices import H100, deployment
from tests.io.test_quantization import FLOAT8, NVFP4, QUARK_FP4, QUARK_FP8, group, quark, read, shipped
from tests.models.shipped import decode_once


def test_modules_that_auto_round_keeps_or_gives_other_bits() -> None:
    scheme = {"quant_method": "auto-round", "bits": 4, "group_size": 128}
    kept = {f"model.layers.0.self_attn.{each}_proj": {"bits": 16} for each in "qkvo"}
    kept |= {"lm_head": {"bits": 16, "data_type": "fp"}}
    same = {"model.layers.1.mlp.down_proj": {"bits": 4, "group_size": 128}}
    model = read(scheme | {"extra_config": kept | same})
    listed = read(scheme | {"modules_to_not_convert": list(kept)})
    assert stored_bytes(model) == stored_bytes(listed) > stored_bytes(read(scheme))
    assert model.assumptions == listed.assumptions == ()
    other = {"model.layers.1.mlp.down_proj": {"bits": 8}, ".*2.*down": {"bits": 16}}
    mixed = read(scheme | {"extra_config": kept | other})
    more = (8 - 4) + (24 - 20) / 128 + 16 - (4 + 20 / 128)  # bits of a weight, in the two layers together
    assert stored_bytes(mixed) - stored_bytes(model) == pytest.approx(3 * 64 * 96 * more / 8, abs=1)
    assert [own_formats(mixed, index) for index in (1, 2)] == [(("ffn", "int8_group"),), (("ffn", ""),)]


MIXED_EXPERTS = {
    f"backbone.layers.1.mixer.experts.{i}.{p}_proj": {"quant_algo": "NVFP4", "group_size": 16}
    for i in range(3)
    for p in ("up", "down")
}
MODELOPT_MIXED = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "kv_cache_quant_algo": "FP8",
    "exclude_modules": ["lm_head", "mtp*"],
    "quantized_layers": {
        "backbone.layers.0.mixer.in_proj": {"quant_algo": "FP8"},
        "backbone.layers.0.mixer.out_proj": {"quant_algo": "FP8"},
        "backbone.layers.1.mixer.shared_experts.down_proj": {"quant_algo": "FP8"},
        **MIXED_EXPERTS,
    },
}
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "hybrid_override_pattern": "ME*",
    "num_hidden_layers": 3,
    **dict(mamba_num_heads=4, mamba_head_dim=32, n_groups=2, ssm_state_size=16, conv_kernel=4),
    **dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, n_shared_experts=1),
    "moe_shared_expert_intermediate_size": 64,
}


def test_modelopt_mixed_precision_is_read_layer_by_layer() -> None:
    """As nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4 lists them: what is not listed is not quantized."""
    model = read(MODELOPT_MIXED, **NEMOTRON)
    assert model.weight_format == "fp4" and model.quantization is not None and model.quantization.kv_cache == "fp8"
    assert [own_formats(model, index) for index in range(3)] == [
        (("mixer", "fp8"),),
        (("shared", "fp8"),),
        (("mixer", ""),),
    ]
    parts, inside = parameter_breakdown(model), 64 * (2 * 128 + 2 * 2 * 16 + 4) + 128 * 64
    saved = inside * 1 + parts["shared_experts"] * 1 + parts["experts"] * (2 - 4.5 / 8)
    assert stored_bytes(model) == pytest.approx(2 * parameter_count(model) - saved, abs=1)
    listed = {"group_0": {"targets": list(MIXED_EXPERTS), "weights": NVFP4, "input_activations": NVFP4}}
    others = [each for each in MODELOPT_MIXED["quantized_layers"] if each not in MIXED_EXPERTS]  # type: ignore[attr-defined]
    listed["group_1"] = {"targets": others, "weights": FLOAT8, "input_activations": FLOAT8}
    grouped = {key: value for key, value in MODELOPT_MIXED.items() if key != "quantized_layers"}
    again = read(grouped | {"config_groups": listed}, **NEMOTRON)
    assert stored_bytes(again) == stored_bytes(model)
    assert [own_formats(again, index) for index in range(3)] == [own_formats(model, index) for index in range(3)]


INTX = {"_type": "IntxWeightOnlyConfig", "_data": {"weight_dtype": {"_type": "torch.dtype", "_data": "int8"}}}
INT4_32 = {
    "_type": "Int8DynamicActivationIntxWeightConfig",
    "_data": {
        "weight_dtype": {"_data": "int4"},
        "weight_granularity": {"_type": "PerGroup", "_data": {"group_size": 32}},
    },
}
BY_MODULE = {
    "_default": INT4_32,
    "model.embed_tokens": INTX,
    "re:.*0.mlp.*": INTX,
    "model.layers.1.self_attn.o_proj": None,
}
FP8_ATTENTION = {"group_1": {"targets": ["re:.*self_attn.*"], "weights": FLOAT8, "input_activations": FLOAT8}}
QUARK_LAYERS = {"*0.self_attn*": {"weight": QUARK_FP8, "input_tensors": QUARK_FP8}, "*1.mlp*": {}}
PLUS = {"+:.*0.mlp.*": {"bits": 8}, "-:.*self_attn.*": {}}


TORCHAO = {"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": BY_MODULE}}
GROUPED = group(NVFP4, NVFP4)["config_groups"]
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
FFN, MIXER = ("ffn", ""), ("mixer", "")


@pytest.mark.parametrize(
    ("config", "weights", "first", "second"),
    [
        ({"quant_method": "torchao", "quant_type": {"default": TORCHAO}}, "int4_g32", (("ffn", "int8_wo"),), (MIXER,)),
        (group(NVFP4, NVFP4) | {"config_groups": GROUPED | FP8_ATTENTION}, "fp4", *[(("mixer", "fp8"),)] * 2),
        (group(FLOAT8, FLOAT8) | {"config_groups": FP8_ATTENTION}, "fp8", (FFN,), (FFN,)),
        (quark(QUARK_FP4, QUARK_FP4) | {"layer_quant_config": QUARK_LAYERS}, "mxfp4", (("mixer", "fp8"),), (FFN,)),
        (GPTQ | {"dynamic": PLUS}, "int4", (MIXER, ("ffn", "int8_group")), (MIXER,)),
    ],
    ids=("torchao", "compressed-tensors", "targets alone", "quark", "gptq"),
)
def test_modules_of_other_schemes(config: dict[str, Any], weights: str, first: Any, second: Any) -> None:
    """The weights' format, and the blocks with others in the first and the second layer."""
    model = read(config)
    assert (model.weight_format, own_formats(model, 0), own_formats(model, 1)) == (weights, first, second)
    tables = "table or the output head is quantized in the checkpoint"
    assert any(tables in note for note in model.assumptions) == (config["quant_method"] == "torchao")


@pytest.mark.parametrize(
    ("ignored", "said"),
    [
        ([], True),
        (None, True),
        (["re:.*self_attn.*"], True),
        (["lm_head"], False),
        (["language_model.lm_head"], False),
        (["re:.*lm_head"], False),
    ],
)
def test_a_head_among_all_matrices_is_said_to_be_counted_unquantized(ignored: Any, said: bool) -> None:
    """Of compressed-tensors' "Linear" the output head is one, unless it is ignored; `targets` by name have none."""
    config = group(FLOAT8, FLOAT8)
    notes = [read(config | given | {"ignore": ignored}).assumptions for given in ({}, {"config_groups": FP8_ATTENTION})]
    assert [any("output head is quantized" in note for note in each) for each in notes] == [said, False]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"bits": 4, "group_size": 64}, ("int4_asym_g64s32", 4.5)),  # mlx_lm says 4.5 bits a weight
        ({"bits": 6, "group_size": 64}, ("int6_asym_g64s32", 6.5)),
        ({"bits": 8, "group_size": 64, "mode": "affine"}, ("int8_group_g64s32", 8.5)),
        ({"bits": 4, "group_size": 32, "mode": "mxfp4"}, ("mxfp4_wo", 4.25)),
        ({"bits": 4, "group_size": 16, "mode": "nvfp4"}, ("fp4_wo", 4.5)),
        ({"bits": 4, "group_size": 64, "mode": "nf4"}, "it must be one of affine"),
    ],
)
def test_mlx_has_no_method_and_modules_of_their_own(config: dict[str, Any], expected: Any) -> None:
    own = {"model.layers.0.mlp.down_proj": {"bits": 8}, "model.layers.1.self_attn.o_proj": False}
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            read(config)
        return
    model = read(config | own)
    assert model.quantization is not None and "as MLX writes it" in model.assumptions[0]
    assert (model.weight_format, float(bits_per_weight(model.quantization))) == expected
    affine = config.get("mode", "affine") == "affine" and config["bits"] < 8
    assert own_formats(model, 0) == ((("ffn", "int8_group_g64s32"),) if affine else ())
    assert own_formats(model, 1) == (("mixer", ""),)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers is missing"),
        (MODELOPT_MIXED | {"quantized_layers": {"a.b": {"quant_algo": None}}}, "names no layer with a quant_algo"),
        (MODELOPT_MIXED | {"quantized_layers": {"a.b": {"quant_algo": "FP9"}}}, 'quant_algo is "FP9"'),
        (
            {"quant_method": "torchao", "quant_type": {"default": TORCHAO | {"_data": {}}}},
            "module_fqn_to_config is null",
        ),
        (GPTQ | {"dynamic": {"+:(a+)+b": {"bits": 8}}}, "must be a plain regular expression"),
        (GPTQ | {"dynamic": {"+:a": 8}}, "a is 8; it must be an object"),
    ],
)
def test_mistakes_in_them_are_one_sentence(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(config)


def test_blocks_are_stored_read_and_multiplied_in_their_own_format() -> None:
    """w4afp8: attention and shared experts as in an FP8 checkpoint, routed experts as in one of 4 bits."""
    mixed, fp8 = (transformer(shipped("hunyuan-a13b", {"quant_method": name})) for name in ("w4afp8", "fp8"))
    at = {name: deployment(H100.replace(memory_capacity=4e13), weights=name) for name in ("int4", "fp8")}
    found, of_fp8 = decode_once(at["int4"], mixed, 8, 1000), decode_once(at["fp8"], fp8, 8, 1000)
    for name in ("qkv_projection", "output_projection", "shared_up_projection"):
        same = [float(found.kernels[name].time), float(found.kernels[name].bytes_moved)]
        assert same == [float(of_fp8.kernels[name].time), float(of_fp8.kernels[name].bytes_moved)]
    experts = 32 * 64 * 3 * 4096 * 3072
    saved = float(of_fp8.memory.weights - found.memory.weights)
    assert saved == pytest.approx(experts * (1 - 4.125 / 8), rel=1e-9)


def test_a_mixer_beside_another_has_a_format_of_its_own() -> None:
    """Falcon-H1: Mamba-2 in 16 bits beside quantized attention."""
    fp8 = {"quant_method": "fp8", "modules_to_not_convert": ["re:.*mamba.*"]}
    kept, plain = (shipped("falcon-h1-0.5b", each) for each in (fp8, {"quant_method": "fp8"}))
    mamba = stored_bytes(kept) - stored_bytes(plain)
    at = deployment(H100, weights="fp8")
    weights = [float(decode_once(at, transformer(each), 8, 1000).memory.weights) for each in (kept, plain)]
    assert mamba == weights[0] - weights[1] == 36 * (1024 * (2 * 1536 + 2 * 128 + 24) + 1536 * 1024)
