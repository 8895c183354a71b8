"""Encoders: how much of them a prompt needs, and the kernels of their passes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float, ceil_div
from jaxperf.kernels.gather import embedding_cost
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.blocks.launch import norm, plain_linear
from jaxperf.models.blocks.phase import Prefill
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Tower, Transformer
from jaxperf.models.transformer import group_kernels, merged

PREFIX = "encoder_"  # of the names of all kernels of an encoder


@dataclass(frozen=True)
class Reading:
    """What one sequence has a tower read: `inputs` of `length` positions each, and the tokens handed on [1]."""

    inputs: Scalar
    length: Scalar
    handed_on: Scalar


def readings(model: Transformer, prompt: Scalar, media: Scalar | None) -> list[tuple[Tower, Reading]]:
    """The towers that a sequence needs, with what each reads.

    A text tower reads the prompt, or its own fixed length. A tower that is all there is, and one of sound before
    cross-attention (Whisper), reads one input. Any other makes `media` tokens of the prompt: from inputs of a fixed
    length, or from one of `merge` positions a token; it stays idle where `media` is None.
    """
    one, found = as_float(1.0), []
    for tower in model.towers:
        alone = not model.groups or (model.crosses and tower.kind == "audio")
        if tower.fixed and (alone or tower.kind == "text"):
            found.append((tower, Reading(one, tower.length, tower.tokens)))
        elif alone or tower.kind == "text":
            found.append((tower, Reading(one, prompt, prompt)))
        elif media is not None and tower.fixed:
            inputs = ceil_div(media, tower.tokens)
            found.append((tower, Reading(inputs, tower.length, inputs * tower.tokens)))
        elif media is not None:
            some = (media > 0.0).astype(media.dtype)
            found.append((tower, Reading(some, jnp.maximum(media, 1.0) * tower.merge, media)))
    return found


def media_in_prompt(model: Transformer, media: Scalar | None) -> Scalar | None:
    """Those of `media` that are tokens of the prompt: none where the decoder reads them by cross-attention [1]."""
    return None if model.crosses else media


def own_prompt(model: Transformer, prompt: Scalar) -> Scalar:
    """Tokens of a prompt that the decoder itself reads: all, or the start token where an encoder reads them [1]."""
    return jnp.ones_like(prompt) if model.encodes_prompt else prompt


def source_tokens(model: Transformer, prompt: Scalar, media: Scalar | None) -> Scalar:
    """Tokens of encoders that a sequence reads by cross-attention; 0 in a model without it [1]."""
    if not model.crosses:
        return as_float(0.0)
    return sum((reading.handed_on for _, reading in readings(model, prompt, media)), start=as_float(0.0))


def tower_kernels(
    deployment: Deployment, model: Transformer, sequences: Scalar, prompt: Scalar, media: Scalar | None
) -> Kernels:
    """The passes of all encoders over the inputs of `sequences` prompts; each name begins with `PREFIX`."""
    parts = [_one_tower(deployment, model, tower, sequences, read) for tower, read in readings(model, prompt, media)]
    return {PREFIX + name: cost for name, cost in merged(parts).items()}


def _one_tower(
    deployment: Deployment, model: Transformer, tower: Tower, sequences: Scalar, reading: Reading
) -> Kernels:
    exists = (reading.inputs > 0.0).astype(sequences.dtype)
    inputs = sequences * jnp.maximum(reading.inputs, 1.0)
    phase = Prefill(inputs, reading.length)
    kernels = group_kernels(deployment, tower.hidden, tower.groups, phase)
    if tower.has_input:
        kernels["input_projection"] = plain_linear(deployment, phase.tokens, tower.hidden, tower.input_depth)
    if tower.kind == "text":
        itemsize, stream = deployment.activations.itemsize, deployment.efficiencies.elementwise
        kernels["embedding"] = embedding_cost(deployment.device, phase.tokens, tower.hidden, itemsize, stream)
    if tower.norms:
        kernels["final_norm"] = norm(deployment, phase.tokens, tower.hidden) * as_float(tower.norms)
    if tower.has_projector:
        tokens, depth = sequences * jnp.maximum(reading.handed_on, 1.0), tower.projector / model.hidden
        kernels["projector"] = plain_linear(deployment, tokens, model.hidden, depth)
    return {name: cost * exists for name, cost in kernels.items()}


def prompt_tokens(model: Transformer, prompt: Scalar) -> Scalar:
    """Tokens of one prompt, for a throughput: its own, or the positions of a model that is nothing but encoders [1]."""
    if model.groups:
        return prompt
    found = [reading.inputs * reading.length for _, reading in readings(model, prompt, None)]
    return functools.reduce(jnp.add, found)


def tower_positions(model: Transformer, sequences: Scalar, prompt: Scalar, media: Scalar | None) -> Scalar | None:
    """The most positions that any encoder works on for `sequences` prompts; None where none works [1]."""
    found = [sequences * reading.inputs * reading.length for _, reading in readings(model, prompt, media)]
    return functools.reduce(jnp.maximum, found) if found else None
