"""The closed form of a step: stairs kept, attention recovered, chunks added up as plain Python adds them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float, ceil_div
from jaxperf.serving.queueing.law import StepLaw, linear_time, probed_law, prompt_attention, table_law
from jaxperf.serving.queueing.steps import LawStepTime
from jaxperf.serving.simulator.step_time import StepTimeTable, Work

DECODE, PREFILL = (4e-4, 7e-7, 5e-8), (6e-4, 2e-7, 5e-10, 3e-7, 7e-10)


def stairs(tokens):
    """A floor, then a step for every tile of 128 tokens."""
    return 5e-3 + 2e-3 * ceil_div(tokens, as_float(128.0))


@pytest.fixture(scope="module")
def law() -> StepLaw:
    d0, d1, d2 = DECODE
    p0, p1, p2, p3, p4 = PREFILL
    return probed_law(
        stairs,
        lambda n, context: d0 + d1 * n + d2 * n * context,
        lambda prefix, q: p0 + p1 * q + p2 * q * q + prefix * (p3 + p4 * q),
        tokens=4096.0,
        decodes=256.0,
        context=8192.0,
        chunk=2048.0,
    )


@pytest.mark.parametrize("tokens", [1, 64, 128, 129, 1024, 1025, 4096])
def test_stairs_of_tiles_are_kept(law: StepLaw, tokens: int) -> None:
    assert float(linear_time(law, as_float(tokens))) == pytest.approx(float(stairs(as_float(tokens))), rel=1e-12)


def test_beyond_its_reach_time_is_proportional_to_tokens(law: StepLaw) -> None:
    whole = float(linear_time(law, as_float(4096.0)))
    assert float(linear_time(law, as_float(8192.0))) == pytest.approx(2.0 * whole)


def test_attention_is_recovered(law: StepLaw) -> None:
    np.testing.assert_allclose(law.decode, DECODE, rtol=1e-6)
    np.testing.assert_allclose(law.prefill, PREFILL, rtol=1e-6)


def test_attention_in_stairs_is_met_in_the_mean() -> None:
    """Waves of 64 decodes: probes at powers of two would see the last decode of a wave alone."""
    waves = lambda n, context: 1e-3 * ceil_div(n, as_float(64.0)) + 0.0 * context  # noqa: E731
    found = probed_law(stairs, waves, lambda prefix, q: 1e-6 * q, tokens=64.0, decodes=256.0, context=64.0, chunk=64.0)
    n = np.arange(1.0, 257.0)
    fitted = found.decode[0] + n * (found.decode[1] + found.decode[2] * 32.0)
    assert float(np.mean(fitted)) == pytest.approx(float(np.mean(np.asarray(waves(n, 0.0)))), rel=0.05)


@given(st.integers(1, 40), st.integers(1, 700), st.integers(0, 5000))
def test_a_prompt_in_whole_chunks_is_their_sum(chunks: int, chunk: int, cached: int) -> None:
    law = StepLaw(*map(as_float, ([1.0], [1.0], 64.0, DECODE, PREFILL)))
    p0, p1, p2, p3, p4 = PREFILL
    wanted = sum(p1 * chunk + p2 * chunk**2 + (cached + chunk * i) * (p3 + p4 * chunk) for i in range(chunks))
    found = prompt_attention(law, as_float(chunks * chunk), as_float(chunk), as_float(cached))
    assert float(found) == pytest.approx(wanted, rel=1e-9)


def test_the_law_of_a_table_and_its_steps_agree_with_the_table() -> None:
    d0, d1, d2 = DECODE
    n, context = np.arange(65.0)[:, None], 64.0 * np.arange(33.0)[None, :]
    decode = np.where((n > 0) & (context > 0), d0 + d1 * n + d2 * n * context, 0.0)
    p0, p1, p2, p3, p4 = PREFILL
    prefix, q = 64.0 * np.arange(33.0)[:, None], 16.0 * np.arange(65.0)[None, :]
    prefill = np.where(q > 0, p0 + p1 * q + p2 * q * q + prefix * (p3 + p4 * q), 0.0)
    tokens = np.concatenate([[0.0], np.asarray(stairs(as_float(np.arange(1.0, 1025.0))))])
    table = StepTimeTable(*map(as_float, (tokens, decode, prefill, 1.0, 64.0, 16.0)))
    steps = LawStepTime(table_law(table))
    mixed = Work(jnp.array([1, 1, 512], jnp.int32), jnp.array([640, 640, 0], jnp.int32), jnp.array([True, True, False]))
    both = jax.jit(lambda work: (steps(work), table(work)))
    for part in ([1, 1, 1], [1, 1, 0], [0, 0, 1]):
        work = mixed._replace(tokens=mixed.tokens * jnp.array(part, jnp.int32))
        found, wanted = both(work)
        assert float(found.seconds) == pytest.approx(float(wanted.seconds), rel=1e-6)
        assert int(found.alike) == int(wanted.alike) or not part[0]
