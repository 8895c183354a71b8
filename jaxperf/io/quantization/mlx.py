"""MLX writes bits and group_size without a method, and under a module's name what is other in it, false for nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.mixed import ENDS_NOTE, mixed
from jaxperf.io.quantization.pieces import choice, group_size, nearest_format
from jaxperf.models.quantization import Quantization

MODES = {"mxfp4": (4, 32, "e8m0"), "mxfp8": (8, 32, "e8m0"), "nvfp4": (4, 16, "fp8")}


def mlx(fields: Fields) -> Quantization:
    """A scale and a bias of 16 bits to a group in the mode "affine"; the token table and the head are quantized too."""
    parts: list[tuple[tuple[str, ...], Quantization]] = [((), _scheme(fields))]
    kept = []
    for name, own in fields.data.items():
        if own is False and "." in name:
            kept.append(name)
        elif isinstance(own, Mapping):
            changed = dataclasses.replace(fields, data={**fields.data, **own})
            parts.append(((name,), _scheme(changed)))
    fields.notes.append(ENDS_NOTE)
    return dataclasses.replace(mixed(fields, parts), excluded=tuple(kept))


def _scheme(fields: Fields) -> Quantization:
    mode = choice(fields, "mode", ("affine", *MODES), "affine")
    if mode == "affine":
        bits, group = fields.count("bits", largest=8), group_size(fields, 64)
        return Quantization("mlx", nearest_format(fields, "int", bits, None, group, True), bits, group, "fp32")
    bits, group, scale = MODES[mode]
    return Quantization("mlx", nearest_format(fields, "float", bits, None, group), bits, group, scale)
