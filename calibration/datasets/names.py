"""What people call devices, number formats and frameworks, and the one name each has here."""

from __future__ import annotations

import hwspecs
from hwspecs.errors import InputError, did_you_mean

DTYPES = (
    "fp64",
    "fp32",
    "tf32",
    "bf16",
    "fp16",
    "fp8",
    "fp8_block",
    "int8",
    "int8_weight_only",
    "int4_weight_only",
    "w4a16_mxfp4",
    "nvfp4",
    "sq",
)
# Other spellings, in lower case and without "torch.".
_DTYPE_SPELLINGS = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "tensorfloat32": "tf32",
    "bfloat16": "bf16",
    "default": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "e4m3": "fp8",
    "fp8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
    "f8e4m3": "fp8",
    **dict.fromkeys(("float8", "float8_e4m3", "fp8_e4m3fn", "float8_e4m3fnuz"), "fp8"),
    **dict.fromkeys(("e5m2", "fp8_e5m2", "float8_e5m2"), "fp8"),  # as fast, and as many bytes
    # What `jaxperf.core.formats` calls them, and the methods that make them.
    **dict.fromkeys(("int8_wo", "int8_group", "w8a16"), "int8_weight_only"),
    **dict.fromkeys(("int4_wo", "int4", "int4_asym", "w4a16", "awq", "gptq"), "int4_weight_only"),
    **dict.fromkeys(("int4_awq", "int4_gptq", "w4a16_awq", "w4a16_gptq"), "int4_weight_only"),
    "mxfp4_wo": "w4a16_mxfp4",
    "fp4": "nvfp4",
    **dict.fromkeys(("w8a8", "w8a8_int8"), "int8"),
    "w8a8_fp8": "fp8",
    "smoothquant": "sq",
}
_FRAMEWORK_SPELLINGS = {
    "tensorrt-llm": "trtllm",
    "tensorrt_llm": "trtllm",
    "trt-llm": "trtllm",
    "trt_llm": "trtllm",
    "pytorch": "torch",
}
ABSENT = frozenset(("", "none", "nan", "null", "n/a", "na"))


def dtype_name(text: str) -> tuple[str, str]:
    """The canonical number format and "", or "" and what is wrong with the text; "auto" says no more than an empty
    cell."""
    spelled = text.strip().lower().removeprefix("torch.").replace("-", "_")
    if spelled in ABSENT or spelled == "auto":
        return "", ""
    name = _DTYPE_SPELLINGS.get(spelled, spelled)
    if name in DTYPES:
        return name, ""
    hint = did_you_mean(text, (*DTYPES, *_DTYPE_SPELLINGS))
    return "", f"{text!r} is not a known number format.{hint} Known: {', '.join(DTYPES)}."


def wire_format(text: str) -> tuple[str, str]:
    """The number format that tokens are said to be sent in, "" where that is left to the software, and ""."""
    return ("" if text.strip().lower() == "default" else dtype_name(text)[0]), ""


def activations_of(dtype: str) -> str:
    """The number format of the activations beside weights of a format: that itself, 16 bits beside narrower ones."""
    return dtype if dtype in ("", "fp64", "fp32", "tf32", "bf16", "fp16") else "bf16"


def device_name(text: str, registry: hwspecs.Registry | None = None) -> tuple[str, str]:
    """The name of a device in hwspecs (or in a registry with the user's own) and "", or "" and why it has none."""
    if text.strip().lower() in ABSENT:
        return "", ""
    if text.strip().lower().endswith(".toml"):
        return "", f"{text!r} is a file; a table names the device, and --devices-dir gives the folder of its file."
    known = registry or hwspecs.open_registry()
    try:
        resolution = known.resolve(text)
    except InputError:
        return "", f"{text!r} is not a known device.{did_you_mean(text, known.aliases)}"
    return (resolution.name, "") if resolution.name else ("", f"{text!r} has no specification: {resolution.reason}")


def framework_name(text: str) -> tuple[str, str]:
    """A framework in lower case, the few with several spellings under one, and ""."""
    name = text.strip().lower()
    return ("", "") if name in ABSENT else (_FRAMEWORK_SPELLINGS.get(name, name), "")


def version_name(text: str) -> tuple[str, str]:
    """A version without the "v" of a tag and without what a build adds to it ("+cu129"), and ""."""
    name = text.strip()
    if name.lower() in ABSENT:
        return "", ""
    tagged = name[:1] in ("v", "V") and name[1:2].isdigit()
    return name[tagged:].partition("+")[0], ""


def in_lower_case(text: str) -> tuple[str, str]:
    """The text without surrounding space in lower case, as every word for an operation is compared, and ""."""
    return text.strip().lower(), ""


def as_written(text: str) -> tuple[str, str]:
    """The text itself without surrounding space, and ""."""
    return text.strip(), ""
