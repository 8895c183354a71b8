"""Quantization configs that describe groups of modules: compressed-tensors, and AMD Quark."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.mixed import ENDS_NOTE, mixed, module_names
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

HEADS = ("lm_head", "language_model.lm_head", "model.lm_head")


def compressed_tensors(fields: Fields, method: str = "compressed-tensors") -> Quantization:
    """Groups of modules, each with its weights and activations; `targets` names them, or a class for all of them."""
    groups = inner_fields(fields, "config_groups")
    if groups is None:
        raise InputError("the required field config_groups is missing; compressed-tensors needs an object.")
    found = [each for name in groups.data if (each := inner_fields(groups, name)) and each.find("weights")]
    if not found:
        raise InputError("config_groups has no group with weights; at least one is needed.")
    if fields.find("sparsity_config") and inner_fields(fields, "sparsity_config").find("format"):  # type: ignore[union-attr]
        fields.notes.append("sparsity_config is ignored; the weights are counted as dense.")
    cache = inner_fields(fields, "kv_cache_scheme")
    parts = [(module_names(excluded_modules(each, "targets")), _group(each, method)) for each in found]
    ignored = excluded_modules(fields, "ignore")
    if not all(modules for modules, _ in parts) and not any(map(_is_head, ignored)):
        fields.notes.append(ENDS_NOTE)  # the head is a Linear as the matrices of the layers are
    return dataclasses.replace(
        mixed(fields, parts),
        kv_cache=None if cache is None else number_name(cache),
        excluded=ignored,
    )


def _is_head(module: str) -> bool:
    """Whether a name or a pattern of modules is of an output head."""
    if module.startswith("re:"):
        return any(re.match(module.removeprefix("re:"), head) for head in HEADS)
    return module.endswith(HEADS[0])


def _group(group: Fields, method: str) -> Quantization:
    weights, inputs = inner_fields(group, "weights"), inner_fields(group, "input_activations")
    assert weights is not None
    kind, bits = choice(weights, "type", ("int", "float"), "int"), weights.count("num_bits", largest=WIDEST)
    activations = None if inputs is None else number_name(inputs)
    size, symmetric = _shared_by(weights), weights.flag("symmetric", True)
    return Quantization(
        method,
        nearest_format(group, kind, bits, activations, size, not symmetric),
        bits,
        size,
        group_scale(kind, bits, size),
        zero_points=not symmetric,
        activations=activations,
    )


def number_name(scheme: Fields) -> str | None:
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
        return group_size(weights, 128)
    return None


def group_scale(kind: str, bits: int, group: int | None) -> str:
    """NVFP4 scales groups of 16 with fp8, MX formats groups of 32 with a power of two; others with 16 bits."""
    if kind == "float" and group in (16, 32):
        return "fp8" if group == 16 and bits == 4 else "e8m0"
    return "bf16"


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
    """AMD Quark: `global_quant_config` with the weights and the input tensors; `layer_quant_config` has patterns of
    modules with their own."""
    overall = inner_fields(fields, "global_quant_config")
    if overall is None or inner_fields(overall, "weight") is None:
        raise InputError("global_quant_config.weight is missing; quark needs it with a dtype.")
    parts: list[tuple[tuple[str, ...], Quantization]] = [((), _quark_scheme(overall))]
    kept, layers = list(excluded_modules(fields, "exclude")), inner_fields(fields, "layer_quant_config")
    for name in () if layers is None else layers.data:
        own = inner_fields(layers, name)  # type: ignore[arg-type]
        if own is None or inner_fields(own, "weight") is None:
            kept.append(name)
        else:
            parts.append(((name,), _quark_scheme(own)))
    return dataclasses.replace(mixed(fields, parts), excluded=tuple(kept))


def _quark_scheme(scheme: Fields) -> Quantization:
    weights, inputs = inner_fields(scheme, "weight"), inner_fields(scheme, "input_tensors")
    assert weights is not None
    kind, bits = _quark_number(weights)
    activations = None if inputs is None else "{}{}".format(*_short(_quark_number(inputs)))
    group = group_size(weights, None) if short_text(weights, "qscheme", "") == "per_group" else None
    return Quantization(
        "quark",
        nearest_format(scheme, kind, bits, activations, group),
        bits,
        group,
        group_scale(kind, bits, group),
        activations=activations,
    )


def _quark_number(tensor: Fields) -> tuple[str, int]:
    name = short_text(tensor, "dtype", None)
    if name is None or name not in QUARK:
        raise InputError(f"dtype is {show(name)}; it must be one of {', '.join(QUARK)}.")
    return QUARK[name]


def _short(number: tuple[str, int]) -> tuple[str, int]:
    kind, bits = number
    return ("fp" if kind == "float" else "int"), bits
