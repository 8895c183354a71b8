"""Prefill and decode attention at once: between the longer of the two and their sum."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.cost import Cost
from jaxperf.core.formats import number_format
from jaxperf.core.numerics import as_float
from jaxperf.kernels.attention import AttentionShape, decode_attention_cost, prefill_attention_cost
from jaxperf.serving.techniques.mixed_attention import fused_attention_cost
from tests.devices import H100, efficiencies

busy = st.floats(0.0, 1.0)
fused_of = jax.jit(fused_attention_cost)


def kernel(compute: float, memory: float, latency: float = 0.01) -> Cost:
    parts = (max(compute, memory) + latency, compute, memory, 0.0, latency, 2e12 * compute, 1e12 * memory, 1.0)
    return Cost(*map(as_float, parts))


@given(busy, busy, busy, busy)
def test_never_faster_than_either_and_never_slower_than_both(a, b, c, d) -> None:
    one, other = kernel(a, b), kernel(c, d)
    fused = fused_of(one, other)
    assert max(float(one.time), float(other.time)) <= float(fused.time) <= float(one.time + other.time)
    np.testing.assert_allclose(fused.flops, one.flops + other.flops, rtol=1e-12)
    np.testing.assert_allclose(fused.bytes_moved, one.bytes_moved + other.bytes_moved, rtol=1e-12)


def test_what_needs_different_resources_hides_and_what_needs_the_same_does_not() -> None:
    prefill, decode = kernel(1.0, 0.1, 0.0), kernel(0.05, 0.8, 0.0)
    fused = fused_attention_cost(prefill, decode)
    np.testing.assert_allclose(fused.time, 1.05, rtol=1e-12)
    alike = fused_attention_cost(prefill, prefill)
    np.testing.assert_allclose(alike.time, 2.0, rtol=1e-12)


def test_nothing_beside_is_the_kernel_alone() -> None:
    zero = Cost(*(as_float(0.0),) * 8)
    fused = fused_attention_cost(kernel(0.7, 0.3), zero)
    assert float(fused.time) == float(kernel(0.7, 0.3).time)


def test_a_hybrid_batch_gains_up_to_what_its_shorter_half_takes() -> None:
    """POD-Attention (ASPLOS 2025) reports up to 59 % faster attention; two perfect halves would make 100 %."""
    shape, bf16, given = AttentionShape(32, 8, 128), number_format("bf16"), efficiencies()

    def costs(batch):
        prefill = prefill_attention_cost(
            H100, shape, as_float(1), as_float(2048), as_float(8192), bf16, bf16, given.attention_prefill
        )
        return prefill, decode_attention_cost(H100, shape, batch, as_float(8192), bf16, bf16, given.attention_decode)

    gains = []
    for batch in (4.0, 32.0, 128.0):
        prefill, decode = jax.jit(costs)(as_float(batch))
        gains.append(float((prefill.time + decode.time) / fused_attention_cost(prefill, decode).time))
    assert all(1.0 < gain < 2.0 for gain in gains)
