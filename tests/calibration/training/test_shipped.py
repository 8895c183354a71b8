"""The shipped scalars of the training step: what their card says, and that measured runs are still predicted so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.datasets.training import read_training
from calibration.kernels.parameters import load_parameters
from calibration.training import predict
from calibration.training.parameters import load_training
from calibration.training.points import known_runs
from calibration.training.predict import BEYOND_PEAK, TIME, design_and_starts, device_notes, predict_training, tiers_of
from calibration.training.scalars import assumed_starts, design_of, efficiencies_of
from calibration.training.shares import starts_of
from tests.calibration.training.runs import write


def errors_of(split: str, part: str) -> dict[str, Any]:
    (row,) = [
        row
        for row in load_training().card["errors"]
        if (row["split"], row["part"], row["who"]) == (split, part, "ours")
    ]
    return row


@pytest.mark.parametrize(
    ("split", "part", "mean", "median", "p90"),
    [
        ("group", "dense", 0.08, 0.06, 0.18),
        ("group", "exploratory", 0.20, 0.20, 1.0),
        ("source", "dense", 0.12, 0.12, 1.0),
        ("source", "exploratory", 0.20, 0.20, 1.0),
        ("native", "dense", 0.144, 0.098, 1.0),  # Calculon's own figures on these rows
    ],
)
def test_held_out_errors_are_within_the_targets(split: str, part: str, mean: float, median: float, p90: float) -> None:
    row = errors_of(split, part)
    assert row["mean"] <= mean and row["median"] <= median and row["p90"] <= p90


def test_every_scalar_is_within_four_deviations_of_its_prior() -> None:
    from calibration.training.scalars import SCALARS

    for name, value in load_training().deviations.items():
        field, level, _ = name.split("/", 2)
        assert abs(value) < 4.0 * SCALARS[field].deviations[level], name


@pytest.mark.validation
def test_measured_runs_are_predicted_as_the_card_says(data_directory: Path) -> None:
    path = data_directory / "training" / "train_e2e.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    table = read_training(path)
    columns = predict_training(table, load_training(), load_parameters())
    measured = np.full(table.rows, np.nan)
    measured[[run.row for run in table.runs]] = [run.measured for run in table.runs]
    error = np.abs(columns[TIME] / measured - 1.0)
    known = columns["tier"] == "known"
    assert known.sum() >= 200 and np.nanmean(error[known]) < errors_of("group", "dense")["mean"]
    assert np.nanmedian(error[columns["tier"] == "exploratory"]) < 0.12


@pytest.mark.parametrize(
    ("device", "change", "tier", "note"),
    [
        ("h100-sxm", {}, "known", ""),
        ("h100-sxm", {"dtype": "fp16"}, "known", ""),
        ("tpu-v6e", {"source": "MaxText"}, "unseen", "the device was never measured in training"),
        ("rtx-5090", {}, "unseen", "the device was never measured in training"),
        ("l4", {"source": "eager"}, "unseen", "the device was never measured in 16-bit formats"),
        ("tpu-v6e", {"source": "MaxText", "dtype": "int8"}, "exploratory", "the device was never measured in training"),
    ],
)
def test_only_what_was_measured_is_known(
    tmp_path: Path, device: str, change: dict[str, str], tier: str, note: str
) -> None:
    known = known_runs(read_training(write(tmp_path, {"source": "Megatron-Bridge", "gpu": device, **change})))
    shipped = load_training()
    assert tiers_of(known, shipped) == [tier] and device_notes(known, shipped) == [note]


def test_a_changed_device_is_not_the_measured_one(tmp_path: Path) -> None:
    known = known_runs(read_training(write(tmp_path, {"source": "Megatron-Bridge"})))
    h100 = known.specs["h100-sxm"]
    faster = h100.model_copy(update={"clock_rate": h100.clock_rate.model_copy(update={"quantity": "2 GHz"})})
    other, shipped = dataclasses.replace(known, specs={"h100-sxm": faster}), load_training()
    assert tiers_of(other, shipped) == ["unseen"]
    assert device_notes(other, shipped) == ["not the measured device of its name: other clock_rate"]
    (places,), (same,) = (design_of(each, list(shipped.deviations)).places["gemm"][2] for each in (other, known))
    assert places == len(shipped.deviations) and same == list(shipped.deviations).index("gemm/device/h100-sxm")


def test_products_end_at_a_peak_that_was_not_measured(tmp_path: Path) -> None:
    """And those of an fp32 product of an A100, whose measured times say more than the stated peak, stay as fitted."""
    runs = (
        {"source": "MaxText", "gpu": "tpu-v5e", "dtype": "int8"},
        {"source": "llm-foundry", "gpu": "rtx-4090", "dtype": "fp8"},
        {"source": "NeuSight", "gpu": "a100-sxm-40gb", "dtype": "fp32"},
    )
    known, shipped, kernels = known_runs(read_training(write(tmp_path, *runs))), load_training(), load_parameters()
    design, starts = design_and_starts(known, shipped, kernels, ())
    free = starts_of(known, kernels, {**assumed_starts(), **shipped.assumed})
    ended, before = (
        np.asarray(efficiencies_of(jnp.asarray(shipped.values), design.places, each).gemm) for each in (starts, free)
    )
    assert (before > 1.05).all()
    assert ended == pytest.approx([1.0, 1.0, before[2]], rel=1e-12)


def test_products_above_the_peak_are_said_and_no_step_is_faster_than_it(tmp_path: Path) -> None:
    """A step of products alone, on the two devices whose small models have too much time beside them in the fit."""
    large = {"layers": 2, "hidden": 16384, "heads": 128, "kv_heads": 128, "head_dim": 128, "ffn": 65536, "vocab": 1000}
    large |= {"model": "large", "gated": 0, "seq": 2048, "recompute": "none", "dtype": "fp32", "source": "NeuSight"}
    large |= {"tp": 1, "pp": 1, "cp": 1, "dp": 1, "vp": 1, "n_gpus": 1, "micro_batch": 8, "global_batch": 8}
    table = read_training(
        write(tmp_path, {**large, "gpu": "v100-pcie-32gb"}, {**large, "gpu": "a100-sxm-40gb"}, {"gpu": "h100-sxm"})
    )
    columns = predict_training(table, load_training(), load_parameters())
    assert columns["mfu"][:2] == pytest.approx(1.0, rel=1e-6) and columns["mfu"][2] < 0.8
    assert columns["lower"][:2] == pytest.approx(columns[TIME][:2])
    said = [BEYOND_PEAK in reason for reason in columns["reason"]]
    assert said == [True, True, False]


def test_rows_that_differ_in_their_label_alone_are_priced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    priced: list[int] = []
    monkeypatch.setattr(predict, "known_runs", lambda table, *more: priced.append(len(table.runs)) or known_runs(table))
    runs = ({}, {"step_time_s": 2.0}, {"gpu": "no-gpu"}, {"tp": 3}, {"tp": 3, "step_time_s": 2.0}, {"zero": 0}, {})
    columns = predict_training(read_training(write(tmp_path, *runs)), load_training(), load_parameters())
    time, reason = columns[TIME].tolist(), columns["reason"].tolist()
    assert priced == [3] and time[0] == time[1] == time[6] > 0.0 and reason[3] == reason[4] != reason[2]
    assert "world_size" in reason[3] and time[5] > 0.0 and np.isnan(time[2:5]).all()
