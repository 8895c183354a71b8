"""Interruptions and spares against published figures and the binomial distribution in exact integers."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import pytest
from jax.scipy.special import betainc

from jaxperf.core.numerics import as_float
from jaxperf.training.checkpoint import goodput, save_time
from jaxperf.training.failures import (
    DAY,
    HOUR,
    Failures,
    assumed_failures,
    cluster_mtbf,
    enough_spares,
    observed_device_mtbf,
    spares_for,
)
from jaxperf.training.search.plan import SAVE_PAUSE, STORE_BANDWIDTH


def test_llama3_was_interrupted_every_three_hours() -> None:
    """arXiv:2407.21783, section 3.3.4: 419 unexpected interruptions of 16,384 H100 in 54 days."""
    mtbf = cluster_mtbf(assumed_failures(), as_float(16384.0))
    assert float(mtbf) / HOUR == pytest.approx(3.09, abs=0.005)
    assert observed_device_mtbf(16384, 419, 54 * DAY) / HOUR == pytest.approx(50_677, abs=1)


def test_llama3_worked_nine_tenths_of_the_time() -> None:
    """The same section: an effective training time over 90 %; its causes (restart, store) are our assumptions."""
    failures, save = assumed_failures(), save_time(*map(as_float, (405e9 * 12.0, STORE_BANDWIDTH, SAVE_PAUSE)))
    kept = goodput(save, cluster_mtbf(failures, as_float(16384.0)), failures.restart)
    assert 0.90 < float(kept.share) < 0.95


@pytest.mark.parametrize(("devices", "spares", "out"), [(5, 0, 0.25), (5, 2, 0.25), (40, 3, 0.05), (200, 0, 0.001)])
def test_spares_are_a_binomial_tail(devices: int, spares: int, out: float) -> None:
    share = Fraction(out)
    total = devices + spares
    exact = sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(spares + 1))
    failures = Failures(device_mtbf=1.0 - out, restart=0.0, repair=out)
    assert float(enough_spares(failures, as_float(devices), as_float(spares))) == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("devices", [1, 7, 1000, 65536])
def test_spares_are_the_least_that_suffice(devices: int) -> None:
    failures = assumed_failures()
    n, wanted = as_float(devices), as_float(0.99)
    spares = jax.jit(spares_for)(failures, n, wanted)
    assert float(enough_spares(failures, n, spares)) >= 0.99
    if float(spares) > 0.0:
        assert float(enough_spares(failures, n, spares - 1.0)) < 0.99


@pytest.mark.parametrize(("repair", "exact"), [(1.0, 19.0), (3.0, 52.0), (1e9, math.inf)])
def test_more_spares_than_devices_where_these_are_out_longer_than_they_work(repair: float, exact: float) -> None:
    """As scipy.stats.binom counts them: eight devices, out for as long as they work, and for three times that."""
    failures = Failures(device_mtbf=1.0, restart=0.0, repair=repair)
    assert float(jax.jit(spares_for)(failures, as_float(8.0), as_float(0.99))) == exact


@pytest.mark.parametrize(
    ("devices", "exact"), [(4096, 6), (30000, 24), (65536, 45), (200_000, 118), (524_288, 286), (1_048_576, 549)]
)
def test_spares_of_large_clusters_in_32_bits(devices: int, exact: int) -> None:
    """Commands compute in float32, where the beta function of a million devices was 13 spares off."""
    failures = jax.tree.map(jnp.float32, assumed_failures())
    assert float(jax.jit(spares_for)(failures, jnp.float32(devices), jnp.float32(0.99))) == exact
    working = failures.device_mtbf.astype(float) / (failures.device_mtbf + failures.repair).astype(float)
    few, enough = (float(betainc(devices * 1.0, spares + 1.0, working)) for spares in (exact - 1, exact))
    assert few < 0.99 <= enough
