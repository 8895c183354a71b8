"""One configuration: the checks a person wants spelled out, then its explanation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwspecs.errors import InputError
from jaxperf.core.feasible import sentences
from jaxperf.core.formats import COMPUTE_FORMATS, FORMATS
from jaxperf.core.sustained_file import SustainedTable, calibration_of, load_sustained_table
from jaxperf.models.config import ModelConfig, Moe
from jaxperf.models.deployment import Parallelism
from jaxperf.models.feasibility import uneven_ranks
from jaxperf.models.layers import transformer
from jaxperf.serving.explain import Explanation, break_even, explain
from jaxperf.serving.notes import notes_of
from jaxperf.serving.provenance import Provenance, provenance_of
from jaxperf.serving.reads import crosses, makes_tokens
from jaxperf.serving.room import largest_batch
from jaxperf.serving.study import Study, check_has_task
from jaxperf.serving.study_values import MEDIA, checked_value
from jaxperf.serving.techniques.break_even import paying_batch
from jaxperf.serving.techniques.checks import check_with_techniques
from jaxperf.serving.techniques.chosen import Techniques
from jaxperf.sweeps.once import evaluate_over

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec

MOST_RANKS = 512  # tensor-parallel ranks that are looked at to say which are allowed
ESTIMATE_METRICS = (
    "ttft",
    "tpot",
    "e2e_latency",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "energy_per_token",
    "memory_share",
    "num_devices",
)


@dataclass(frozen=True)
class Estimate:
    """The answer to one configuration, with what it was asked of.

    `peak`: dense peak the weights are multiplied at [FLOP/s]; `provenance`: where the efficiencies come from; `notes`:
    fallbacks and assumptions, said aloud; `largest_batch`: the most sequences of these lengths that fit, 0 where not
    one does, None where they keep nothing [1]; `techniques`: what the engine uses, None for plain steps; `break_even`:
    the batch from which on its speculation does not pay, `paying`: the one from which on its two micro-batches pay, NaN
    without [1].
    """

    model: ModelConfig
    spec: DeviceSpec
    point: Mapping[str, Any]
    explanation: Explanation
    peak: float
    provenance: Provenance
    notes: tuple[str, ...]
    largest_batch: int | None = None
    techniques: Techniques | None = None
    break_even: float = math.nan
    paying: float = math.nan

    @property
    def reasons(self) -> list[str]:
        """Why it cannot run; empty where it can."""
        return sentences(int(self.explanation.cost.reason))

    @property
    def capped(self) -> bool:
        """Whether devices are under a power limit that was asked for."""
        return self.techniques is not None and self.techniques.cap is not None

    @property
    def feasible(self) -> bool:
        """Whether the configuration runs at all."""
        return not self.reasons


def estimate(
    model: ModelConfig,
    spec: DeviceSpec,
    point: Mapping[str, Any],
    launch: str = "graph",
    table: SustainedTable | None = None,
    techniques: Techniques | None = None,
) -> Estimate:
    """Evaluate one configuration.

    **Arguments:** `point`: batch, prompt, output, weights, kv_cache, the four parallel counts, and perhaps
    media_tokens; `table`: what devices sustain, None for the shipped one; `techniques`: what the engine uses beside
    plain steps.
    **Raises:** `InputError` for a value out of range, a layout that the model cannot be split into, media tokens that
    it does not make or the prompt does not hold, or techniques that are not timed for it.
    """
    check_has_task(model, "serve")
    checked = {name: checked_value(name, value) for name, value in point.items()}
    copies = None if techniques is None else techniques.copies
    check_layout(model, checked, 0 if copies is None else int(copies.count))
    _check_media(model, checked)
    if techniques is not None:
        check_with_techniques(transformer(model), checked, techniques)
    calibration = calibration_of(spec, load_sustained_table() if table is None else table)
    device = calibration.calibrated
    study, no_gain, paying = Study(model, "serve", ESTIMATE_METRICS, launch), math.nan, math.nan
    (explanation,) = explain(study, [device], [checked], techniques)
    if techniques is not None and techniques.speculation is not None:
        no_gain = break_even(study, device, checked, techniques)
    if techniques is not None and techniques.two_batches:
        paying = break_even(study, device, checked, techniques, paying_batch)
    most = largest_batch(study, device, checked, explanation, techniques)
    peak = float(device.peak_flops[COMPUTE_FORMATS.index(FORMATS[checked["weights"]].compute)])
    provenance = provenance_of(model, {spec.name: calibration}, [checked["weights"]])
    speculative = techniques is not None and techniques.speculation is not None
    capped = techniques is not None and techniques.cap is not None
    notes = tuple(notes_of(model, spec, checked, speculative, capped))
    return Estimate(model, spec, checked, explanation, peak, provenance, notes, most, techniques, no_gain, paying)


def _check_media(model: ModelConfig, point: Mapping[str, Any]) -> None:
    """Refuse tokens of images or sound that no encoder makes, or more than the prompt that has them."""
    if MEDIA not in point:
        return
    if not makes_tokens(model):
        raise InputError(f"{MEDIA} is {point[MEDIA]}, but {model.name} has no encoder that makes tokens of a prompt.")
    if point[MEDIA] > point["prompt"] and not crosses(model):
        raise InputError(f"{MEDIA} {point[MEDIA]} are more than the {point['prompt']} tokens of the prompt.")


def tensor_splits(model: ModelConfig) -> list[int]:
    """Tensor-parallel counts that divide every layer; key-value heads may also be replicated evenly."""
    arrays, counts = transformer(model), range(1, MOST_RANKS + 1)
    refuses = jax.jit(lambda ranks: uneven_ranks(Parallelism(ranks), arrays))
    uneven = evaluate_over(refuses, np.asarray(counts, float), along=((0,),))
    return [ranks for ranks, refused in zip(counts, uneven.tolist(), strict=True) if not refused]


def check_tensor_splits(model: ModelConfig, counts: Sequence[int]) -> None:
    """Raises `InputError` where no value of `counts` divides the model: every point of such a sweep is infeasible."""
    allowed = tensor_splits(model)
    if not set(counts) & set(allowed):
        raise InputError(_no_split(model, " or ".join(map(str, counts)), allowed))


def _no_split(model: ModelConfig, counts: str, allowed: Sequence[int]) -> str:
    return (
        f"tensor_parallel {counts} does not divide the attention heads, key-value heads and feed-forward width of "
        f"{model.name}; allowed: {', '.join(map(str, allowed))}."
    )


def check_layout(model: ModelConfig, point: Mapping[str, Any], copies: int = 0) -> None:
    """Refuse a layout the model cannot be split into, naming the numbers and what is allowed.

    **Arguments:** `copies` of experts that ranks hold beside each once [1].

    **Raises:** `InputError`.
    """
    tensor, expert, data = point["tensor_parallel"], point["expert_parallel"], point["data_parallel"]
    allowed = tensor_splits(model)
    if tensor not in allowed:
        raise InputError(_no_split(model, str(tensor), allowed))
    for layer in model.layers:
        if isinstance(layer.ffn, Moe) and (layer.ffn.experts + copies) % expert:
            more = f" and {copies} copies" if copies else ""
            raise InputError(f"expert_parallel {expert} does not divide the {layer.ffn.experts} experts{more}.")
    if point["pipeline_parallel"] > len(model.layers):
        raise InputError(f"pipeline_parallel {point['pipeline_parallel']} is more than {len(model.layers)} layers.")
    if expert > 1 and not any(isinstance(layer.ffn, Moe) for layer in model.layers):
        raise InputError(f"expert_parallel {expert} needs a mixture-of-experts model; {model.name} is dense.")
    if (tensor * data) % expert:
        raise InputError(f"expert_parallel {expert} does not divide tensor x data parallel = {tensor * data}.")
    if point["batch"] < data:
        raise InputError(f"batch {point['batch']} is less than data_parallel {data}; each replica needs a sequence.")
