"""The closed form of a deployment's steps against the steps that it stands for."""

from __future__ import annotations

import jax
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.models.step import decode_cost
from jaxperf.serving.plan.engines import Reach, deployment_law
from jaxperf.serving.queueing.law import decode_attention, linear_time
from jaxperf.sweeps.once import evaluate_once
from tests.devices import H100, deployment, model


@pytest.mark.parametrize(("name", "data"), [("mamba-130m", 1), ("qwen3-30b-a3b", 8)], ids=["states", "exchange"])
def test_a_decode_step_is_that_of_the_composition(name: str, data: int) -> None:
    """With what a decode does otherwise than a prefill of as many tokens: states of each sequence, the exchange."""

    @jax.jit
    def times(at, of, sequences, context):
        law = deployment_law(at, of, Reach(prompt=512, output=128, budget=2048, cap=256))
        whole = decode_cost(at, of, sequences * data, context).time
        return linear_time(law, sequences), decode_attention(law, sequences, context), whole

    placed = deployment(H100, data=data, expert=data), model(name)
    linear, attention, whole = evaluate_once(times, *placed, as_float(200.0), as_float(300.0))
    assert linear + attention == pytest.approx(whole, rel=0.05)
    assert linear < 0.95 * whole
