"""The order of configurations and what a pick loses, on tables small enough to work out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.datasets.serving import read_serving
from calibration.serving.evaluate import LINE, OURS, HeldOut, recentred
from calibration.serving.layouts import Deployed, deployed
from calibration.serving.ranking import (
    ALL,
    EXPECTED,
    NOISE,
    PICKERS,
    RANDOM,
    TARGETS,
    chances,
    kendall,
    rank_rows,
    rate_of,
    regret,
)

HEADER = "model,gpu,n_gpu,tp,dtype,framework,mode,input_len,output_len,concurrency"
LOADS = (1, 2, 4, 8)
MODELS = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.1-8B-Instruct")
MEASURED = np.array([[0.1, 0.010], [0.1, 0.015], [0.1, 0.019], [0.1, 0.030]])  # TTFT, TPOT [s]


def points(folder: Path, count: int = len(LOADS)) -> list[Deployed]:
    lines = [f"Qwen/Qwen3-32B,h100_sxm,2,2,fp8,vllm,agg,1024,128,{load}" for load in LOADS[:count]]
    path = folder / "in.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return deployed(read_serving(path))[0]


def held_out(folder: Path, ours: np.ndarray, count: int = len(LOADS)) -> HeldOut:
    """What would be found had these times been predicted; the roofline says a hundredth of the measured ones."""
    unused: Any = None
    times = {OURS: np.log(ours[:count]), LINE: np.log(MEASURED[:count] / 100.0)}
    return HeldOut(
        tuple(points(folder, count)), unused, unused, np.log(MEASURED[:count]), {"model": times}, np.zeros(0)
    )


def row_of(found: HeldOut, who: str, target: str = "20 ms a token", group: str = ALL) -> dict[str, Any]:
    rows = [
        row for row in rank_rows(found, "model") if (row["who"], row["target"], row["group"]) == (who, target, group)
    ]
    assert len(rows) == 1
    return rows[0]


def test_perfect_predictions_lose_nothing(tmp_path: Path):
    found = held_out(tmp_path, MEASURED)
    for target in ("20 ms a token", "50 ms a token", "1 s to the first, 50 ms a token"):
        row = row_of(found, OURS, target, "qwen3-32b on h100-sxm")
        assert (row["tau"], row["median"], row["broken"], row["configurations"]) == (1.0, 0.0, 0.0, 4)


def test_recentred_residuals_have_no_level_of_their_series(tmp_path: Path):
    residual = np.array([[0.3, 1.0], [0.1, 2.0], [0.2, np.nan], [np.nan, np.nan]])  # one series
    found = recentred(points(tmp_path), residual)
    np.testing.assert_allclose(found[:3], [[0.1, -0.5], [-0.1, 0.5], [0.0, np.nan]], atol=1e-15)
    assert np.isnan(found[3]).all()
    assert residual[0, 0] == 0.3


def test_a_roofline_that_expects_too_much_breaks_the_target(tmp_path: Path):
    row = row_of(held_out(tmp_path, MEASURED), LINE)
    assert (row["tau"], row["median"], row["broken"]) == (1.0, 1.0, 1.0)


def test_a_careful_prediction_loses_what_the_next_best_has_less(tmp_path: Path):
    careful = MEASURED * np.array([1.0, 1.1])  # the third is now expected at 20.9 ms
    rates = rate_of(points(tmp_path), MEASURED)
    row = row_of(held_out(tmp_path, careful), OURS)
    assert row["median"] == pytest.approx(1.0 - rates[1] / rates[2]) and row["broken"] == 0.0


def test_where_none_is_expected_to_keep_the_target_the_nearest_is_picked(tmp_path: Path):
    rates = rate_of(points(tmp_path), MEASURED)
    row = row_of(held_out(tmp_path, MEASURED * 10.0), OURS)
    assert row["median"] == pytest.approx(1.0 - rates[0] / rates[2])


def test_random_takes_each_alike(tmp_path: Path):
    rates = rate_of(points(tmp_path), MEASURED)
    row = row_of(held_out(tmp_path, MEASURED), RANDOM)
    assert row["median"] == pytest.approx(np.mean([1.0 - rates[0] / rates[2], 1.0 - rates[1] / rates[2], 0.0, 1.0]))
    assert (row["broken"], row["tau"]) == (0.25, 0.0)


def test_a_chance_is_the_share_of_other_folds_errors_that_keep_the_target(tmp_path: Path):
    """Two models: the one was predicted 1.5 x too fast at every other load, which the other is then told."""
    lines = [f"{model},h100_sxm,2,2,fp8,vllm,agg,1024,128,{load}" for model in MODELS for load in LOADS]
    path = tmp_path / "in.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    measured = np.log(np.concatenate([MEASURED, MEASURED]))
    ours = measured.copy()
    ours[1:4:2, 1] -= np.log(1.5)
    unused: Any = None
    told = {"model": {OURS: ours, LINE: measured}}
    found = HeldOut(tuple(deployed(read_serving(path))[0]), unused, unused, measured, told, np.zeros(0))
    chance = chances(found, "model", TARGETS[0])  # 20 ms a token; the second model has 10, 15, 19 and 30 ms
    np.testing.assert_array_equal(chance[4:], [1.0, 0.5, 0.5, 0.0])
    np.testing.assert_array_equal(chance[:4], [1.0, 1.0, 1.0, 1.0])  # predicted as 10, 10, 19 and 20 ms
    rows = {row["who"]: row for row in rank_rows(found, "model") if row["target"] == TARGETS[0].name}
    assert rows[EXPECTED]["broken"] <= rows[OURS]["broken"]


def test_groups_of_three_are_left_out_and_every_target_names_every_picker(tmp_path: Path):
    assert rank_rows(held_out(tmp_path, MEASURED, 3), "model") == []
    rows = rank_rows(held_out(tmp_path, MEASURED), "model")
    assert [row["who"] for row in rows[: len(PICKERS)]] == list(PICKERS) and len(rows) == 3 * 2 * len(PICKERS)


def test_pairs_within_the_noise_are_ties():
    measured = np.array([1.0, 2.0, 3.0, 3.0 * (1.0 + NOISE / 2.0)])
    assert kendall(measured, measured) == 1.0
    assert kendall(-measured, measured) == -1.0
    assert kendall(np.array([1.0, 2.0, 4.0, 3.0]), measured) == 1.0
    assert math.isnan(kendall(measured[2:], measured[2:]))


def test_regret_is_a_share_of_the_best_that_keeps_the_target():
    assert regret(3.0, True, 4.0) == 0.25
    assert regret(9.0, False, 4.0) == 1.0
    assert regret(4.2, True, 4.0) == 0.0
