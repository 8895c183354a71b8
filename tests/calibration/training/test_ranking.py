"""Splits, order of layouts and one-number references, against what can be counted by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets.training import Run, read_training
from calibration.orders import ordered_pairs, spearman
from calibration.training.baselines import fitted_constant, fixed, ideal_times
from calibration.training.ranking import ranked_groups
from calibration.training.splits import FOLDS, splits_of
from tests.calibration.training.runs import write


def runs(folder: Path, *changes: Mapping[str, object]) -> tuple[Run, ...]:
    return read_training(write(folder, *changes)).runs


def test_spearman_of_known_orders() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(values, values**3) == pytest.approx(1.0)
    assert spearman(values, -values) == pytest.approx(-1.0)
    # Of (1, 2, 3, 4) and (2, 1, 4, 3): 1 - 6 x 4 / (4 x 15) = 0.6.
    assert spearman(values, np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(0.6)
    # Ties have their mean rank: (0, 1.5, 1.5, 3) with (0, 1, 2, 3) is 4.5 / sqrt(4.5 x 5).
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), values) == pytest.approx(4.5 / np.sqrt(22.5))
    assert np.isnan(spearman(np.ones(4), values))


def test_the_layout_that_would_be_picked_and_what_it_costs(tmp_path: Path) -> None:
    three = runs(
        tmp_path,
        {"step_time_s": 1.0, "tp": 2},
        {"step_time_s": 1.2, "tp": 4, "dp": 1},
        {"step_time_s": 1.4, "tp": 4, "dp": 1, "repeat_of_release": True},
        {"step_time_s": 1.1, "tp": 1, "dp": 4},
    )
    (found,) = ranked_groups(three, np.array([1.0, 0.9, 0.9, 1.2]))
    # The releases of tp 4 count once, by their median of 1.3; it is predicted fastest.
    assert found.layouts == 3 and found.regret == pytest.approx(0.3)
    assert found.spearman == found.step_spearman == pytest.approx(-0.5)
    assert (found.pairs, found.right) == (3, 1)  # 1.0, 1.1 and 1.3; only 1.0 before 1.1 is predicted so
    assert 0.95 < found.ceiling <= 1.0  # 10 and 18 % apart, the label noise is 1.5 %
    assert not ranked_groups(three[:3], np.array([1.0, 0.9, 0.9]))


def test_layouts_that_take_the_same_have_no_order_to_find(tmp_path: Path) -> None:
    table = [{"step_time_s": 1.0 + 1e-6 * tp, "tp": tp, "dp": 4 // tp} for tp in (1, 2, 4)]
    (found,) = ranked_groups(runs(tmp_path, *table), np.array([1.0, 2.0, 3.0]))
    assert found.spearman == 1.0 and abs(found.ceiling) < 0.2 and found.pairs == 0


@given(st.lists(st.integers(1, 40), min_size=2, max_size=8), st.integers(0, 2**32 - 1))
def test_pairs_within_the_noise_do_not_count(values: list[int], seed: int) -> None:
    measured, predicted = np.array(values, float), np.random.default_rng(seed).permutation(len(values)).astype(float)
    pairs = [
        (i, j)
        for i in range(len(values))
        for j in range(i)
        if 4 * max(values[i], values[j]) > 5 * min(values[i], values[j])
    ]
    right = sum((values[i] > values[j]) == (predicted[i] > predicted[j]) for i, j in pairs)
    assert ordered_pairs(predicted, measured, 0.25) == (len(pairs), right)
    assert ordered_pairs(measured, measured, 0.25) == (len(pairs), len(pairs))


def test_no_fold_shows_what_it_asks_for(tmp_path: Path) -> None:
    table = [
        {"model": model, "source": source, "tp": tp, "dp": 4 // tp}
        for model in ("llama-3.1-8b", "llama-3-70b", "qwen3-8b")
        for source in "ab"
        for tp in (1, 2)
    ]
    made = runs(tmp_path, *table, {"source": "a", "calculon_native": True, "tp": 4, "dp": 1})
    splits = splits_of(made)
    kinds, sources = np.array([run.model_key for run in made]), np.array([run.source for run in made])
    for split, folds in splits.items():
        asked = np.sum([fold.asked for fold in folds], axis=0)
        assert (asked == 1).all() or split == "native"
        assert all(not (fold.shown & fold.asked).any() for fold in folds)
    assert len(splits["group"]) <= FOLDS
    for fold in splits["group"]:
        assert not set(kinds[fold.asked]) & set(kinds[fold.shown])
    for fold in splits["source"]:
        # Every layout of "b" was run by "a" too, so that without "b" only the one that "a" has alone is left.
        assert fold.shown.sum() == (1 if set(sources[fold.asked]) == {"b"} else 0)
    (native,) = splits["native"]
    assert native.asked.sum() == 1 and native.asked[-1]


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8), st.floats(0.05, 0.9))
def test_a_constant_utilization_is_found_exactly(times: list[float], utilization: float) -> None:
    ideal = np.array(times)
    measured = ideal / utilization
    weight = np.ones(len(ideal))
    found = fitted_constant(ideal, measured, weight, [["a"] * len(ideal), ["b"] * len(ideal)])
    assert np.allclose(np.exp(found), measured, rtol=1e-12)
    assert np.allclose(np.exp(fixed(ideal_times(measured, measured * 0.0 + utilization))["mfu_0.5"]), 2.0 * ideal)


def test_the_closest_kin_that_was_shown_decides() -> None:
    ideal, measured = np.ones(4), np.array([2.0, 4.0, 8.0, np.nan])
    levels = [["x", "y", "z", "new"], ["c", "c", "d", "c"]]
    found = np.exp(fitted_constant(ideal, measured, np.array([1.0, 1.0, 0.0, 1.0]), levels))
    # "z" was not shown and nobody else has "d": the median of all; "new" has the median of "c".
    assert found == pytest.approx([2.0, 4.0, np.sqrt(8.0), np.sqrt(8.0)])
