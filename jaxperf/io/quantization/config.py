"""The `quantization_config` of a Hugging Face config: which method it names, and what the weights are stored as.

The methods are in `jaxperf.io.quantization.methods`. A format that `jaxperf.core.formats` lacks is replaced by the
nearest that is not smaller, and that is said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.group_names import IN_GROUPS, group_name, in_groups
from jaxperf.io.config_fields import WEIGHT_FORMATS, Fields
from jaxperf.io.quantization.groups import compressed_tensors
from jaxperf.io.quantization.methods import METHODS, bitsandbytes
from jaxperf.io.quantization.mlx import mlx
from jaxperf.io.quantization.pieces import FORMAT_BITS, short_text
from jaxperf.models.checks import show
from jaxperf.models.quantization import SCALE_BITS, Quantization, bits_per_weight


def stored_format(fields: Fields) -> tuple[str, Quantization | None]:
    """The number format of the stored weights, and the quantization scheme where there is one.

    What had to be guessed goes into `fields.notes`. Raises `InputError` naming the field and what is allowed.
    """
    dtype = _dtype(fields)
    found = fields.find("quantization_config") or fields.find("compression_config")
    if found is None:
        return dtype, None
    key, scheme = found
    if scheme == {}:  # says as little as null
        return dtype, None
    if not isinstance(scheme, Mapping):
        raise InputError(f"{key} is {show(scheme)}; it must be an object with the field quant_method.")
    said = len(fields.notes)
    try:
        quantization = _in_own_groups(_scheme(Fields(scheme, fields.name, key, fields.notes)))
    except InputError as error:
        raise InputError(f"{key}: {error}") from None
    if len(fields.notes) == said:
        for each in (quantization, *quantization.others):
            _note_size(fields, each)
    return quantization.weights, dataclasses.replace(quantization, unquantized=dtype)


def _in_own_groups(quantization: Quantization) -> Quantization:
    """The scheme and its others with the group, and what is shared in it, in the names of their formats."""
    others = tuple(_in_own_groups(each) for each in quantization.others)
    base, group = quantization.weights, quantization.group_size
    if group is not None and base in IN_GROUPS and IN_GROUPS[base][0] == quantization.bits:
        # Kernels read no zero points where all are alike, although the files of GPTQ have them.
        zero = quantization.bits if quantization.zero_points and base.endswith("_asym") else 0
        base = group_name(base, group, SCALE_BITS[quantization.scale_format] + int(zero))
    return dataclasses.replace(quantization, weights=base, others=others)


def _note_size(fields: Fields, quantization: Quantization) -> None:
    """Most formats have one size of group; a note where that of the checkpoint weighs 1 % more or less."""
    if quantization.group_size is not None and in_groups(quantization.weights) is not None:
        return
    stored, timed = float(bits_per_weight(quantization)), FORMAT_BITS[quantization.weights]
    if abs(stored / timed - 1.0) > 0.01:
        fields.notes.append(
            f"{stored:.4g} bits a weight with its scales are timed as {quantization.weights}, which has {timed:.4g}."
        )


def _dtype(fields: Fields) -> str:
    """The number format of what is not quantized."""
    found = fields.find("torch_dtype")
    if found is None or found[1] == "auto":
        fields.notes.append("torch_dtype is absent; bf16 weights were assumed.")
        return "bf16"
    key, value = found
    name = WEIGHT_FORMATS.get(value.removeprefix("torch."), "") if isinstance(value, str) else ""
    if not name:
        raise InputError(f"{key} is {show(value)}; it must be one of {', '.join(WEIGHT_FORMATS)}.")
    return name


def _scheme(fields: Fields) -> Quantization:
    """The scheme of the method that is named or plain from the fields.

    Raises `InputError` for a method that is not known: in any other format the weights may be four times too large.
    """
    method = short_text(fields, "quant_method", None)
    if method is None:
        if fields.find("load_in_4bit") or fields.find("load_in_8bit"):  # older than the field quant_method
            return bitsandbytes(fields)
        if fields.find("config_groups"):
            return compressed_tensors(fields)
        if fields.find("bits"):
            fields.notes.append("quantization_config has no quant_method; it was read as MLX writes it.")
            return mlx(fields)
        raise InputError(f"the required field quant_method is missing; {_allowed()}")
    read = METHODS.get(method.lower().replace("_", "-"))
    if read is None:
        raise InputError(f"quant_method is {show(method)}; {_allowed()}{did_you_mean(method, METHODS)}")
    return read(fields)


def _allowed() -> str:
    known = ", ".join(METHODS)
    return (
        f"it must be one of {known}. "
        "Without quantization_config the weights are in torch_dtype, or in the format that is asked for (--weights)."
    )
