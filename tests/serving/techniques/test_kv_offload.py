"""A cache on the host: the pipeline between loading and work, hits in whole tokens, what stays on the device."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.models.memory import MemoryUse
from jaxperf.serving.techniques.kv_offload import OffloadedCache, hit_tokens, layered_time, load_time, resident

times = st.floats(0.0, 1.0, allow_subnormal=False)  # XLA may flush subnormal numbers to zero


def offload(hits: float = 0.5, share: float = 0.0) -> OffloadedCache:
    return OffloadedCache(hits, 1.0, share, 5e10)


@given(times, times, st.integers(1, 128))
def test_layer_by_layer_is_a_pipeline_of_two_stages(work: float, load: float, layers: int) -> None:
    """Against the schedule itself: a layer starts when its cache is there and the layer before is done."""
    there, done = 0.0, 0.0
    for _ in range(layers):
        there += load / layers
        done = max(done, there) + work / layers
    found = float(layered_time(as_float(work), as_float(load), as_float(layers), True))
    np.testing.assert_allclose(found, done, rtol=1e-9, atol=1e-12)
    assert found <= float(layered_time(as_float(work), as_float(load), as_float(layers), False)) * (1 + 1e-12) + 1e-15
    assert found >= max(work, load), "to the last bit: nothing is waited for a negative time"


@given(st.floats(0.0, 1.0), st.integers(1, 10_000))
def test_hits_are_whole_tokens_and_leave_one(hits: float, prompt: int) -> None:
    found = float(hit_tokens(offload(hits), as_float(prompt)))
    assert found == int(found) and 0 <= found <= prompt - 1
    assert found == min(int(hits * prompt), prompt - 1)


def test_nothing_to_load_takes_no_time() -> None:
    assert float(load_time(offload(), as_float(0.0))) == 0.0
    assert float(layered_time(as_float(0.3), as_float(0.0), as_float(1.0), True)) == 0.3


def test_what_is_on_the_host_is_not_on_the_device() -> None:
    memory = MemoryUse(*map(as_float, (1e9, 4e9, 1e8, 7e10)))
    left = resident(memory, offload(share=0.25))
    assert float(left.kv_cache) == 3e9 and float(left.weights) == 1e9
    assert float(resident(memory, offload()).total) == float(memory.total)


def test_a_wider_link_never_waits_longer() -> None:
    def waits(bandwidth):
        given = OffloadedCache(0.0, 1.0, 0.5, bandwidth)
        return layered_time(as_float(0.01), load_time(given, as_float(1e9)), as_float(32.0), True)

    found = [float(waits(as_float(rate))) for rate in (1e9, 5e9, 2.5e10, 1e11, 1e12)]
    assert found == sorted(found, reverse=True)
    assert float(jax.grad(waits)(as_float(5e10))) < 0.0
