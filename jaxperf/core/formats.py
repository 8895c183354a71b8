"""Number formats: what a stored weight weighs, what a matrix unit multiplies, and what stands in where it cannot.

Names follow the field: `fp8`, `int8`, `fp4` (NVFP4) and the microscaling formats `mxfp8`, `mxfp6`, `mxfp4` (OCP MX 1.0)
quantize weights and activations (W8A8, W4A4); names in `_wo`, `int4`, `int4_asym` and `int8_group` are weight-only
(W8A16, W4A16): stored small, multiplied in bf16; those in `_fp8` are multiplied with fp8 activations (W4A8). Bytes of
an element contain its share of the block's scale; a scale per tensor or per channel weighs nothing beside its elements
and is left out. The integer formats whose 128 weights share a scale have other groups under `int4_g32` and the like
(`core.group_names`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.group_names import in_groups
from jaxperf.core.numerics import as_float

# Axis of `Device.peak_flops`: the arithmetic a matrix unit can do natively.
COMPUTE_FORMATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")

# Where a device lacks an arithmetic, libraries dequantize to the next one that it has; the result says so.
STAND_INS = {
    "tf32": ("fp32",),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
    "fp4": ("bf16", "fp16", "fp32"),
    "int4": ("bf16", "fp16", "fp32"),
    "fp64": (),
    "fp32": (),
}


@dataclass(frozen=True)
class FormatFacts:
    """Bytes of one stored element with its share of the scales, and of one operand entering the matrix unit; its
    arithmetic; the format of the activations that go with it (residual stream, attention, embedding tables); and
    whether a matrix unit has to take the scales of MX blocks to multiply it as it is stored."""

    itemsize: float
    operand_itemsize: float
    compute: str
    activations: str
    note: str
    microscaled: bool = False


def with_scale(bits: float, block: float, scale_bytes: float) -> float:
    """Bytes of an element of `bits` bits in blocks of `block` elements that share `scale_bytes` of scale and zero."""
    return bits / 8.0 + scale_bytes / block


def _narrow(itemsize: float, compute: str, note: str, microscaled: bool = False) -> FormatFacts:
    """Weights and activations alike (W8A8, W4A4)."""
    return FormatFacts(itemsize, itemsize, compute, "bf16", note, microscaled)


def _weight_only(itemsize: float, note: str) -> FormatFacts:
    """Stored small, multiplied in bf16."""
    return FormatFacts(itemsize, 2.0, "bf16", "bf16", note)


class _Formats(Mapping[str, FormatFacts]):
    """The formats by name, listed with groups of 128 weights, and those of groups of any size besides."""

    def __init__(self, listed: Mapping[str, FormatFacts]) -> None:
        self._listed = listed

    def __getitem__(self, name: str) -> FormatFacts:
        grouped = in_groups(name) if name not in self._listed else None
        if grouped is None:
            return self._listed[name]
        base, bits = grouped
        return replace(self._listed[base], itemsize=bits / 8.0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


_LISTED = {
    "fp64": FormatFacts(8.0, 8.0, "fp64", "fp64", "IEEE double; devices without it have no time for it"),
    "fp32": FormatFacts(4.0, 4.0, "fp32", "fp32", "IEEE single on the vector or matrix units without TF32"),
    "tf32": FormatFacts(4.0, 4.0, "tf32", "tf32", "stored as fp32, multiplied as TF32"),
    "bf16": FormatFacts(2.0, 2.0, "bf16", "bf16", "16-bit brain float"),
    "fp16": FormatFacts(2.0, 2.0, "fp16", "fp16", "IEEE half"),
    "fp8": _narrow(1.0, "fp8", "W8A8, E4M3, per-tensor or per-token scales (negligible bytes)"),
    "int8": _narrow(1.0, "int8", "W8A8, per-channel scales (negligible bytes)"),
    "fp4": _narrow(
        with_scale(4, 16, 1), "fp4", "W4A4 NVFP4: an fp8 scale per 16 elements, fp32 per tensor (negligible)"
    ),
    "mxfp8": _narrow(with_scale(8, 32, 1), "fp8", "W8A8 OCP MX: one E8M0 scale per 32 elements", True),
    "mxfp6": _narrow(
        with_scale(6, 32, 1), "fp8", "W6A6 OCP MX; counted at the fp8 rate (CDNA 4 is twice as fast)", True
    ),
    "mxfp4": _narrow(with_scale(4, 32, 1), "fp4", "W4A4 OCP MX: one E8M0 scale per 32 elements", True),
    "fp8_wo": _weight_only(1.0, "W8A16 weight-only, per-tensor or per-channel scales"),
    "int8_wo": _weight_only(1.0, "W8A16 weight-only, per-channel scales"),
    "int8_group": _weight_only(with_scale(8, 128, 2), "W8A16 weight-only, one fp16 scale per 128 elements (GPTQ)"),
    "int4": _weight_only(with_scale(4, 128, 2), "W4A16 weight-only, one fp16 scale per 128 elements"),
    "int4_asym": _weight_only(with_scale(4, 128, 2.5), "W4A16, fp16 scale and 4-bit zero per 128 elements (AWQ, GPTQ)"),
    "mxfp4_wo": _weight_only(with_scale(4, 32, 1), "W4A16 OCP MX (gpt-oss where fp4 is not multiplied natively)"),
    "fp4_wo": _weight_only(with_scale(4, 16, 1), "W4A16 NVFP4"),
    "mxfp4_fp8": FormatFacts(
        with_scale(4, 32, 1), 1.0, "fp8", "bf16", "W4A8: OCP MX weights, fp8 activations (DeepSeek V4's experts)", True
    ),
    "int4_fp8": FormatFacts(with_scale(4, 128, 2), 1.0, "fp8", "bf16", "W4A8: int4 weights, fp8 activations (W4AFP8)"),
}
FORMATS = _Formats(_LISTED)
# Every spelling that options and tables of any kind may have.
FORMAT_ALIASES = {
    **dict.fromkeys(("int4_wo", "int4_weight_only", "w4a16", "gptq", "int4_gptq", "w4a16_gptq"), "int4"),
    **dict.fromkeys(("awq", "int4_awq", "w4a16_awq"), "int4_asym"),
    **dict.fromkeys(("w8a16", "int8_weight_only"), "int8_wo"),
    **dict.fromkeys(("w8a8", "w8a8_int8", "sq", "smoothquant"), "int8"),
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "e4m3", "e5m2", "f8e4m3", "float8", "float8_e4m3", "float8_e5m2"), "fp8"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "fp8_e4m3fn", "w8a8_fp8"), "fp8"),
    # By how scales are made, as engines and trainers call it: for each block, current or delayed.
    **dict.fromkeys(("fp8_block", "fp8_static", "fp8_dynamic", "fp8_hybrid", "fp8_cs", "fp8_ds", "fp8_sc"), "fp8"),
    "fp8_weight_only": "fp8_wo",
    "fp8_mx": "mxfp8",
    **dict.fromkeys(("w4a16_mxfp4", "mxfp4_weight_only"), "mxfp4_wo"),
    "nvfp4": "fp4",
    **dict.fromkeys(("nvfp4_wo", "w4a16_nvfp4"), "fp4_wo"),
    **dict.fromkeys(("double", "float64"), "fp64"),
    **dict.fromkeys(("float", "float32"), "fp32"),
    "tensorfloat32": "tf32",
    **dict.fromkeys(("bfloat16", "bf16_mixed"), "bf16"),
    **dict.fromkeys(("float16", "half", "fp16_mixed"), "fp16"),
}
CACHE_FORMATS = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4")


def as_index(x: Any) -> Array:
    """A place, or an array of places, in a list of names."""
    return jnp.asarray(x, jnp.int32)


class NumberFormat(eqx.Module):
    """One number format as arrays, so that formats can be a sweep axis.

    `itemsize`: stored bytes per element with scales [byte]; `operand_itemsize`: bytes of an activation entering the
    matrix unit [byte]; `compute`: index into `COMPUTE_FORMATS`.
    """

    itemsize: Float[Array, "*batch"] = eqx.field(converter=as_float)
    operand_itemsize: Float[Array, "*batch"] = eqx.field(converter=as_float)
    compute: Int[Array, "*batch"] = eqx.field(converter=as_index)


def format_name(name: str, allowed: Collection[str] = FORMATS) -> str:
    """The canonical name of a format; raises `InputError` with the allowed names."""
    key = str(name).strip().lower().replace("-", "_")
    key = FORMAT_ALIASES.get(key, key)
    if key not in allowed:
        hint = did_you_mean(key, allowed)
        raise InputError(f"Unknown number format {name!r}; allowed here: {', '.join(allowed)}.{hint}")
    return key


def number_format(name: str | NumberFormat) -> NumberFormat:
    """`NumberFormat` of a name; a `NumberFormat` passes through."""
    if isinstance(name, NumberFormat):
        return name
    facts = FORMATS[format_name(name)]
    return NumberFormat(facts.itemsize, facts.operand_itemsize, COMPUTE_FORMATS.index(facts.compute))
