"""What techniques are not timed for, refused in plain words before anything is priced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwspecs.errors import InputError
from jaxperf.models.blocks.attention import AttentionMixer
from jaxperf.models.blocks.moe import MoeFfn
from jaxperf.models.deployment import Parallelism
from jaxperf.models.feasibility import uneven_ranks
from jaxperf.models.layers import Transformer
from jaxperf.serving.study_values import MEDIA
from jaxperf.serving.techniques.chosen import Techniques
from jaxperf.serving.techniques.drafts import DraftModel
from jaxperf.serving.techniques.power import PowerCap

ROUNDING = 1e-6  # of a limit in single precision


def check_with_techniques(model: Transformer, point: Mapping[str, Any], techniques: Techniques) -> None:
    """Refuse a model or a layout that a technique is not timed for.

    **Raises:** `InputError`.
    """
    if model.towers:
        raise InputError("Techniques are timed for models without encoders; this one has some.")
    if point["pipeline_parallel"] > 1:
        stages = point["pipeline_parallel"]
        raise InputError(f"Techniques are timed on one pipeline stage; pipeline_parallel is {stages}.")
    if MEDIA in point:
        raise InputError(f"Techniques are timed for prompts of text; leave {MEDIA} out.")
    if techniques.two_batches:
        check_two_batches(model, point, techniques)
    if techniques.adapters is not None:
        check_adapted(model, techniques.adapters.everywhere)
    speculation = techniques.speculation
    if speculation is not None and isinstance(speculation.draft, DraftModel):
        check_draft(speculation.draft, point["tensor_parallel"], point["prompt"] + point["output"])


def check_two_batches(model: Transformer, point: Mapping[str, Any], techniques: Techniques) -> None:
    """Raises `InputError` where there is no exchange with experts to hide, nothing to halve, or another technique whose
    part in the halves is not timed."""
    replicas = point["data_parallel"]
    if replicas == 1 or not any(isinstance(group.ffn, MoeFfn) for group in model.groups):
        raise InputError(
            "Two micro-batches hide the exchange of attention replicas with experts; this takes a mixture of experts "
            f"and data_parallel of 2 or more (it is {replicas})."
        )
    if point["batch"] < 2 * replicas or point["prompt"] < 2:
        raise InputError(
            f"Two micro-batches need 2 sequences for each of {replicas} attention replicas, batch {2 * replicas}, and "
            f"prompts of 2 tokens; batch is {point['batch']}, prompt {point['prompt']}."
        )
    if techniques.adapters is not None or techniques.cap is not None:
        raise InputError("Two micro-batches are not timed together with LoRA adapters or a power limit.")


def check_adapted(model: Transformer, everywhere: bool) -> None:
    """Raises `InputError` for a model with a mixer, or `everywhere` with experts, whose adapters are not timed."""
    for group in model.groups:
        if everywhere and isinstance(group.ffn, MoeFfn):
            raise InputError("LoRA adapters of experts are not timed; those of attention are (targets=attention).")
        for mixer in group.mixers:
            if not isinstance(mixer, AttentionMixer):
                kind = type(mixer).__name__
                raise InputError(f"LoRA adapters of a {kind} are not timed; those of an AttentionMixer are.")


def check_draft(draft: DraftModel, ranks: int, length: int) -> None:
    """Raises `InputError` for a draft that is no decoder, cannot be split as asked, or was trained for shorter texts
    than the `length` of a request."""
    if draft.model.towers or not draft.model.groups:
        raise InputError("A draft must be a decoder without encoders.")
    context = float(draft.model.max_context)
    if length > context:
        raise InputError(f"The draft's context is {context:,.0f} tokens; prompt and output together are {length:,}.")
    own = int(draft.tensor_parallel)
    if own > ranks:
        raise InputError(f"The draft's tp is {own}, more than the target's {ranks} ranks.")
    if bool(uneven_ranks(Parallelism(own), draft.model)):
        raise InputError(f"tp {own} does not divide the draft's heads and widths; give it a tp of its own, such as 1.")


def check_cap(cap: PowerCap, idle: float, tdp: float) -> None:
    """Raises `InputError` for a limit that is no more than the idle power [W], or more than the TDP [W]."""
    limit = float(cap.limit)
    if not idle < limit <= tdp * (1.0 + ROUNDING):
        raise InputError(
            f"A power limit of {limit:g} W must be above the idle power, {idle:g} W, and at most {tdp:g} W."
        )
