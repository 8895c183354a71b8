"""What people call devices, number formats and frameworks, and the one name each has here."""

from __future__ import annotations

import re

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.formats import FORMAT_ALIASES, FORMATS
from jaxperf.core.group_names import in_groups

# What kernels' tables call formats of `jaxperf.core.formats`, where they have a name of their own for it.
_OF_KERNELS = {
    **dict.fromkeys(("int8_wo", "int8_group"), "int8_weight_only"),
    **dict.fromkeys(("int4", "int4_asym"), "int4_weight_only"),
    "mxfp4_wo": "w4a16_mxfp4",
    "fp4": "nvfp4",
}
# Formats that kernels' tables tell apart, though they weigh and multiply alike: their kernels differ.
_APART = {"fp8_block": "fp8_block", "sq": "sq", "smoothquant": "sq", "default": "bf16"}
DTYPES = tuple(dict.fromkeys((*(_OF_KERNELS.get(name, name) for name in FORMATS), *_APART.values())))
LISTED = tuple(FORMATS)
BALANCED, POWER_LAW = "balanced", "power_law_"  # routing of tokens to experts, the latter with its exponent
UNSTATED = ("auto", "default")  # what engines say for the model's own
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
    if spelled in _APART:
        return _APART[spelled], ""
    grouped = in_groups(spelled)  # kernels' tables tell no sizes of groups apart
    alike = grouped is not None and spelled.startswith(grouped[0])
    name = grouped[0] if grouped and alike else FORMAT_ALIASES.get(spelled, spelled)
    if name in LISTED:
        return _OF_KERNELS.get(name, name), ""
    hint = did_you_mean(text, (*DTYPES, *FORMAT_ALIASES))
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
        return "", f"{text!r} is not a known device.{known.did_you_mean(text)}"
    return (resolution.name, "") if resolution.name else ("", f"{text!r} has no specification: {resolution.reason}")


def framework_name(text: str) -> tuple[str, str]:
    """A framework in lower case, the few with several spellings under one, and ""."""
    name = text.strip().lower()
    return ("", "") if name in ABSENT else (_FRAMEWORK_SPELLINGS.get(name, name), "")


def routing_name(text: str) -> tuple[str, str]:
    """How tokens choose experts: "balanced", "power_law_" with its exponent, or "" and what is wrong with the text."""
    name = re.sub(r"[\s-]+", "_", text.strip().lower())
    if name in ABSENT or name == BALANCED or re.fullmatch(POWER_LAW + r"\d{1,2}(\.\d+)?", name):
        return "" if name in ABSENT else name, ""
    known = f"{BALANCED} and {POWER_LAW} with an exponent below 100, such as {POWER_LAW}1.2"
    return "", f"{text!r} is no known routing: taken as not stated. Known: {known}."


def version_name(text: str) -> tuple[str, str]:
    """A version without the "v" of a tag and without what a build adds to it ("+cu129"), and ""."""
    name = text.strip()
    if name.lower() in ABSENT:
        return "", ""
    tagged = name[:1] in ("v", "V") and name[1:2].isdigit()
    return name[tagged:].partition("+")[0], ""


def shortest_release(version: str) -> str:
    """A version without the zeros at its end: the same release (PEP 440)."""
    return re.sub(r"(\.0)+$", "", version)


def in_lower_case(text: str) -> tuple[str, str]:
    """The text without surrounding space in lower case, as every word for an operation is compared, and ""."""
    return text.strip().lower(), ""


def as_written(text: str) -> tuple[str, str]:
    """The text itself without surrounding space, and ""."""
    return text.strip(), ""
