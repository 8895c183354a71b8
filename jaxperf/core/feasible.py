"""Why a point cannot run: infeasible is data (NaN and a reason bit), not an error and not silence."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

Bit = TypeVar("Bit", bound=enum.IntFlag)


class Reason(enum.IntFlag):
    """Bits of the `reason` of a point; 0 means feasible."""

    MEMORY = 1
    TENSOR_PARALLEL = 2
    PIPELINE_PARALLEL = 4
    EXPERT_PARALLEL = 8
    DATA_PARALLEL = 16
    CONTEXT = 32
    FORMAT = 64
    COUNT = 128
    PROMPT = 256


SENTENCES = {
    Reason.MEMORY: "weights, KV cache and activations do not fit in device memory",
    Reason.TENSOR_PARALLEL: "tensor parallel does not divide the heads and widths, or the KV heads (nor copies them)",
    Reason.PIPELINE_PARALLEL: "more pipeline stages than layers",
    Reason.EXPERT_PARALLEL: "expert parallel does not divide the experts and the tensor x data parallel group",
    Reason.DATA_PARALLEL: "fewer sequences than data-parallel replicas",
    Reason.CONTEXT: "the context is longer than the model was trained for",
    Reason.FORMAT: "the device multiplies neither the number format nor one that can stand in for it",
    Reason.COUNT: "a count or a length is below one (a cached prefix below zero), or not a finite number",
    Reason.PROMPT: "more media tokens or positions with logits than the prompt has tokens",
}


def reason_bits(checks: Mapping[Bit, Bool[Array, ...]]) -> Int[Array, ...]:
    """The bits of all checks that failed (True means infeasible)."""
    return sum(
        (jnp.where(failed, jnp.int32(reason), jnp.int32(0)) for reason, failed in checks.items()),
        start=jnp.int32(0),
    )


def sentences(bits: int, words: Mapping[Bit, str] = SENTENCES) -> list[str]:
    """The plain-word reasons of a bit mask."""
    return [text for reason, text in words.items() if int(bits) & reason]
