"""From Python what `jaxperf estimate` and `jaxperf rank` are asked: the same values, the same answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.numerics import plain_number
from jaxperf.core.sustained_file import calibration_of, load_sustained_table
from jaxperf.io.fleet import select_device, select_devices
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig, check_model, show
from jaxperf.report.ranking import PER_DOLLAR, RANK_METRICS, RankingReport
from jaxperf.serving.estimate import Estimate
from jaxperf.serving.estimate import estimate as evaluate
from jaxperf.serving.explain import explain
from jaxperf.serving.provenance import provenance_of
from jaxperf.serving.ranking import TARGETS, batches_up_to, layouts
from jaxperf.serving.ranking import rank as search
from jaxperf.serving.study import Study
from jaxperf.serving.study_values import checked_number, checked_value

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

LENGTHS = {"prompt": 2048, "output": 256, "kv_cache": "bf16"}  # what the two commands have where nothing is asked
LAYOUT = {"tensor_parallel": 1, "pipeline_parallel": 1, "expert_parallel": 1, "data_parallel": 1, "batch": 1}
NONE: Mapping[str, float] = MappingProxyType({})
Places = Sequence[str | Path]


def estimate(
    model: ModelConfig | str,
    device: str,
    *,
    launch: str = "graph",
    directories: Places = (),
    params: str | Path | None = None,
    **point: Any,
) -> Estimate:
    """One configuration, as `jaxperf estimate` has it.

    **Arguments:** `model`: from `load_model`, or its name or path; `device`: a name, an alias or a TOML file;
    `directories`: of the user's own devices; `params`: those of `jaxperf calibrate`, None for the shipped; `point`:
    `tensor_parallel`, `pipeline_parallel`, `expert_parallel`, `data_parallel`, `batch` (1 each), `prompt` (2,048),
    `output` (256), `weights` (the model's), `kv_cache` (bf16), `media_tokens`.
    **Returns:** an `Estimate`, of which `jaxperf.report.answer.estimate_record` makes plain data as of `--json`.
    **Raises:** `InputError` for what the command refuses.
    """
    config = model_of(model)
    known = {**LAYOUT, **LENGTHS, "weights": config.weight_format}
    for name in point:
        check_known("An estimate", name, (*known, "media_tokens"))
    return evaluate(config, select_device(device, directories), known | point, launch, load_sustained_table(params))


def rank(
    model: ModelConfig | str,
    devices: str | Iterable[str] = "all",
    *,
    slo: Mapping[str, float] = NONE,
    by: str | None = None,
    prices: Mapping[str, float] = NONE,
    max_devices: int = 16,
    max_batch: int = 1024,
    launch: str = "graph",
    directories: Places = (),
    params: str | Path | None = None,
    **fixed: Any,
) -> RankingReport:
    """Devices for a model, the best first, as `jaxperf rank` has them; `rows` of the result are its table, SI units.

    **Arguments:** `devices`: as of `--devices`; `slo`: "ttft" and "tpot" at most [s]; `by`: "tokens/s/device" (the
    default), "tokens/J", or "tokens/$" (the default with `prices`); `prices`: device -> dollars per device-hour;
    `fixed`: `prompt` (2,048), `output` (256), `weights` (the model's), `kv_cache` (bf16); the rest as of `estimate`.
    **Raises:** `InputError` for what the command refuses.
    """
    config = model_of(model)
    specs = select_devices(devices, directories)
    known = {**LENGTHS, "weights": config.weight_format}
    for name in fixed:
        check_known("A ranking", name, tuple(known))
    check_mapping("slo", slo)
    check_mapping("prices", prices)
    for name in slo:
        check_known("An SLO", name, TARGETS)
    targets = {name: positive(f"slo of {name}", limit) for name, limit in slo.items()}
    values = {name: checked_value(name, value) for name, value in (known | fixed).items()}
    group = int(checked_number("max_devices", max_devices))
    batches = batches_up_to(int(checked_number("max_batch", max_batch)))
    table = load_sustained_table(params)
    calibrated = {name: calibration_of(spec, table) for name, spec in specs.items()}
    arrays = {name: each.calibrated for name, each in calibrated.items()}
    study = Study(config, "serve", RANK_METRICS, launch)
    found = search(
        study,
        arrays,
        layouts=layouts(config, group),
        fixed=values,
        batches=batches,
        targets=targets,
        objective=(PER_DOLLAR if prices else "tokens/s/device") if by is None else by,
        prices=_priced(prices, specs),
    )
    best, points = [arrays[entry.device] for entry in found.ranked], [entry.point for entry in found.ranked]
    explained = explain(study, best, points) if points else []
    origin = provenance_of(config, calibrated, [values["weights"]])
    return RankingReport(config, specs, values, targets, found, explained, origin)


def model_of(model: ModelConfig | str) -> ModelConfig:
    """The description of a model, itself or by its name or path. Raises `InputError` for what is neither."""
    config = load_model(model) if isinstance(model, str) else model
    check_model(config)
    return config


def check_known(what: str, name: str, allowed: Sequence[str]) -> None:
    """Raises `InputError` for a name that is not one of those `allowed`."""
    if name not in allowed:
        raise InputError(f"{what} takes no '{name}'; allowed: {', '.join(allowed)}.{did_you_mean(name, allowed)}")


def check_mapping(name: str, given: Any) -> None:
    """Raises `InputError` for what maps no names to numbers."""
    if not isinstance(given, Mapping):
        raise InputError(f"'{name}' is {show(given)}; it must map names to numbers, {{}} for none.")


def positive(what: str, number: float) -> float:
    """The number. Raises `InputError` for what is no finite number above zero."""
    number = plain_number(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0.0 < number < math.inf:
        raise InputError(f"The {what} is {number!r}; it must be a number above zero.")
    return float(number)


def _priced(prices: Mapping[str, float], specs: Mapping[str, DeviceSpec]) -> dict[str, float]:
    """The prices under the names of the devices that are ranked, of which each may be given by an alias."""
    named = {alias: name for name, spec in specs.items() for alias in (*spec.aliases, name)}
    for name in prices:
        check_known("A price list", name, tuple(named))
    return {named[name]: positive(f"price of {name}", price) for name, price in prices.items()}
