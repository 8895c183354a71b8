"""Devices and models by the spellings of serving tables, which label them with power limits and accuracy targets."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

import hwspecs
from calibration.datasets.names import device_name
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.io.huggingface import any_punctuation, holds_config, load_model
from jaxperf.io.quantized_names import QUANTIZED_NAME
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.step import check_decodes

# MLPerf Inference names a model with its accuracy target.
TARGET = re.compile(r"-(?:99(?:\.9)?|edge)$")
# Power limits that a label states in words: share of the TDP that Splitwise (ISCA 2024) left an H100, as recalled.
CAPPED = re.compile(r"[-_ ](?:pcap|power[-_ ]?cap(?:ped)?)$", re.IGNORECASE)
CAP_SHARE = 0.5
NAMED_CHIP = re.compile(r"\b((?:gh|h|a|b|l|mi)\d{2,3}[a-z]*(?:-(?:sxm|pcie|nvl))?|arc-pro-b\d+)\b")


class Devices:
    """Specifications by the spelling of a table, each resolved once."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._registry = hwspecs.open_registry(directories)
        self._directories = directories
        self._found: dict[str, tuple[DeviceSpec, str]] = {}

    def of(self, text: str) -> tuple[DeviceSpec, str]:
        """The device of a name, and what stands in for what. Raises `InputError` where nothing can."""
        if text not in self._found:
            self._found[text] = self._resolve(text)
        return self._found[text]

    def _resolve(self, text: str) -> tuple[DeviceSpec, str]:
        name, wrong = device_name(text, self._registry)
        if name:
            return hwspecs.load(name, self._directories), ""
        chip = self._chip(text, wrong)
        if not chip:
            raise InputError(f"unknown_device: {wrong or 'no device is stated.'}")
        spec = hwspecs.load(chip, self._directories)
        if CAPPED.search(text):
            limit = spec.tdp.model_copy(update={"quantity": f"{spec.tdp.si * CAP_SHARE:g} W"})
            return spec.model_copy(update={"tdp": limit}), f"{text} is {chip} at {CAP_SHARE:.0%} of its power"
        return spec, f"{text} is priced as {chip}"

    def _chip(self, text: str, wrong: str) -> str:
        """A known device that the spelling without its limit, or the reason why it has no specification, names."""
        plain, _ = device_name(CAPPED.sub("", text), self._registry)
        named = (device_name(each, self._registry)[0] for each in NAMED_CHIP.findall(wrong.partition(":")[2]))
        return plain or next((name for name in named if name), "")


class Models:
    """Models by the spelling of a table, each read once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[ModelConfig, str]] = {}

    def of(self, text: str) -> tuple[ModelConfig, str]:
        """The model of a name or a path, and what was left out of the name. Raises `InputError` where it is neither,
        and where it has no decode.

        Spellings of one shipped model are equal. What was read from a file has its path for a name, which no shipped
        model has: a folder's own name says nothing of what is in it.
        """
        if text not in self._found:
            model, note = self._read(text)
            check_decodes(transformer(model))
            self._found[text] = model, note
        return self._found[text]

    def _read(self, text: str) -> tuple[ModelConfig, str]:
        if holds_config(text):
            return dataclasses.replace(load_model(text), name=os.path.abspath(text), assumptions=()), ""
        plain = TARGET.sub("", text)
        plain = {"gptj": "gpt-j-6b"}.get(plain.lower(), plain)
        # One description for all formats of a model: the format of a row is its own (`layouts`).
        bare = QUANTIZED_NAME.sub("", plain.lower()) or plain
        bare = plain if bare == plain.lower() else bare
        try:
            model, spelled = load_model(bare), plain
        except InputError as unknown:
            model, spelled = self._spelled_otherwise(bare, unknown)
        note = "" if spelled == text else f"{text} is read as {spelled}"
        return dataclasses.replace(model, assumptions=()), note

    def _spelled_otherwise(self, name: str, unknown: InputError) -> tuple[ModelConfig, str]:
        """The model of a name with other punctuation, or with a point for each underscore between digits, and what it
        is called so. Raises `unknown` where there is none."""
        shipped = any_punctuation(name)
        if shipped:
            return load_model(shipped), shipped
        dotted = re.sub(r"(?<=\d)_(?=\d)", ".", name)
        try:
            return load_model(dotted), dotted
        except InputError:
            raise unknown from None
