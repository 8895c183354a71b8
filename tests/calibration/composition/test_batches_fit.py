"""The fit finds scalars that labels were made with, and what is held out has no say in its own prediction."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from calibration.composition.batches import known_batches, predict_batches
from calibration.composition.batches_fit import NOISE, Group, fit_scalars, groups_of, held_out, log_times, priors
from calibration.composition.batches_links import curve_of
from calibration.composition.batches_parameters import TIERS, StepParameters, load_steps, save_steps
from calibration.composition.batches_points import points_of
from calibration.composition.batches_refit import HeldOut, coverage, error_rows, hold_out, step_parameters
from calibration.composition.batches_rows import Batch, BatchTable
from calibration.kernels.parameters import Parameters, load_parameters
from hwspecs.errors import InputError

NO_KERNELS = Parameters({}, {})
MODEL = "llama-3.2-1b"
DEVICES = ("a100-sxm-80gb", "l40", "l20", "rtx-a6000")
# Ranks, prompts, output.
SHAPES = ((1, (900,) * 8, 200), (2, (3000, 100, 2000, 50), 20), (1, (40,) * 64, 100))
TRUTH = {"hbm": -0.25, "gddr": -0.05, "energy/ada": -26.7, "step": -6.0}
CURVES = (curve_of("a100-sxm-80gb", 2, 0, np.log([4096.0, 1e9]), np.log([1e-5, 1e-2])),)
KINDS = ("ada", "ampere")
PRIOR = priors(KINDS)
ROWS = len(DEVICES) * len(SHAPES)
CARD = {"frameworks": ["sglang"], "models": [MODEL], "data": []}


def table_of(devices: Sequence[str], measured: np.ndarray | None = None) -> BatchTable:
    cases = [(device, *shape) for device in devices for shape in SHAPES]
    labels = np.full((len(cases), 2), math.nan) if measured is None else measured
    batches = tuple(
        Batch(row, device, ranks, MODEL, "bf16", "sglang", prompts, output, (labels[row, 0], labels[row, 1]))
        for row, (device, ranks, prompts, output) in enumerate(cases)
    )
    return BatchTable("made.csv", batches, {}, [{} for _ in batches])


def parameters(**scalars: float) -> StepParameters:
    known = {name: mean for name, (mean, _) in PRIOR.items()}
    widths = dict(zip(TIERS, ((0.1, 0.05), (0.2, 0.1), (0.4, 0.2)), strict=True))
    return StepParameters({**known, **scalars}, CURVES, widths, ("a100-sxm-80gb", "l40"), CARD)


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    known = known_batches(table_of(DEVICES))
    points = points_of(known.batches, known.models, known.specs, NO_KERNELS, CURVES, KINDS)
    return groups_of(points, known.models, list(PRIOR))


@pytest.fixture(scope="module")
def labels(groups: list[Group]) -> np.ndarray:
    scalars = np.array([TRUTH.get(name, mean) for name, (mean, _) in PRIOR.items()])
    return np.exp(log_times(groups, scalars, ROWS))


@pytest.fixture(scope="module")
def found(labels: np.ndarray) -> HeldOut:
    return hold_out(table_of(DEVICES, labels), (), NO_KERNELS)


@pytest.mark.long
def test_what_the_labels_were_made_with_is_found(groups: list[Group], labels: np.ndarray) -> None:
    """To half of what the fit takes for noise; the priors pull the rest, least where they are wide."""
    scalars = fit_scalars(groups, labels, np.full(ROWS, True), PRIOR)
    assert log_times(groups, scalars, ROWS) == pytest.approx(np.log(labels), abs=NOISE / 2)
    known = dict(zip(PRIOR, scalars, strict=True))
    for name in ("energy/ada", "step"):
        mean = PRIOR[name][0]
        assert abs(known[name] - TRUTH[name]) < 0.35 * abs(mean - TRUTH[name]), name


@pytest.mark.long
def test_without_labels_the_priors_stay(groups: list[Group], labels: np.ndarray) -> None:
    scalars = fit_scalars(groups, labels, np.full(ROWS, False), PRIOR)
    assert scalars == pytest.approx([mean for mean, _ in PRIOR.values()], abs=1e-6)


def test_no_slope_is_nan(groups: list[Group]) -> None:
    for group in groups:
        time, slope = group.both(np.array([mean for mean, _ in PRIOR.values()]), group.points)
        assert np.isfinite(np.asarray(time)).all() and np.isfinite(np.asarray(slope)).all()


def test_what_is_held_out_has_no_say(groups: list[Group], labels: np.ndarray) -> None:
    """The first device's labels a hundred times too long change all predictions but its own."""
    folds = [device for device in DEVICES for _ in SHAPES]
    spoiled = labels.copy()
    spoiled[: len(SHAPES)] *= 100.0
    plain, again = (held_out(groups, groups, measured, folds, PRIOR) for measured in (labels, spoiled))
    assert again[: len(SHAPES)] == pytest.approx(plain[: len(SHAPES)], abs=1e-9)
    assert np.abs(again - plain)[len(SHAPES) :].max() > 0.1


def test_intervals_are_wider_the_less_is_known(found: HeldOut) -> None:
    widths = step_parameters(found, {}).widths
    for narrow, wide in zip(TIERS, TIERS[1:], strict=False):
        assert all(a <= b for a, b in zip(widths[narrow], widths[wide], strict=True))
    assert all(0.0 <= share <= 1.0 for share in coverage(found, "device"))
    assert {row["split"] for row in error_rows(found)} == {"fitted", "row", "device", "generation"}


