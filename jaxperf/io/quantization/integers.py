"""GPTQ, AWQ and auto-round: groups of integers of a few bits, and modules that have bits of their own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.mixed import mixed
from jaxperf.io.quantization.pieces import (
    WIDEST,
    excluded_modules,
    group_size,
    grouped_integers,
    inner_fields,
    is_pattern,
    nearest_format,
    short_text,
)
from jaxperf.models.checks import show
from jaxperf.models.quantization import Quantization

PLAIN = re.compile(r"[\w.]+")  # the name of a module, and no pattern
OWN = ("bits", "group_size", "sym", "data_type", "act_bits")  # what a module may have of its own


def gptq(fields: Fields) -> Quantization:
    """Frantar et al. 2022 (arXiv:2210.17323); the files hold zero points even where they are all alike.

    `dynamic` of GPTQModel has patterns of modules: "-:" those that are not quantized, "+:" or nothing before it those
    with bits and groups of their own.
    """
    dynamic = inner_fields(fields, "dynamic")
    own = {
        f"re:{name.removeprefix('-:').removeprefix('+:')}": {"bits": WIDEST} if name.startswith("-:") else changes
        for name, changes in ({} if dynamic is None else dynamic.data).items()
    }
    return _with_own(fields, partial(_signed, method="gptq"), own)


def awq(fields: Fields) -> Quantization:
    """Lin et al. 2023 (arXiv:2306.00978)."""
    renamed = {"w_bit": "bits", "q_group_size": "group_size"}
    data = {renamed.get(key, key): value for key, value in fields.data.items()}
    fields = Fields(data, fields.name, fields.architecture, fields.notes)
    return grouped_integers(fields, "awq", zero_points=fields.flag("zero_point", True))


def auto_round(fields: Fields) -> Quantization:
    """Modules of `extra_config` have bits and groups of their own, or are not quantized; names may be patterns."""
    extra = inner_fields(fields, "extra_config")
    own = {} if extra is None else {_as_pattern(name): changes for name, changes in extra.data.items()}
    return _with_own(fields, _rounded, own)


def _rounded(fields: Fields) -> Quantization:
    """`data_type`: integers, or floats in groups of MX or NVFP4 formats, whose activations have `act_bits`."""
    kind = short_text(fields, "data_type", "int") or "int"
    scale = next((each for begin, each in (("mx_fp", "e8m0"), ("nv_fp", "fp8")) if kind.startswith(begin)), None)
    if scale is None:
        if kind != "int":
            said = f"auto-round's data_type {show(kind)} was read as weight-only integers of the same bits."
            fields.notes.append(said)
        return _signed(fields, "auto-round")
    bits, group = fields.count("bits", largest=8), group_size(fields, 32)
    narrow = fields.optional_count("act_bits", largest=32) or WIDEST
    activations = f"fp{narrow}" if narrow < WIDEST else None
    name = nearest_format(fields, "float", bits, activations, group)
    excluded = excluded_modules(fields, "modules_to_not_convert")
    return Quantization("auto-round", name, bits, group, scale, activations=activations, excluded=excluded)


def _signed(fields: Fields, method: str) -> Quantization:
    """Integers whose zero points are in the file, and are used unless `sym` says that they are all alike."""
    return grouped_integers(fields, method, zero_points=True, used=not fields.flag("sym", True))


def _as_pattern(name: str) -> str:
    return name if PLAIN.fullmatch(name) else f"re:{name}"


def _with_own(fields: Fields, read: Callable[[Fields], Quantization], own: Mapping[str, Any]) -> Quantization:
    """The scheme with those of the modules that say what they change of it; those of 16 bits are not quantized."""
    scheme = read(fields)
    parts: list[tuple[tuple[str, ...], Quantization]] = [((), dataclasses.replace(scheme, excluded=()))]
    kept = list(scheme.excluded)
    for name, changes in own.items():
        if name.startswith("re:") and not is_pattern(name.removeprefix("re:")):
            raise InputError(f"{show(name.removeprefix('re:'))} must be a plain regular expression or a module's name.")
        if not isinstance(changes, Mapping):
            raise InputError(f"{name.removeprefix('re:')} is {show(changes)}; it must be an object.")
        inner = dataclasses.replace(fields, data={**fields.data, **changes})
        if inner.count("bits", largest=32) >= WIDEST:
            kept.append(name)
        elif any(key in changes for key in OWN):
            parts.append(((name,), dataclasses.replace(read(inner), excluded=())))
    return dataclasses.replace(mixed(fields, parts), excluded=tuple(dict.fromkeys(kept)))
