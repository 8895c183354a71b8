"""One small function per quantization method, from the fields of its config to the scheme.

Fields and defaults are those of the quantization classes of Hugging Face transformers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.groups import compressed_tensors, quark
from jaxperf.io.quantization.integers import auto_round, awq, gptq
from jaxperf.io.quantization.mixed import mixed
from jaxperf.io.quantization.modelopt import modelopt
from jaxperf.io.quantization.pieces import (
    WIDEST,
    choice,
    excluded_modules,
    group_size,
    inner_fields,
    nearest_format,
    short_text,
)
from jaxperf.io.quantization.torchao import torchao
from jaxperf.models.checks import check_count, show
from jaxperf.models.quantization import Quantization

NOT_EXPERTS = ("self_attn", "shared_experts", r"re:.*mlp\.(gate|up|gate_up|down)_proj")  # of DeepSeek and its like


def _fp8(fields: Fields) -> Quantization:
    """W8A8 with one fp32 scale to a block of weights (DeepSeek-V3, arXiv:2412.19437, section 3.3.2) or to a tensor."""
    choice(fields, "activation_scheme", ("dynamic", "static"), "dynamic")
    block = fields.listing("weight_block_size", int, 2, "side of a block")
    for side in block or ():
        check_count("An item of weight_block_size", side)
    return Quantization(
        "fp8",
        "fp8",
        8,
        block[0] * block[1] if block else None,
        "fp32",
        activations="fp8",
        excluded=excluded_modules(fields, "modules_to_not_convert", "ignored_layers"),
    )


def _w8a8_fp8(fields: Fields) -> Quantization:
    """W8A8 with one scale to a row (SGLang)."""
    excluded = excluded_modules(fields, "modules_to_not_convert", "ignored_layers", "ignore")
    return Quantization("w8a8_fp8", "fp8", 8, None, "fp32", activations="fp8", excluded=excluded)


def _w8a8_int8(fields: Fields) -> Quantization:
    """W8A8 with one fp32 scale to a row, or to a block where `weight_block_size` is given (SGLang's blockwise_int8)."""
    block = fields.listing("weight_block_size", int, 2, "side of a block")
    for side in block or ():
        check_count("An item of weight_block_size", side)
    excluded = excluded_modules(fields, "modules_to_not_convert", "ignored_layers", "ignore")
    group = block[0] * block[1] if block else None
    return Quantization("w8a8_int8", "int8", 8, group, "fp32", activations="int8", excluded=excluded)


def _fp_quant(fields: Fields) -> Quantization:
    """W4A4 after Hadamard transforms (arXiv:2509.23202): NVFP4 or MXFP4."""
    group, scale = {"nvfp4": (16, "fp8"), "mxfp4": (32, "e8m0")}[
        choice(fields, "forward_dtype", ("nvfp4", "mxfp4"), "nvfp4")
    ]
    name = nearest_format(fields, "float", 4, "fp4", group)
    excluded = excluded_modules(fields, "modules_to_not_convert")
    return Quantization("fp_quant", name, 4, group, scale, activations="fp4", excluded=excluded)


def _higgs(fields: Fields) -> Quantization:
    """Grids of Gaussian optimal points, one fp16 scale to a group (arXiv:2411.17525)."""
    bits = 4 if fields.find("bits") is None else fields.count("bits", largest=8)
    group, excluded = group_size(fields, 256), excluded_modules(fields, "modules_to_not_convert")
    return Quantization("higgs", nearest_format(fields, "codebook", bits, None), bits, group, excluded=excluded)


def _w4afp8(fields: Fields) -> Quantization:
    """Routed experts in 4 bits times fp8, one scale to 128 weights, and all else as in `_fp8` (SGLang's w4afp8)."""
    rest = _fp8(fields)
    experts = Quantization("w4afp8", "int4_fp8", 4, group_size(fields, 128), "bf16", activations="fp8")
    parts = [((), experts), (NOT_EXPERTS, dataclasses.replace(rest, method="w4afp8", excluded=()))]
    return dataclasses.replace(mixed(fields, parts), excluded=rest.excluded)


def _fbgemm_fp8(fields: Fields) -> Quantization:
    """W8A8 with one scale to a row (Llama 3.1 405B FP8)."""
    return Quantization(
        "fbgemm_fp8",
        "fp8",
        8,
        None,
        "fp32",
        activations="fp8",
        excluded=excluded_modules(fields, "modules_to_not_convert"),
    )


def bitsandbytes(fields: Fields) -> Quantization:
    """LLM.int8() (arXiv:2208.07339) or 4-bit blocks of 64 (QLoRA, arXiv:2305.14314), whose scales may be quantized."""
    excluded = excluded_modules(fields, "llm_int8_skip_modules")
    if fields.flag("load_in_8bit", False):
        return Quantization("bitsandbytes", "int8", 8, None, "fp32", activations="int8", excluded=excluded)
    if not fields.flag("load_in_4bit", False):
        raise InputError("load_in_4bit and load_in_8bit are both false; one of them must be true.")
    choice(fields, "bnb_4bit_quant_type", ("nf4", "fp4"), "fp4")
    scale = "int8" if fields.flag("bnb_4bit_use_double_quant", False) else "fp32"
    return Quantization("bitsandbytes", "int4", 4, 64, scale, excluded=excluded)


def _mxfp4(fields: Fields) -> Quantization:
    """OCP microscaling: E2M1 in groups of 32 with a power-of-two scale; the experts of gpt-oss, times bf16."""
    name = nearest_format(fields, "float", 4, None, 32)
    return Quantization("mxfp4", name, 4, 32, "e8m0", excluded=excluded_modules(fields, "modules_to_not_convert"))


def _quanto(fields: Fields) -> Quantization:
    kinds = {"float8": ("float", 8), "int8": ("int", 8), "int4": ("int", 4), "int2": ("int", 2)}
    kind, bits = kinds[choice(fields, "weights", tuple(kinds), "int8")]
    inputs = short_text(fields, "activations", None)
    if inputs is not None and inputs not in ("int8", "float8"):
        raise InputError(f"activations is {show(inputs)}; it must be int8, float8 or null.")
    activations = {"int8": "int8", "float8": "fp8", None: None}[inputs]
    group = 128 if bits < 8 else None
    name = nearest_format(fields, kind, bits, activations, group, bits < 8)
    excluded = excluded_modules(fields, "modules_to_not_convert")
    return Quantization(
        "quanto",
        name,
        bits,
        group,
        zero_points=bits < 8,
        activations=activations,
        excluded=excluded,
    )


def _hqq(fields: Fields) -> Quantization:
    """Half-quadratic quantization: `quant_config.weight_quant_params` holds the bits and the group."""
    inner = inner_fields(fields, "quant_config")
    weights = inner_fields(inner, "weight_quant_params") if inner else None
    if weights is None:
        raise InputError("quant_config.weight_quant_params is missing; hqq needs it with nbits and group_size.")
    bits, group = weights.count("nbits", largest=8), group_size(weights, None)
    return Quantization(
        "hqq",
        nearest_format(fields, "int", bits, None, group, asymmetric=True),
        bits,
        group,
        zero_points=True,
        excluded=excluded_modules(fields, "skip_modules"),
    )


def _eetq(fields: Fields) -> Quantization:
    choice(fields, "weights", ("int8",), "int8")
    return Quantization("eetq", "int8_wo", 8, None, excluded=excluded_modules(fields, "modules_to_not_convert"))


def _aqlm(fields: Fields) -> Quantization:
    """Codebooks (arXiv:2401.06118): bits = codebooks x bits of an index / weights that one index stands for."""
    group = (fields.optional_count("in_group_size") or 8) * (fields.optional_count("out_group_size") or 1)
    index = (fields.optional_count("num_codebooks") or 1) * (fields.optional_count("nbits_per_codebook") or 16)
    bits = Fraction(index, group)
    if bits > WIDEST:
        raise InputError(f"num_codebooks and nbits_per_codebook give {float(bits):.3g} bits to a weight; at most 16.")
    return Quantization(
        "aqlm",
        nearest_format(fields, "codebook", bits, None),
        bits,
        excluded=excluded_modules(fields, "linear_weights_not_to_quantize"),
    )


def _bitnet(fields: Fields) -> Quantization:
    """Ternary weights, four to a byte, times int8 activations (arXiv:2402.17764)."""
    name = nearest_format(fields, "int", 2, "int8")
    excluded = excluded_modules(fields, "modules_to_not_convert")
    return Quantization("bitnet", name, 2, None, activations="int8", excluded=excluded)


METHODS: Mapping[str, Callable[[Fields], Quantization]] = MappingProxyType(
    {
        "gptq": gptq,
        "gptq-marlin": gptq,
        "awq": awq,
        "awq-marlin": awq,
        "auto-round": auto_round,
        "intel/auto-round": auto_round,
        "inc": auto_round,
        "fp8": _fp8,
        "w4afp8": _w4afp8,
        "fbgemm-fp8": _fbgemm_fp8,
        "w8a8-fp8": _w8a8_fp8,
        "w8a8-int8": _w8a8_int8,
        "blockwise-int8": _w8a8_int8,
        "bitsandbytes": bitsandbytes,
        "compressed-tensors": compressed_tensors,
        "modelopt": modelopt,
        "modelopt-fp4": modelopt,
        "modelopt-mixed": modelopt,
        "mxfp4": _mxfp4,
        "fp-quant": _fp_quant,
        "quark": quark,
        "quanto": _quanto,
        "hqq": _hqq,
        "eetq": _eetq,
        "aqlm": _aqlm,
        "higgs": _higgs,
        "bitnet": _bitnet,
        "torchao": torchao,
    }
)
