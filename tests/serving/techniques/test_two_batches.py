"""Two micro-batches: against a timeline of two streams, its bounds, and steps that have nothing to hide."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.cost import Cost
from jaxperf.core.numerics import as_float
from jaxperf.models.blocks.base import Kernels
from jaxperf.models.transformer import add_up
from jaxperf.network.collectives import network_cost
from jaxperf.serving.techniques.break_even import paying_batch
from jaxperf.serving.techniques.step import several_token_kernels
from jaxperf.serving.techniques.two_batches import (
    COMBINE,
    DISPATCH,
    both_halves,
    decode_in_two,
    exchange_left,
    prefill_in_two,
)
from jaxperf.sweeps.once import host_first
from tests.devices import H100, QUICK, deployment, model

MIXTRAL = model("mixtral-8x7b")
ROOMY = H100.replace(memory_capacity=4e12)
SLOW = ROOMY.replace(network_bandwidth=1e9)
times = st.tuples(*[st.floats(0.0, 10.0)] * 4)  # attention, dispatch, experts, combine
Times = tuple[float, float, float, float]


def work(time: float) -> Cost:
    return Cost(*map(as_float, (time, time, 0, 0, 0, 1, 1)), launches=1.0)


def layer(at: Times) -> Kernels:
    sent = [network_cost(as_float(at[place]), as_float(1.0)) for place in (1, 3)]
    return {"attention": work(at[0]), DISPATCH: sent[0], "expert_up_projection": work(at[2]), COMBINE: sent[1]}


def total(kernels: Kernels) -> float:
    return float(add_up(kernels, lambda cost: cost.time))


def timeline(first: Times, second: Times, layers: int) -> float:
    """Turns of two halves on a device and a network: each turn begins where both streams are done with the last."""
    turns = [(first[0], 0.0)]
    for left in reversed(range(layers)):
        following = first[0] if left else 0.0
        turns += [(second[0], first[1]), (first[2], second[1]), (second[2], first[3]), (following, second[3])]
    return sum(max(turn) for turn in turns)


@given(times, times, st.integers(1, 5))
def test_layers_take_what_their_turns_take(first: Times, second: Times, layers: int) -> None:
    both = both_halves(layer(first), layer(second), as_float(layers))
    assert total(both) == pytest.approx(timeline(first, second, layers), rel=1e-9, abs=1e-9)
    working = layers * (first[0] + first[2] + second[0] + second[2])
    sending = layers * (first[1] + first[3] + second[1] + second[3])
    assert max(working, sending) - 1e-9 <= total(both) <= working + sending + 1e-9
    assert float(both["attention"].launches) == 2 * layers and float(both[DISPATCH].bytes_moved) == 2 * layers


def test_layers_without_an_exchange_are_one_half_after_the_other() -> None:
    dense = {"attention": work(1.0), "up_projection": work(2.0)}
    assert total(both_halves(dense, dense, as_float(3.0))) == 18.0
    still = both_halves(layer((1.0, 0.0, 2.0, 0.0)), layer((1.0, 0.0, 2.0, 0.0)), as_float(3.0))
    assert total(still) == 18.0 and float(exchange_left(still)) == 0.0


@host_first
@jax.jit
def steps(at, sequences, context, prompt):
    """A step of decode in one and in two, of half of its sequences, and a prompt in two."""
    tokens, source = as_float(1.0), as_float(0.0)
    one = several_token_kernels(at, MIXTRAL, sequences, context, tokens, source)
    half = several_token_kernels(at, MIXTRAL, sequences / 2.0, context, tokens, source)
    two = decode_in_two(at, MIXTRAL, sequences, context, tokens, source)
    return one, half, two, prefill_in_two(at, MIXTRAL, prompt, source)


def test_weights_are_read_twice_and_the_ends_once() -> None:
    one, half, two, _ = steps(deployment(ROOMY, data=8, expert=8), *map(as_float, (64, 2048, 512)))
    for name in ("expert_up_projection", "attention", "router"):
        assert float(two[name].bytes_moved) == pytest.approx(2 * float(half[name].bytes_moved), rel=1e-12)
    assert float(two["attention"].flops) == pytest.approx(float(one["attention"].flops), rel=1e-9)
    assert float(two["expert_up_projection"].bytes_moved) > 1.5 * float(one["expert_up_projection"].bytes_moved)
    assert float(two["output_head"].time) == float(one["output_head"].time)


def test_inside_a_node_it_costs_more_than_it_hides_over_a_slow_network_it_pays() -> None:
    near, far = deployment(ROOMY, data=8, expert=8), deployment(SLOW, data=16, expert=8)
    (one, _, two, _), (apart, _, together, prompt) = (steps(at, *map(as_float, (512, 512, 512))) for at in (near, far))
    assert float(exchange_left(two)) <= float(exchange_left(one)) and total(two) > total(one)
    assert total(together) < total(apart) and np.isfinite(total(prompt))


def test_it_pays_from_the_batch_on_whose_exchange_is_longer_than_the_weights() -> None:
    batch = host_first(jax.jit(lambda at: paying_batch(at, MIXTRAL, None, as_float(512.0)), compiler_options=QUICK))
    slow, fast = (float(batch(deployment(device, data=16, expert=8))) for device in (SLOW, ROOMY))
    assert 32.0 <= slow < fast


def test_the_gradient_of_the_exchange_that_is_left_is_finite() -> None:
    def left(time: jax.Array) -> jax.Array:
        slow = dict(layer((1.0, 1.0, 1.0, 1.0)))
        slow[DISPATCH] = dataclasses.replace(slow[DISPATCH], time=time)
        return exchange_left(both_halves(slow, slow, as_float(2.0)))

    assert np.isfinite([float(jax.grad(left)(as_float(at))) for at in (0.0, 1.0, 3.0)]).all()
    assert float(jax.grad(left)(as_float(3.0))) == 4.0  # two layers, two halves
