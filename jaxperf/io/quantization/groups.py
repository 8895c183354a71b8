"""Quantization configs that describe groups of modules: compressed-tensors, and NVIDIA ModelOpt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.pieces import (
    WIDEST,
    choice,
    excluded_modules,
    group_size,
    inner_fields,
    nearest_format,
    short_text,
)
from jaxperf.models.checks import check_count, show
from jaxperf.models.quantization import Quantization


def compressed_tensors(fields: Fields) -> Quantization:
    """Groups of modules, each with its weights and activations; the first group with weights stands for all."""
    groups = inner_fields(fields, "config_groups")
    if groups is None:
        raise InputError("the required field config_groups is missing; compressed-tensors needs an object.")
    schemes = [each for name in groups.data if (each := inner_fields(groups, name)) and each.find("weights")]
    if not schemes:
        raise InputError("config_groups has no group with weights; at least one is needed.")
    if any(each.data["weights"] != schemes[0].data["weights"] for each in schemes[1:]):
        fields.notes.append("config_groups quantizes modules differently; the first group was taken for all of them.")
    weights, inputs = inner_fields(schemes[0], "weights"), inner_fields(schemes[0], "input_activations")
    assert weights is not None
    if fields.find("sparsity_config") and inner_fields(fields, "sparsity_config").find("format"):  # type: ignore[union-attr]
        fields.notes.append("sparsity_config is ignored; the weights are counted as dense.")
    kind, bits = choice(weights, "type", ("int", "float"), "int"), weights.count("num_bits", largest=WIDEST)
    activations = None if inputs is None else _number(inputs)
    group, symmetric = _shared_by(weights), weights.flag("symmetric", True)
    return Quantization(
        "compressed-tensors",
        nearest_format(fields, kind, bits, activations, group, not symmetric),
        bits,
        group,
        _group_scale(kind, bits, group),
        zero_points=not symmetric,
        activations=activations,
        kv_cache=None if (cache := inner_fields(fields, "kv_cache_scheme")) is None else _number(cache),
        excluded=excluded_modules(fields, "ignore"),
    )


def _number(scheme: Fields) -> str | None:
    """An activation or cache scheme as "fp8", "int8", "fp4"; 16 bits are not quantized."""
    bits = scheme.count("num_bits", largest=WIDEST)
    if bits == WIDEST:
        return None
    return ("int" if choice(scheme, "type", ("int", "float"), "int") == "int" else "fp") + str(bits)


def _shared_by(weights: Fields) -> int | None:
    strategy = choice(weights, "strategy", ("tensor", "channel", "group", "block", "token", "tensor_group"), "tensor")
    if strategy == "block":
        found = weights.find("block_structure")
        if found and isinstance(found[1], str) and (sides := re.fullmatch(r"(\d{1,9})x(\d{1,9})", found[1])):
            return check_count("block_structure", int(sides[1]) * int(sides[2]))  # "128x128", as older files have it
        block = weights.listing("block_structure", int, 2, "side of a block")
        return 128 * 128 if block is None else check_count("block_structure", block[0] * block[1])
    if strategy in ("group", "tensor_group"):
        return group_size(weights, "group_size", 128)
    return None


def _group_scale(kind: str, bits: int, group: int | None) -> str:
    """NVFP4 scales groups of 16 with fp8, MX formats groups of 32 with a power of two; others with 16 bits."""
    if kind == "float" and group in (16, 32):
        return "fp8" if group == 16 and bits == 4 else "e8m0"
    return "bf16"


# ModelOpt's quant_algo -> (kind, bits, group, scale, activations)
ALGORITHMS: Mapping[str, tuple[str, int, int | None, str, str | None]] = MappingProxyType(
    {
        "FP8": ("float", 8, None, "fp32", "fp8"),
        "FP8_PER_CHANNEL_PER_TOKEN": ("float", 8, None, "fp32", "fp8"),
        "FP8_PB_REAL": ("float", 8, 128 * 128, "fp32", "fp8"),
        "FP8_PB_WO": ("float", 8, 128 * 128, "fp32", None),
        "NVFP4": ("float", 4, 16, "fp8", "fp4"),
        "NVFP4_AWQ": ("float", 4, 16, "fp8", "fp4"),
        "MXFP8": ("float", 8, 32, "e8m0", "fp8"),
        "INT4_AWQ": ("int", 4, 128, "fp16", None),
        "W4A16_AWQ": ("int", 4, 128, "fp16", None),
        "W4A8_AWQ": ("int", 4, 128, "fp16", "fp8"),
        "INT8_SQ": ("int", 8, None, "fp32", "int8"),
        "W8A8_SQ_PER_CHANNEL": ("int", 8, None, "fp32", "int8"),
        "W8A16": ("int", 8, None, "fp16", None),
        "W4A16": ("int", 4, 128, "fp16", None),
    }
)
CACHE_ALGORITHMS: Mapping[str, str | None] = MappingProxyType(
    {"FP8": "fp8", "NVFP4": "fp4", "INT8": "int8", "NONE": None}
)


def modelopt(fields: Fields) -> Quantization:
    """NVIDIA ModelOpt, flat in config.json or under `quantization` as in its own hf_quant_config.json."""
    fields = inner_fields(fields, "quantization") or fields
    algorithm = short_text(fields, "quant_algo", None)
    if algorithm is None or (algorithm not in ALGORITHMS and fields.find("config_groups")):
        return compressed_tensors(fields)
    if algorithm not in ALGORITHMS:
        raise InputError(f"quant_algo is {show(algorithm)}; it must be one of {', '.join(ALGORITHMS)}.")
    kind, bits, group, scale, activations = ALGORITHMS[algorithm]
    cache = choice(fields, "kv_cache_quant_algo", tuple(CACHE_ALGORITHMS), "NONE")
    scheme, group = inner_fields(fields, "kv_cache_scheme"), group_size(fields, "group_size", group)
    return Quantization(
        "modelopt",
        nearest_format(fields, kind, bits, activations, group),
        bits,
        group,
        scale,
        activations=activations,
        kv_cache=CACHE_ALGORITHMS[cache] or (None if scheme is None else _number(scheme)),
        excluded=excluded_modules(fields, "exclude_modules", "ignore"),
    )


# AMD Quark's dtype -> (kind, bits)
QUARK: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "fp8_e4m3": ("float", 8),
        "fp4": ("float", 4),
        "fp6_e3m2": ("float", 6),
        "fp6_e2m3": ("float", 6),
        "int8": ("int", 8),
        "int4": ("int", 4),
        "uint4": ("int", 4),
    }
)


def quark(fields: Fields) -> Quantization:
    """AMD Quark: `global_quant_config` with the weights and the input tensors; layers of their own are not read."""
    overall = inner_fields(fields, "global_quant_config")
    weights = inner_fields(overall, "weight") if overall else None
    if overall is None or weights is None:
        raise InputError("global_quant_config.weight is missing; quark needs it with a dtype.")
    if fields.find("layer_quant_config") and fields.data["layer_quant_config"]:
        fields.notes.append("quark's layer_quant_config is ignored; global_quant_config was taken for all layers.")
    kind, bits = _quark_number(weights)
    inputs = inner_fields(overall, "input_tensors")
    activations = None if inputs is None else "{}{}".format(*_short(_quark_number(inputs)))
    group = group_size(weights, "group_size", None) if short_text(weights, "qscheme", "") == "per_group" else None
    return Quantization(
        "quark",
        nearest_format(fields, kind, bits, activations, group),
        bits,
        group,
        _group_scale(kind, bits, group),
        activations=activations,
        excluded=excluded_modules(fields, "exclude"),
    )


def _quark_number(tensor: Fields) -> tuple[str, int]:
    name = short_text(tensor, "dtype", None)
    if name is None or name not in QUARK:
        raise InputError(f"dtype is {show(name)}; it must be one of {', '.join(QUARK)}.")
    return QUARK[name]


def _short(number: tuple[str, int]) -> tuple[str, int]:
    kind, bits = number
    return ("fp" if kind == "float" else "int"), bits
