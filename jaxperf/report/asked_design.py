"""From Python what `jaxperf design` is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from hwspecs.errors import InputError
from hwspecs.schema import DeviceSpec
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.io.designed_device import check_design_name
from jaxperf.io.fleet import select_device
from jaxperf.models.config import ModelConfig, show
from jaxperf.report.asked import LAYOUT, LENGTHS, NONE, Places, check_known, check_mapping, model_of, positive
from jaxperf.serving.design.answer import CHANGED, Design, Question
from jaxperf.serving.design.answer import design as find
from jaxperf.serving.design.search import Wanted
from jaxperf.serving.techniques.power_file import load_law

Free = Mapping[str, tuple[float, float] | None] | Iterable[str]


def design(
    model: ModelConfig | str,
    device: str | DeviceSpec,
    *,
    free: Free = CHANGED,
    limits: Mapping[str, float] = NONE,
    minimize: str = "power",
    launch: str = "graph",
    name: str = "design",
    directories: Places = (),
    params: str | Path | None = None,
    **point: Any,
) -> Design:
    """The device, from one that is known, which serves a model within limits at the least cost.

    **Arguments:** `free`: facts of `FREE` that may change, or each with its range in SI units (None: the widest);
    `limits`: measure of `MEASURES` -> the most that it may be, in SI units; `minimize`: another measure, or a free
    fact; `name` of what is made; the rest as of `jaxperf.estimate`.
    **Returns:** `design.device`, ready for `decode_step` and its like; `design.best` with `measures`, `slopes` and
    `prices`, and whether the limits are `held`; `design.made.spec`, its facts.
    **Raises:** `InputError` for what the command refuses, and where the model cannot run whatever the sizes.
    """
    config = model_of(model)
    known = {**LAYOUT, **LENGTHS, "weights": config.weight_format}
    for each in point:
        check_known("A design", each, tuple(known))
    named = (free,) if isinstance(free, str) else free
    check_mapping("limits", limits)
    check_free(named)
    ranges = dict(named) if isinstance(named, Mapping) else dict.fromkeys(named)
    spec = device if isinstance(device, DeviceSpec) else select_device(str(device), directories)
    check_design_name(name, spec, "name")
    wanted = Wanted(minimize, {each: positive(f"limit of {each}", limit) for each, limit in limits.items()})
    table = load_sustained_table(params)
    with jax.enable_x64(True):  # the last grids differ by less than what float32 tells apart
        law, _ = load_law()
        found = find(Question(config, spec, known | point, launch, table, law, ranges, wanted, name))
    if isinstance(found, list):
        raise InputError(f"{config.name} cannot run on a device made from {spec.name}: {'; '.join(found)}.")
    return dataclasses.replace(found, device=calibration_of(found.made.spec, table).calibrated)


def check_free(free: Any) -> None:
    """Raises `InputError` for what names no facts, or gives one of them a range that has not two ends."""
    if not isinstance(free, Iterable):
        raise InputError(f"'free' is {show(free)}; give the facts that may change, or each with its range.")
    for name, ends in free.items() if isinstance(free, Mapping) else ():
        if ends is not None and not (isinstance(ends, tuple | list) and len(ends) == 2):
            raise InputError(f"The range of '{name}' is {show(ends)}; give its lower and upper end, or None.")
