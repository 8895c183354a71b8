"""FLOP of a decode step of every shipped architecture against a count from its description alone."""

from __future__ import annotations

import pytest

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.flops import flops_per_token
from jaxperf.models.mixers import Mla
from jaxperf.models.step import StepCost, decode_cost
from tests.devices import H100, deployment, model
from tests.models.shipped import decoders

ROOMY = H100.replace(memory_capacity=4e13)
BATCH, CONTEXT = 4, 3000
# What is not in the count.
VECTOR_WORK = ("_norm", "_gate", "_add", "rotary", "activation", "kv_write", "top_k", "embedding", "collapse", "expand")


def matrix_flops(step: StepCost) -> float:
    """FLOP of everything but norms, activations and the like."""
    return sum(float(cost.flops) for name, cost in step.kernels.items() if not name.endswith(VECTOR_WORK))


def absorbed_extra(config: ModelConfig, context: int) -> float:
    """What attention on the latent costs over attention on expanded keys and values (DeepSeek V2, appendix C)."""
    extra = 0.0
    for layer in config.layers:
        mla = layer.mixer
        if isinstance(mla, Mla):
            seen = context if mla.indexer is None else min(context, mla.indexer.top_k)
            extra += 2 * mla.heads * seen * (2 * mla.kv_rank - mla.nope_dim - mla.value_dim)
    return extra


@pytest.mark.parametrize("name", decoders())
def test_decode_flops_are_those_of_the_matrices_and_of_what_is_remembered(name: str) -> None:
    """Two per active weight of the matrices and the work on cache or state, to 0.3 %: what is left over are position
    biases and sinks, the weighing of the indexer's heads, the gate of a shared expert, one token of an encoder."""
    config = load_model(name)
    step = decode_cost(deployment(ROOMY), model(name), as_float(BATCH), as_float(CONTEXT), as_float(1))
    want = flops_per_token(config, CONTEXT) + absorbed_extra(config, CONTEXT)
    assert matrix_flops(step) / BATCH == pytest.approx(want, rel=0.003)
