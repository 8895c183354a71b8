"""Which of the shipped models the tests of the model layers go through, and steps of models that are used once."""

from __future__ import annotations

import functools

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model, model_names
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.step import StepCost, decode_cost, prefill_cost


@functools.cache
def one_of_each() -> tuple[str, ...]:
    """The first shipped model of every architecture, by name."""
    found: dict[str, str] = {}
    for name in model_names():
        found.setdefault(load_model(name).architecture, name)
    return tuple(sorted(found.values()))


@functools.cache
def decoders() -> tuple[str, ...]:
    """Those of `one_of_each` that generate tokens."""
    return tuple(name for name in one_of_each() if load_model(name).layers)


@functools.cache
def unlike_decoders() -> tuple[str, ...]:
    """The first of `decoders` for every set of kinds of block."""
    found: dict[frozenset[tuple[type, ...]], str] = {}
    for name in decoders():
        config = load_model(name)
        blocks = frozenset((type(layer.mixer), type(layer.ffn), type(layer.cross)) for layer in config.layers)
        found.setdefault(blocks, name)
    return tuple(found.values())


def decode_once(at: Deployment, transformer: Transformer, batch: float, context: float, source: float = 0) -> StepCost:
    """`decode_cost` at plain numbers, its kernels compiled one by one: cheaper than a whole step that is used once."""
    return decode_cost(at, transformer, as_float(batch), as_float(context), as_float(source))


def prefill_once(
    at: Deployment,
    transformer: Transformer,
    batch: float,
    prompt: float,
    prefix: float = 0,
    media: float | None = None,
) -> StepCost:
    """`prefill_cost` in the same way."""
    given = None if media is None else as_float(media)
    return prefill_cost(at, transformer, as_float(batch), as_float(prompt), as_float(prefix), given)
