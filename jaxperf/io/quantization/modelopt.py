"""NVIDIA ModelOpt: one algorithm for all layers, or one for each of those that are quantized."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.groups import compressed_tensors, number_name
from jaxperf.io.quantization.mixed import OTHER_EXPERTS, mixed
from jaxperf.io.quantization.pieces import (
    choice,
    excluded_modules,
    group_size,
    inner_fields,
    nearest_format,
    short_text,
)
from jaxperf.models.checks import show
from jaxperf.models.quantization import Quantization

MIXED = "MIXED_PRECISION"
# ModelOpt's quant_algo -> (kind, bits, group, scale, activations)
ALGORITHMS: Mapping[str, tuple[str, int, int | None, str, str | None]] = MappingProxyType(
    {
        "FP8": ("float", 8, None, "fp32", "fp8"),
        "FP8_PER_CHANNEL_PER_TOKEN": ("float", 8, None, "fp32", "fp8"),
        "FP8_PB_REAL": ("float", 8, 128 * 128, "fp32", "fp8"),
        "FP8_BLOCK_SCALES": ("float", 8, 128 * 128, "fp32", "fp8"),
        "FP8_PB_WO": ("float", 8, 128 * 128, "fp32", None),
        "NVFP4": ("float", 4, 16, "fp8", "fp4"),
        "NVFP4_AWQ": ("float", 4, 16, "fp8", "fp4"),
        "W4A16_NVFP4": ("float", 4, 16, "fp8", None),
        "W4A8_NVFP4_FP8": ("float", 4, 16, "fp8", "fp8"),
        "W4A8_MXFP4_FP8": ("float", 4, 32, "e8m0", "fp8"),
        "MXFP4": ("float", 4, 32, "e8m0", "fp4"),
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
    """Flat in config.json, or under `quantization` as in its own hf_quant_config.json."""
    fields = inner_fields(fields, "quantization") or fields
    algorithm = (short_text(fields, "quant_algo", None) or "").upper()
    layers = inner_fields(fields, "quantized_layers") if algorithm == MIXED else None
    if layers is not None:
        scheme = _by_layer(fields, inner_fields(layers, "quantized_layers") or layers)
    elif algorithm not in ALGORITHMS and fields.find("config_groups"):
        scheme = compressed_tensors(fields, "modelopt")
    elif algorithm == MIXED:
        raise InputError("quant_algo is MIXED_PRECISION and quantized_layers is missing; it must name the layers.")
    else:
        scheme = _scheme(fields, algorithm)
    cache = choice(fields, "kv_cache_quant_algo", tuple(CACHE_ALGORITHMS), "NONE")
    found = inner_fields(fields, "kv_cache_scheme")
    kept = excluded_modules(fields, "exclude_modules", "ignore")
    return dataclasses.replace(
        scheme,
        kv_cache=CACHE_ALGORITHMS[cache] or (None if found is None else number_name(found)),
        excluded=tuple(dict.fromkeys((*scheme.excluded, *kept))),
    )


def _scheme(fields: Fields, algorithm: str) -> Quantization:
    if algorithm not in ALGORITHMS:
        raise InputError(f"quant_algo is {show(algorithm)}; it must be one of {', '.join(ALGORITHMS)}, {MIXED}.")
    kind, bits, group, scale, activations = ALGORITHMS[algorithm]
    group = group_size(fields, group)
    name = nearest_format(fields, kind, bits, activations, group)
    return Quantization("modelopt", name, bits, group, scale, activations=activations)


def _by_layer(fields: Fields, layers: Fields) -> Quantization:
    """`quant_algo` of each module that is quantized; the others are not."""
    parts, kept = [], []
    for name in layers.data:
        if OTHER_EXPERTS.search(name):
            continue
        own = inner_fields(layers, name)
        algorithm = (short_text(own, "quant_algo", None) or "NONE").upper() if own else "NONE"
        if own is None or algorithm in ("NONE", "UNQUANTIZED"):
            kept.append(name)
        else:
            parts.append(((name,), _scheme(own, algorithm)))
    if not parts:
        raise InputError("quantized_layers names no layer with a quant_algo; at least one is needed.")
    return dataclasses.replace(mixed(fields, parts), excluded=tuple(kept))
