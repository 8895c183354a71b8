"""Two pools whose table leaves the layout of attention open: the one that serves more is taken."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.serving.law import Rows, Setup, answers
from calibration.serving.pieces import KINDS, PROMPTS, SEQUENCES, Pieces
from calibration.serving.scalars import SCALARS, values_of


def pools(step: float) -> Rows:
    """One disaggregated configuration whose decode steps take `step` [s]."""
    pieces = Pieces(
        decode=jnp.full((1, len(SEQUENCES), len(KINDS)), step / len(KINDS)),
        prefill=jnp.full((1, len(PROMPTS), len(KINDS)), 1e-2),
        launches=jnp.ones(1),
        slots=jnp.full(1, 64.0),
        transfer=jnp.full(1, 1e-3),
        stages=jnp.ones(1),
        reason=jnp.zeros(1, jnp.int32),
    )
    numbers = dict(replicas=2.0, data=1.0, load=16.0, prompt=1024.0, output=100.0, stages=1.0)
    setup = Setup(**{name: jnp.full(1, value) for name, value in numbers.items()})
    return Rows(setup, pieces, {"pools": np.array([0])})


@pytest.mark.parametrize("step", [1e-2, 4e-2])
def test_of_two_layouts_the_one_that_serves_more_answers(step: float):
    places = {field: jnp.zeros((len(scalar.deviations), 1), int) for field, scalar in SCALARS.items()}
    values = values_of(jnp.zeros(1), places)
    stated, other = pools(2e-2), pools(step)
    found, _ = answers(values, dataclasses.replace(stated, others=(np.array([0]), other)))
    alone = [answers(values, rows)[0] for rows in (stated, other)]
    best = max(alone, key=lambda state: float(state.throughput[0]))
    assert best is alone[step < 2e-2]
    assert float(found.tpot[0]) == float(best.tpot[0])
    assert float(found.ttft[0]) == float(best.ttft[0])
