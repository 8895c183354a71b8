"""How the names of quantized checkpoints end, and how such a checkpoint stores its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Before or after the name of the method's parts: -FP8, -GPTQ-Int4, -quantized.w4a16.
QUANTIZED_NAME = re.compile(
    r"(?:-(?:fp8|fp4|nvfp4|mxfp4|mxfp8|int8|int4|awq|gptq|gguf|(?:quantized\.)?w\d+a\d+|dynamic|kv|bf16))+$"
)
_FP8 = "fp8", {"quant_method": "fp8", "activation_scheme": "dynamic"}
_NVFP4 = "fp4", {"quant_method": "modelopt", "quant_algo": "NVFP4"}
_INT4 = "int4", {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
_INT8 = "int8_group", {"quant_method": "gptq", "bits": 8, "group_size": 128, "sym": True}
_AWQ = "int4_asym", {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
# Parts of an ending -> the number format of the weights, and the `quantization_config` that a config.json of this name
# has at the usual settings of its method. Endings that several methods use (-int8, -int4, -mxfp4, -w8a8) are left open.
_USUAL: Mapping[frozenset[str], tuple[str, Mapping[str, Any]]] = {
    frozenset(parts.split()): usual
    for usual, every in (
        (_FP8, ("fp8", "fp8 dynamic", "fp8 kv")),
        (_NVFP4, ("fp4", "nvfp4")),
        (_AWQ, ("awq", "awq int4")),
        (_INT4, ("gptq", "gptq int4", "w4a16", "gptq w4a16")),
        (_INT8, ("gptq int8", "w8a16")),
    )
    for parts in every
}


def usual_storage(ending: str) -> tuple[str, Mapping[str, Any]] | None:
    """(number format of the weights, usual `quantization_config`) of a checkpoint whose name ends so ("-awq-int4"),
    None where it is left open."""
    return _USUAL.get(frozenset(part.removeprefix("quantized.") for part in ending.split("-") if part))
