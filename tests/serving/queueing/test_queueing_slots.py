"""Slots: Erlang's formula, one slot as M/G/1, and no company in it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.core.numerics import as_float
from jaxperf.serving.queueing.engine import Engine, Load, chunked, prefill_first
from jaxperf.serving.queueing.lengths import lengths_as
from jaxperf.serving.queueing.slots import all_taken
from jaxperf.sweeps.once import evaluate_once
from tests.serving.queueing.engines import most_of, percentiles, steady, straight_law


@pytest.mark.parametrize("slots", [1, 2, 5, 50])
def test_the_probability_that_all_slots_are_taken_is_erlangs(slots: int) -> None:
    for busy in (0.1, 0.5, 0.8, 0.95):
        load = busy * slots
        terms = [load**number / math.factorial(number) for number in range(slots)]
        full = load**slots / math.factorial(slots) / (1.0 - busy)
        found = float(all_taken(as_float(slots), as_float(load)))
        assert found == pytest.approx(full / (sum(terms) + full), rel=0.02)


def test_more_slots_are_less_often_all_taken_without_a_jump() -> None:
    taken = np.asarray(jax.vmap(lambda slots: all_taken(slots, as_float(0.9)))(jnp.linspace(1.0, 12.0, 500)))
    assert np.all(np.diff(taken) < 0.0) and np.diff(taken).min() > -0.05


@pytest.mark.parametrize("discipline", [chunked, prefill_first])
@pytest.mark.parametrize("load", [0.1, 0.5, 0.8])
def test_one_slot_is_pollaczek_and_khinchines(discipline, load: float) -> None:
    """W = rho S (1 + c^2) / (2 (1 - rho)), S the whole request; nothing is beside it."""
    law, prompt = straight_law(), lengths_as({"kind": "fixed", "value": 500})
    for kind in ({"kind": "fixed", "value": 100}, {"kind": "uniform", "low": 20, "high": 180}):
        output, engine = lengths_as(kind), Engine(1.0, 2048.0)
        first = 500 * 2.3e-5 + 6e-4
        each = float(steady(discipline, law, Load(1e-6, prompt, output), engine).tpot)
        service, spread = first + 99.0 * each, float(output.square - output.mean**2) * each**2
        assert most_of(discipline, law, (prompt, output), engine) == pytest.approx(1.0 / service, rel=2e-3)
        found = steady(discipline, law, Load(load / service, prompt, output), engine)
        wait = 0.5 * load / (1.0 - load) * (service + spread / service)
        assert float(found.ttft) == pytest.approx(first + wait, rel=0.02)
        assert float(found.tpot) == pytest.approx(each, rel=2e-3)
        if kind["kind"] == "fixed":
            tails = percentiles(found, Load(load / service, prompt, output), as_float(0.99))
            assert float(tails["tpot"]) == pytest.approx(each, rel=0.02)


def test_the_derivative_by_the_slots_is_the_difference() -> None:
    lengths = [lengths_as({"kind": "fixed", "value": value}) for value in (500, 100)]

    def e2e(slots):
        return steady(chunked, straight_law(), Load(2.0, *lengths), Engine(slots, 2048.0)).e2e

    slots, step = as_float(2.5), 1e-4
    slope = evaluate_once(jax.jit(jax.jacfwd(e2e)), slots)
    assert float(slope) == pytest.approx(float(e2e(slots + step) - e2e(slots - step)) / (2.0 * step), rel=1e-3)
