"""Predict every row of a table of fixed batches: prefill, decode step, their intervals, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import hwspecs
from calibration.composition.batches_fit import groups_of, log_times
from calibration.composition.batches_links import lineage
from calibration.composition.batches_parameters import PHASES, StepParameters
from calibration.composition.batches_points import kind_of, points_of
from calibration.composition.batches_rows import Batch, BatchTable
from calibration.composition.batches_step import Point
from calibration.kernels.formats import FORMATS
from calibration.kernels.parameters import Parameters
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.core.device import device_from_spec
from jaxperf.core.formats import number_format
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.step import check_decodes

ENDS = ("", "_lower", "_upper")
TIMES = tuple(f"predicted_{phase}_s{end}" for phase in PHASES for end in ENDS)


@dataclass(frozen=True)
class Known:
    """Batches whose model and device are known, with both; `reasons`: row -> why another batch is not among them."""

    batches: tuple[Batch, ...]
    models: tuple[ModelConfig, ...]
    specs: Mapping[str, DeviceSpec]
    reasons: Mapping[int, str]


def known_batches(table: BatchTable, directories: Sequence[str] = ()) -> Known:
    """Resolve the models and devices of a table."""
    specs = {name: hwspecs.load(name, directories) for name in sorted({batch.device for batch in table.batches})}
    models, refused = _models({batch.model for batch in table.batches})
    asked = {(batch.device, batch.dtype or "bf16") for batch in table.batches}
    unfit = {(name, dtype): _unfit(specs[name], dtype) for name, dtype in asked}
    reasons, kept = dict(table.reasons), []
    for batch in table.batches:
        wrong = refused.get(batch.model) or unfit[batch.device, batch.dtype or "bf16"]
        if wrong:
            reasons[batch.row] = wrong
        else:
            kept.append(batch)
    return Known(tuple(kept), tuple(models[batch.model] for batch in kept), specs, reasons)


def _models(names: set[str]) -> tuple[dict[str, ModelConfig], dict[str, str]]:
    """(model by name, why a name has none)."""
    models: dict[str, ModelConfig] = {}
    refused: dict[str, str] = {}
    for name in sorted(names):
        try:
            models[name] = load_model(name)
            check_decodes(transformer(models[name]))
        except InputError as error:
            refused[name] = f"model: {error}"
    return models, refused


def _unfit(spec: DeviceSpec, dtype: str) -> str:
    """Why a format cannot be timed on a device, or ""."""
    peaks = device_from_spec(spec).peak_flops
    if any(float(peaks[int(number_format(name).compute)]) <= 0.0 for name in FORMATS[dtype]):
        return f"dtype: {spec.name} multiplies neither {dtype} nor a format that can stand in for it"
    return ""


def predict_batches(
    table: BatchTable, parameters: StepParameters, kernels: Parameters, directories: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The columns to add to a table, [rows of the file].

    **Returns:** `predicted_prefill_s`, `predicted_decode_step_s`, both with the ends `_lower` and `_upper` of the 90 %
    interval [s], NaN where a row has no prediction; `tier` ("measured", "transfer", "unseen" or ""); `reason`.
    """
    known = known_batches(table, directories)
    columns = {name: np.full(table.rows, np.nan) for name in TIMES}
    tiers, reasons = (np.full(table.rows, "", dtype=object) for _ in range(2))
    for row, reason in known.reasons.items():
        reasons[row] = reason
    if known.batches:
        points = points_of(
            known.batches, known.models, known.specs, kernels, parameters.curves, parameters.kinds, directories
        )
        log_time = times_of(points, known.models, parameters)
        tier = {name: tier_of(parameters, spec) for name, spec in known.specs.items()}
        for place, batch in enumerate(known.batches):
            tiers[batch.row] = tier[batch.device]
            reasons[batch.row] = _notes(parameters, batch, known.specs[batch.device], tier[batch.device])
            width = np.array(parameters.widths[tiers[batch.row]])
            ends = np.exp(log_time[place][:, None] + width[:, None] * np.array([0.0, -1.0, 1.0]))
            for name, value in zip(TIMES, ends.ravel(), strict=True):
                columns[name][batch.row] = value
    return {**columns, "tier": tiers, "reason": reasons}


def times_of(points: Sequence[Point], models: Sequence[ModelConfig], parameters: StepParameters) -> np.ndarray:
    """Logarithms of (prefill, decode step) of every point [rows, 2]."""
    groups = groups_of(points, models, list(parameters.scalars))
    return log_times(groups, np.array(list(parameters.scalars.values())), len(points))


def tier_of(parameters: StepParameters, spec: DeviceSpec) -> str:
    """Whether the device itself, another of its generation, or none was measured."""
    if spec.name in parameters.devices:
        return "measured"
    return "transfer" if lineage(spec) in {lineage(hwspecs.load(name)) for name in parameters.devices} else "unseen"


def _notes(parameters: StepParameters, batch: Batch, spec: DeviceSpec, tier: str) -> str:
    """What is not measured about a row, "; " between; "" where all is."""
    groups = {(curve.device, curve.ranks) for curve in parameters.curves}
    joined = {curve.topology for curve in parameters.curves}
    alone = batch.ranks == 1
    card = parameters.card
    notes = (
        (not batch.dtype, "no known number format: bf16 assumed"),
        (batch.framework not in card["frameworks"], f"framework never measured: as {card['frameworks'][0]}"),
        (tier == "transfer", "device never measured"),
        (tier == "unseen", "no device of its generation measured"),
        (bool(kind_of(spec)) and kind_of(spec) not in parameters.kinds, "sustained power as on other boards with GDDR"),
        (not alone and (batch.device, batch.ranks) not in groups, "all-reduce of the nearest measured group"),
        (not alone and spec.node.topology not in joined, "links of this kind never measured: datasheet"),
        (batch.model not in card["models"], "model never measured"),
    )
    return "; ".join(text for applies, text in notes if applies)