def test_two_measured_devices_are_needed(labels: np.ndarray) -> None:
    with pytest.raises(InputError, match="at least two devices"):
        hold_out(table_of(DEVICES[:1], labels[: len(SHAPES)]), (), NO_KERNELS)


def test_a_prediction_keeps_rows_and_says_why_there_is_none() -> None:
    table = table_of(("h100-sxm", "l40"))
    strange = dataclasses.replace(table.batches[1], model="llama-3.2-1bb")
    encoder = dataclasses.replace(table.batches[2], model="bert-base")
    table = dataclasses.replace(
        table, batches=(table.batches[0], strange, encoder, *table.batches[3:5]), reasons={5: "tp: 0 must be"}
    )
    columns = predict_batches(table, parameters(), NO_KERNELS)
    time = columns["predicted_prefill_s"]
    assert np.isfinite(time).tolist() == [True, False, False, True, True, False]
    assert "llama-3.2-1b" in columns["reason"][1] and "encoder" in columns["reason"][2]
    assert columns["reason"][5] == "tp: 0 must be"
    assert columns["tier"].tolist() == ["unseen", "", "", "measured", "measured", ""]
    lower, upper = columns["predicted_prefill_s_lower"], columns["predicted_prefill_s_upper"]
    assert np.log(upper[0] / time[0]) == pytest.approx(0.4) and np.log(time[3] / lower[3]) == pytest.approx(0.1)
    assert (
        columns["reason"][3] == ""
        and columns["reason"][4]
        == "all-reduce of the nearest measured group; links of this kind never measured: datasheet"
    )


def test_what_a_batch_asks_for_beyond_device_and_model_is_said() -> None:
    """141 GB of weights on 80 GB; 32 heads on three ranks; more tokens than a context; fp8 on an A100."""
    plain = table_of(("a100-sxm-80gb",)).batches[0]
    changes = (
        {},
        {"model": "llama-3-70b"},
        {"model": "llama-3-8b", "ranks": 3},
        {"model": "llama-3-8b", "prompts": (8192,), "output": 1},
        {"dtype": "fp8"},
    )
    batches = tuple(dataclasses.replace(plain, row=row, **change) for row, change in enumerate(changes))
    found = predict_batches(BatchTable("made.csv", batches, {}, [{} for _ in batches]), parameters(), NO_KERNELS)
    assert np.isfinite(found["predicted_prefill_s"]).tolist() == [True, True, False, True, True]
    wanted = (
        "",
        "weights and KV cache are more than the memory",
        "tp: tensor_parallel 3 does not divide",
        "longer than the model's context of 8,192 tokens",
        "no fp8 matrix units: multiplied in bf16",
    )
    for reason, words in zip(found["reason"], wanted, strict=True):
        assert words in reason and reason.count("; ") <= 1
    assert found["reason"][0] == "" and "format never measured" in found["reason"][4]
    width = np.log(found["predicted_prefill_s_upper"] / found["predicted_prefill_s"])
    assert width[[0, 1, 3, 4]] == pytest.approx([0.1, 0.1, 0.1, 0.4])


def test_parameters_come_back_from_disk(tmp_path: Path) -> None:
    saved = parameters(hbm=-0.31)
    save_steps(saved, tmp_path / "p")
    back = load_steps(tmp_path / "p.json")
    assert back.scalars == saved.scalars and back.widths == saved.widths and back.devices == saved.devices
    assert back.curves[0].at(1e6) == CURVES[0].at(1e6)


def test_a_changed_byte_a_missing_file_and_another_kind_are_told(tmp_path: Path) -> None:
    save_steps(parameters(), tmp_path / "p")
    body = bytearray((tmp_path / "p.safetensors").read_bytes())
    body[-1] ^= 1
    (tmp_path / "p.safetensors").write_bytes(body)
    with pytest.raises(InputError, match="checksum"):
        load_steps(tmp_path / "p")
    with pytest.raises(InputError, match="Cannot read"):
        load_steps(tmp_path / "q")
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(InputError, match="schema None"):
        load_steps(tmp_path / "p")


# --- what ships -------------------------------------------------------------------------------------------------------


def test_the_shipped_scalars_belong_to_the_shipped_kernel_parameters() -> None:
    """After a refit of the kernels: python -m calibration.composition.batches_refit, as the card says."""
    assert load_steps().card["kernels"] == load_parameters().card["sha256"]


@pytest.mark.parametrize(("phase", "mean", "median"), [("prefill", 0.09, 0.06), ("decode_step", 0.10, 0.08)])
def test_the_shipped_card_states_errors_within_the_targets(phase: str, mean: float, median: float) -> None:
    """Each device held out in turn; the targets are those of the project for 20 batches on six GPUs."""
    (row,) = [row for row in load_steps().card["errors"] if row["split"] == "device" and row["phase"] == phase]
    assert row["rows"] == 20 and row["mean"] <= mean and row["median"] <= median


@pytest.mark.validation
def test_each_device_held_out_is_within_the_targets(data_directory: Path) -> None:
    from calibration.composition.batches_refit import all_reduces
    from calibration.composition.batches_rows import read_batches

    links = [data_directory / name for name in ("static_batch/all_reduce.parquet", "kernels/collectives.parquet")]
    table = read_batches(data_directory / "static_batch" / "e2e_static_batch.csv")
    rows = {
        row["phase"]: row
        for row in error_rows(hold_out(table, all_reduces(links), load_parameters()))
        if row["split"] == "device"
    }
    assert rows["prefill"]["mean"] <= 0.09 and rows["prefill"]["median"] <= 0.06
    assert rows["decode_step"]["mean"] <= 0.10 and rows["decode_step"]["median"] <= 0.08
