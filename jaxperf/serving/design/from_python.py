"""`jaxperf.design`: a design asked for in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import jax

import hwspecs
from hwspecs.errors import InputError, did_you_mean
from hwspecs.schema import DeviceSpec
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.models.config import ModelConfig, check_model
from jaxperf.serving.design.answer import CHANGED, Design, Question
from jaxperf.serving.design.answer import design as find
from jaxperf.serving.design.search import Wanted
from jaxperf.serving.techniques.power import PowerLaw

DEPLOYED = {
    **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel", "batch"), 1),
    **{"prompt": 2048, "output": 256, "kv_cache": "bf16"},
}
Free = Mapping[str, tuple[float, float] | None] | Iterable[str]


def design(
    model: ModelConfig,
    device: str | DeviceSpec,
    *,
    free: Free = CHANGED,
    limits: Mapping[str, float] | None = None,
    minimize: str = "power",
    launch: str = "graph",
    name: str = "design",
    **point: Any,
) -> Design:
    """The device, from one that is known, which serves a model within limits at the least cost.

    **Arguments:** `free`: facts of `FREE` that may change, or each with its range in SI units (None: the widest);
    `limits`: measure of `MEASURES` -> the most that it may be, in SI units; `minimize`: another measure, or a free
    fact; `name` of what is made; `point`: `tensor_parallel` and the like, `batch`, `prompt`, `output`, `weights`,
    `kv_cache`, as of `jaxperf estimate`.
    **Returns:** `design.device`, ready for `decode_step` and its like; `design.best` with `measures`, `slopes` and
    `prices`, and whether the limits are `held`; `design.made.spec`, its facts.
    **Raises:** `InputError` for what is not known, and where the model cannot run whatever the sizes.
    """
    check_model(model)
    known = {**DEPLOYED, "weights": model.weight_format}
    for each in point:
        if each not in known:
            hint = did_you_mean(each, known)
            raise InputError(f"A design takes no '{each}'; allowed: {', '.join(known)}.{hint}")
    ranges = dict(free) if isinstance(free, Mapping) else dict.fromkeys(free)
    spec = hwspecs.load(device) if isinstance(device, str) else device
    wanted = Wanted(minimize, dict(limits or {}))
    table = load_sustained_table()
    with jax.enable_x64(True):  # the last grids differ by less than what float32 tells apart
        found = find(Question(model, spec, known | point, launch, table, shipped_law(), ranges, wanted, name))
    if isinstance(found, list):
        raise InputError(f"{model.name} cannot run on a device made from {spec.name}: {'; '.join(found)}.")
    return dataclasses.replace(found, device=calibration_of(found.made.spec, table).calibrated)


def shipped_law() -> PowerLaw:
    """The law of power that is shipped (`calibration.power`)."""
    from safetensors.numpy import load

    body = (resources.files("calibration") / "fitted" / "power.safetensors").read_bytes()
    return PowerLaw(*map(float, load(body)["shares"]))
