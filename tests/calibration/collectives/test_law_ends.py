"""The interval of kinds that nobody measured, by quantiles of invented kinds."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.collectives.law_ends import HELD, law_ends


def test_every_kind_weighs_the_same_whatever_its_rows() -> None:
    """Ten thousand rows at twice the time and ten kinds of ten rows between a half of it and the whole: the large one
    is an eleventh of the weight, and so beyond the upper end, which all rows alike would have at it."""
    few = np.tile(-np.linspace(0.05, 0.5, 10), 10)
    residual = np.concatenate([np.full(10_000, 0.7), few])
    kind = np.array(["large"] * 10_000 + [f"kind {place}" for place in range(10) for _ in range(10)])
    below, above = law_ends(residual, kind)
    assert below == pytest.approx(0.7) and above == pytest.approx(0.5)
    thinned = slice(9_990, None)
    assert law_ends(residual[thinned], kind[thinned]) == (below, above)


def test_a_kind_that_is_left_out_is_held_nine_times_in_ten() -> None:
    """Kinds scatter about their own bias, three of them far off to one side: the ends are apart."""
    rng = np.random.default_rng(3)
    biases = np.concatenate([rng.normal(0.0, 0.2, 27), [-1.5, -2.0, -2.5]])
    kind = np.repeat(np.arange(30).astype(str), 50)
    residual = np.repeat(biases, 50) + rng.normal(0.0, 0.1, 1500)
    below, above = law_ends(residual, kind)
    inside = (residual <= below) & (residual >= -above)
    assert 0.0 < below < 1.0 < above and inside.mean() >= HELD


def test_one_kind_alone_is_told_by_itself() -> None:
    residual = np.linspace(-1.0, 0.4, 1001)
    below, above = law_ends(residual, np.full(1001, "only"))
    assert (below, above) == (pytest.approx(0.4, abs=0.01), pytest.approx(1.0, abs=0.01))
