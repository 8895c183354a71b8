"""torchao's configs: one for all modules, or one for each of some (`ModuleFqnToConfig`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.mixed import ENDS_NOTE, mixed
from jaxperf.io.quantization.pieces import excluded_modules, group_size, is_pattern, nearest_format
from jaxperf.models.checks import show
from jaxperf.models.quantization import Quantization

# Class or, in older files, short name -> (kind, bits, default group, activations)
TORCHAO: Mapping[str, tuple[str, int, int | None, str | None]] = MappingProxyType(
    {
        "int4weightonly": ("int", 4, 128, None),
        "int8weightonly": ("int", 8, None, None),
        "int8dynamicactivationint8weight": ("int", 8, None, "int8"),
        "int8dynamicactivationint4weight": ("int", 4, 32, "int8"),
        "float8weightonly": ("float", 8, None, None),
        "float8dynamicactivationfloat8weight": ("float", 8, None, "fp8"),
        "float8dynamicactivationint4weight": ("int", 4, 128, "fp8"),
        "nvfp4weightonly": ("float", 4, 16, None),
        "nvfp4dynamicactivationnvfp4weight": ("float", 4, 16, "fp4"),
        "intxweightonly": ("int", 8, None, None),  # weight_dtype says how many bits
        "int8dynamicactivationintxweight": ("int", 8, 32, "int8"),
    }
)
BY_MODULE = ("modulefqnto", "fqnto", "aopermodule")
SCALES = {16: "fp8"}  # of NVFP4; others have 16 bits


def torchao(fields: Fields) -> Quantization:
    """`quant_type`: a short name, or `{"default": {"_type": class, "_data": its arguments}}`."""
    kind = fields.data.get("quant_type")
    arguments: Any = fields.data.get("quant_type_kwargs") or {}
    if isinstance(kind, Mapping) and isinstance(kind.get("default"), Mapping):
        kind, arguments = _typed(kind["default"])
    if fields.flag("include_input_output_embeddings", False):
        fields.notes.append(ENDS_NOTE)
    excluded = excluded_modules(fields, "modules_to_not_convert")
    if _key(kind) in BY_MODULE:
        return _by_module(fields, arguments, excluded)
    return dataclasses.replace(_scheme(fields, kind, arguments), excluded=excluded)


def _by_module(fields: Fields, arguments: Any, excluded: tuple[str, ...]) -> Quantization:
    """A config for each name or pattern, null for none; `_default` is that of all others."""
    table = arguments.get("module_fqn_to_config", arguments.get("fqn_to_config"))
    if not isinstance(table, Mapping) or not any(table.values()):
        raise InputError(f"module_fqn_to_config is {show(table)}; it must be an object with a config for some modules.")
    parts, kept = [], list(excluded)
    for name, config in table.items():
        if name.startswith("re:") and not is_pattern(name.removeprefix("re:")):
            raise InputError(f"module_fqn_to_config has {show(name)}; after re: it must be a plain regular expression.")
        if config is None and name != "_default":
            kept.append(name)
        elif config is not None:
            parts.append(((name,) if name != "_default" else (), _scheme(fields, *_typed(config))))
    return dataclasses.replace(mixed(fields, parts), excluded=tuple(kept))


def _typed(config: Any) -> tuple[Any, Mapping[str, Any]]:
    """The class and the arguments of `{"_type": ..., "_data": {...}}`."""
    if not isinstance(config, Mapping):
        return config, {}
    arguments = config.get("_data") or {}
    return config.get("_type"), arguments if isinstance(arguments, Mapping) else {}


def _key(kind: Any) -> str:
    return kind.replace("_", "").lower().removesuffix("config") if isinstance(kind, str) else ""


def _scheme(fields: Fields, kind: Any, arguments: Any) -> Quantization:
    if _key(kind) not in TORCHAO or not isinstance(arguments, Mapping):
        raise InputError(f"quant_type is {show(kind)}; it must be one of {', '.join(TORCHAO)} or ModuleFqnToConfig.")
    number, bits, group, activations = TORCHAO[_key(kind)]
    own = Fields(arguments, fields.name, "quant_type", fields.notes)
    if "intx" in _key(kind):
        bits, group = _intx_bits(arguments.get("weight_dtype")), _granularity(own, group)
    group = group_size(own, group)
    affine = number == "int" and bits < 8 and "intx" not in _key(kind)  # Intx is symmetric by default
    return Quantization(
        "torchao",
        nearest_format(fields, number, bits, activations, group, affine),
        bits,
        group,
        SCALES.get(group or 0, "bf16") if number == "float" else "bf16",
        zero_points=affine,
        activations=activations,
    )


def _intx_bits(dtype: Any) -> int:
    """Bits of `weight_dtype`: "int4", "torch.int4" or `{"_type": "torch.dtype", "_data": "int4"}`."""
    name = dtype.get("_data") if isinstance(dtype, Mapping) else "int8" if dtype is None else dtype
    bits = name.removeprefix("torch.").removeprefix("int") if isinstance(name, str) else ""
    if bits not in tuple("12345678"):
        raise InputError(f"weight_dtype is {show(name)}; it must be one of int1 to int8.")
    return int(bits)


def _granularity(own: Fields, default: int | None) -> int | None:
    """Weights to a scale of `weight_granularity` or `granularity`: a group, or a whole row (`PerAxis`)."""
    found = own.data.get("weight_granularity") or own.data.get("granularity")
    if not isinstance(found, Mapping):
        return default
    kind, arguments = _typed(found)
    if kind != "PerGroup":
        return None
    return group_size(Fields({**found, **arguments}, own.name, "granularity", own.notes), default)
