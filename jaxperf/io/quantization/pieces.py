"""What the quantization methods of Hugging Face configs share: checked access to fields, and the names of formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from hwspecs.errors import InputError
from jaxperf.core.group_names import UNLISTED
from jaxperf.io.config_fields import Fields
from jaxperf.models.checks import LARGEST_COUNT, show
from jaxperf.models.quantization import Quantization

WIDEST = 16  # bits of a stored weight above which nothing is quantized

Format = tuple[str, int, str | None]  # number type, bits of a weight, format of the activations

# What schemes are called in `jaxperf.core.formats`; all others are stood in for, and said to be.
NAMES: Mapping[Format, str] = MappingProxyType(
    {
        ("float", 8, "fp8"): "fp8",
        ("float", 8, None): "fp8_wo",
        ("float", 4, "fp4"): "fp4",
        ("float", 4, None): "fp4_wo",
        ("int", 8, "int8"): "int8",
        ("int", 8, None): "int8_wo",
        ("int", 4, None): "int4",
        ("int", 4, "fp8"): "int4_fp8",
    }
)
# The same where 32 weights share a power of two (OCP microscaling), where groups have a scale, and a zero point too.
MICROSCALED: Mapping[Format, str] = MappingProxyType(
    {
        ("float", 8, "fp8"): "mxfp8",
        ("float", 6, "fp6"): "mxfp6",
        ("float", 4, "fp4"): "mxfp4",
        ("float", 4, None): "mxfp4_wo",
        ("float", 4, "fp8"): "mxfp4_fp8",
    }
)
GROUPED: Mapping[Format, str] = MappingProxyType({("int", 8, None): "int8_group"})
ASYMMETRIC: Mapping[Format, str] = MappingProxyType({("int", 4, None): "int4_asym"})

# Bits of a weight with its share of the scales in those formats, which cannot be imported here without JAX.
FORMAT_BITS: Mapping[str, float] = MappingProxyType(
    {
        "fp8": 8.0,
        "fp8_wo": 8.0,
        "mxfp8": 8.25,
        "mxfp6": 6.25,
        "fp4": 4.5,
        "fp4_wo": 4.5,
        "mxfp4": 4.25,
        "mxfp4_wo": 4.25,
        "int8": 8.0,
        "int8_wo": 8.0,
        "int8_group": 8.125,
        "mxfp4_fp8": 4.25,
        "int4": 4.125,
        "int4_fp8": 4.125,
        "int4_asym": 4.15625,
    }
)


def short_text(fields: Fields, field: str, default: str | None) -> str | None:
    found = fields.find(field)
    if found is None:
        return default
    if not isinstance(found[1], str) or not found[1].isprintable() or not 0 < len(found[1]) <= 60:
        raise InputError(f"{found[0]} is {show(found[1])}; it must be a short text.")
    return found[1]


def choice(fields: Fields, field: str, allowed: tuple[str, ...], default: str) -> str:
    value = short_text(fields, field, default) or default
    if value not in allowed:
        raise InputError(f"{field} is {show(value)}; it must be one of {', '.join(allowed)}.")
    return value


def inner_fields(fields: Fields, field: str) -> Fields | None:
    """The object in `field` with the same checked access; `None` where it is absent or null."""
    found = fields.find(field)
    if found is None:
        return None
    if not isinstance(found[1], Mapping):
        raise InputError(f"{found[0]} is {show(found[1])}; it must be an object.")
    return Fields(found[1], fields.name, found[0], fields.notes)


def group_size(fields: Fields, default: int | None, whole: tuple[int, ...] = (-1,)) -> int | None:
    """Weights to a scale; None, one to a row or more, where the file has a number of `whole`: -1 is a whole row."""
    found = fields.find("group_size")
    if found is None:
        return default
    size = found[1]
    if type(size) is not int or not (size in whole or 1 <= size <= LARGEST_COUNT):
        raise InputError(
            f"group_size is {show(size)}; it must be -1 (one scale to a row) or an integer from 1 to {LARGEST_COUNT}."
        )
    return None if size in whole else size


def excluded_modules(fields: Fields, *names: str) -> tuple[str, ...]:
    """The modules that keep the model's dtype, from the first list that is present; `re:` begins a pattern."""
    name, found = next(((name, found) for name in names if (found := fields.listing(name, str))), ("", []))
    for pattern in found:
        if pattern.startswith("re:") and not is_pattern(pattern.removeprefix("re:")):
            raise InputError(f"{name} contains {show(pattern)}; after re: it must be a plain regular expression.")
    return tuple(found)


def is_pattern(text: str) -> bool:
    """A regular expression that cannot take for ever: none of its repeated groups holds a repetition."""
    try:
        re.compile(text)
    except re.error:
        return False
    return len(text) <= 500 and not re.search(r"[*+}][^()]*\)[*+{]", text)


def nearest_format(
    fields: Fields,
    kind: str,
    bits: int | Fraction,
    activations: str | None,
    group: int | None = None,
    asymmetric: bool = False,
) -> str:
    """The format to compute with; a note where it is only the nearest that is not smaller.

    **Arguments:** `kind`: "int", "float" or another number type; `group`: weights to a scale; `asymmetric`: with a
    zero point beside it.
    """
    if bits == int(bits):
        key = (kind, int(bits), activations)
        special = MICROSCALED if kind == "float" and group == 32 else ASYMMETRIC if asymmetric else GROUPED
        if kind == "int" and activations is None and group and bits in UNLISTED:
            return f"int{int(bits)}" + "_asym" * asymmetric
        exact = (special.get(key) or GROUPED.get(key) if group else None) or NAMES.get(key)
        if exact is not None:
            return exact
    if activations is not None and bits > 4:
        nearest = "fp8" if "fp" in activations else "int8"
    else:
        nearest = "int8_wo" if bits > 4 else "int4" if kind != "float" else "mxfp4_wo" if group == 32 else "fp4_wo"
    operands = "unquantized activations" if activations is None else f"{activations} activations"
    fields.notes.append(
        f"{float(bits):.3g}-bit {kind} weights with {operands} were read as {nearest}, the nearest format."
    )
    return nearest


def grouped_integers(fields: Fields, method: str, zero_points: bool, used: bool | None = None) -> Quantization:
    """`bits` and `group_size` beside each other: GPTQ, AWQ and their relatives; multiplied in 16 bits.

    **Arguments:** `zero_points`: the files hold them; `used`: kernels read them (as `zero_points` if absent).
    """
    whole = (-1, 0) if method == "auto-round" else (-1,)  # whose 0 is one scale to a tensor
    bits, group = fields.count("bits", largest=8), group_size(fields, 128, whole)
    return Quantization(
        method,
        nearest_format(fields, "int", bits, None, group, zero_points if used is None else used),
        bits,
        group,
        zero_points=zero_points,
        excluded=excluded_modules(fields, "modules_to_not_convert"),
    )
