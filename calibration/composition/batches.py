"""Predict every row of a table of fixed batches: prefill, decode step, their intervals, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

import hwspecs
from calibration.composition.batches_fit import Group, groups_of, log_times
from calibration.composition.batches_links import lineage
from calibration.composition.batches_parameters import PHASES, TIERS, StepParameters
from calibration.composition.batches_points import kind_of, points_of
from calibration.composition.batches_rows import Batch, BatchTable
from calibration.composition.batches_step import memory_share
from calibration.kernels.formats import FORMATS
from calibration.kernels.parameters import Parameters
from hwspecs import DeviceSpec
from hwspecs.errors import InputError
from jaxperf.core.device import device_from_spec
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.layers import transformer
from jaxperf.models.step import check_decoder_alone
from jaxperf.serving.estimate import check_tensor_splits
from jaxperf.serving.notes import multiplied_in, without_scales
from jaxperf.sweeps.once import evaluate_over

ENDS = ("", "_lower", "_upper")
MEASURED_FORMATS = ("bf16", "fp16")  # labels are in bf16; fp16 has its bytes and its rate
TIMES = tuple(f"predicted_{phase}_s{end}" for phase in PHASES for end in ENDS)
ADDED = (*TIMES, "tier", "reason")  # columns, in their order


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
    splits = {(batch.model, batch.ranks) for batch in table.batches if batch.model in models}
    unsplit = {(name, ranks): _unsplit(models[name], ranks) for name, ranks in splits}
    reasons, kept = dict(table.reasons), []
    for batch in table.batches:
        wrong = refused.get(batch.model) or unfit[batch.device, batch.dtype or "bf16"]
        wrong = wrong or unsplit[batch.model, batch.ranks]
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
            check_decoder_alone(transformer(models[name]))
        except InputError as error:
            refused[name] = f"model: {error}"
    return models, refused


def _unfit(spec: DeviceSpec, dtype: str) -> str:
    """Why a format cannot be timed on a device, or ""."""
    peaks = device_from_spec(spec).peak_flops
    if any(float(peaks[int(number_format(name).compute)]) <= 0.0 for name in FORMATS[dtype]):
        return f"dtype: {spec.name} multiplies neither {dtype} nor a format that can stand in for it"
    return ""


def _unsplit(model: ModelConfig, ranks: int) -> str:
    """Why a model cannot be split over so many ranks, or ""."""
    try:
        check_tensor_splits(model, [ranks])
    except InputError as error:
        return f"tp: {error}"
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
        groups = groups_of(points, known.models, list(parameters.scalars))
        log_time = log_times(groups, np.array(list(parameters.scalars.values())), len(points))
        overfull = _memory_shares(groups, known.models, parameters, len(points)) > 1.0
        tier = {name: tier_of(parameters, spec) for name, spec in known.specs.items()}
        for place, (batch, model) in enumerate(zip(known.batches, known.models, strict=True)):
            spec = known.specs[batch.device]
            tiers[batch.row] = tier[batch.device]
            notes = _notes(parameters, batch, spec, tier[batch.device])
            reasons[batch.row] = "; ".join([*notes, *_limits(batch, model, spec, bool(overfull[place]))])
            width = np.array(parameters.widths[tiers[batch.row] if _measured_format(batch) else TIERS[-1]])
            ends = np.exp(log_time[place][:, None] + width[:, None] * np.array([0.0, -1.0, 1.0]))
            for name, value in zip(TIMES, ends.ravel(), strict=True):
                columns[name][batch.row] = value
    return {**columns, "tier": tiers, "reason": reasons}


def _memory_shares(
    groups: Sequence[Group], models: Sequence[ModelConfig], parameters: StepParameters, rows: int
) -> np.ndarray:
    """`memory_share` of every batch [rows]."""
    found, scalars = np.full(rows, np.nan), {name: as_float(value) for name, value in parameters.scalars.items()}
    for group in groups:
        network = transformer(models[group.at[0]])
        share = jax.jit(lambda point, network=network: memory_share(network, scalars, point))
        found[group.at] = evaluate_over(share, group.points, along=((0,),))[: len(group.at)]
    return found


def _measured_format(batch: Batch) -> bool:
    return (batch.dtype or "bf16") in MEASURED_FORMATS


def tier_of(parameters: StepParameters, spec: DeviceSpec) -> str:
    """Whether the device itself, another of its generation, or none was measured."""
    if spec.name in parameters.devices:
        return "measured"
    return "transfer" if lineage(spec) in {lineage(hwspecs.load(name)) for name in parameters.devices} else "unseen"


def _limits(batch: Batch, model: ModelConfig, spec: DeviceSpec, overfull: bool) -> list[str]:
    """What a row asks for that the device or the model does not have."""
    context, longest = model.max_context, max(batch.prompts) + batch.output
    formats = FORMATS[batch.dtype or "bf16"]
    return [
        *multiplied_in(spec, formats),
        *without_scales(spec, formats[0]),
        *(["weights and KV cache are more than the memory"] if overfull else []),
        *([f"longer than the model's context of {context:,} tokens"] if context and longest > context else []),
    ]


def _of_framework(framework: str, measured: str) -> str:
    """What stands for a framework of which no batch was measured. The rate of products is asked of the kernel
    parameters by its own name (`batches_points.large_products`)."""
    if not framework:
        return f"framework not stated: overheads as {measured}, products of none"
    return f"no batch of this framework measured: overheads as {measured}, products its own where kernels of it were"


def _notes(parameters: StepParameters, batch: Batch, spec: DeviceSpec, tier: str) -> list[str]:
    """What is not measured about a row."""
    groups = {(curve.device, curve.ranks) for curve in parameters.curves}
    joined = {curve.topology for curve in parameters.curves}
    alone = batch.ranks == 1
    card = parameters.card
    notes = (
        (not batch.dtype, "dtype is not stated: bf16"),
        (not _measured_format(batch), f"format never measured: the interval of the tier {TIERS[-1]}"),
        (batch.framework not in card["frameworks"], _of_framework(batch.framework, card["frameworks"][0])),
        (tier == "transfer", "device never measured"),
        (tier == "unseen", "no device of its generation measured"),
        (bool(kind_of(spec)) and kind_of(spec) not in parameters.kinds, "sustained power as on other boards with GDDR"),
        (not alone and (batch.device, batch.ranks) not in groups, "all-reduce of the nearest measured group"),
        (not alone and spec.node.topology not in joined, "links of this kind never measured: datasheet"),
        (batch.model not in card["models"], "model never measured"),
    )
    return [text for applies, text in notes if applies]
