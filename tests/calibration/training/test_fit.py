"""The fit finds what made a table, shares it as its levels say, and is stored and read as it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from calibration.datasets.training import read_training
from calibration.kernels.parameters import Parameters
from calibration.training.evaluate import HeldOut, explored_rows, hold_out
from calibration.training.fit import fitter, rows_of, steps_of
from calibration.training.parameters import load_training, save_training
from calibration.training.points import Known, known_runs
from calibration.training.predict import NUMBERS, TIME, predict_training
from calibration.training.refit import measured_runs, training_parameters
from calibration.training.scalars import SCALARS, assumed_starts, design_of, efficiencies_of
from calibration.training.shares import FLASH_1_SHARE, starts_of
from hwspecs.errors import InputError
from tests.calibration.training.runs import SHAPE, write

NO_KERNELS = Parameters({}, {"created": "2026-11-21", "data": [], "devices": []})
SPEED = 0.8  # of the made-up software, beside what is assumed


def made_up(folder: Path) -> Path:
    """Two sources of 12 runs each, timed as if products were `SPEED` times as fast as assumed."""
    grid = [(tp, pp, mb, seq) for tp in (1, 2) for pp in (1, 2, 4) for mb, seq in ((1, 4096), (2, 2048))]
    rows = [
        {**SHAPE, "source": source, "tp": tp, "pp": pp, "dp": 16 // (tp * pp), "vp": 1, "micro_batch": mb, "seq": seq}
        | {"n_gpus": 16, "global_batch": 64}
        for source in ("Megatron-Bridge", "llm-foundry")
        for tp, pp, mb, seq in grid
    ]
    known = known_runs(read_training(write(folder, *rows)))
    design = design_of(known)
    values = np.array([np.log(SPEED) if name == "gemm/all/" else 0.0 for name in design.names])
    time = np.asarray(steps_of(jnp.asarray(values), _rows(known)).unchecked_time)
    return write(folder, *({**row, "step_time_s": float(t)} for row, t in zip(rows, time, strict=True)))


def _rows(known: Known):
    return rows_of(known, design_of(known), starts_of(known, NO_KERNELS, assumed_starts()))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def found(table: Path) -> HeldOut:
    return hold_out(measured_runs(read_training(table)), NO_KERNELS, splits=("group", "source"))


def test_the_fit_finds_what_made_the_times(found: HeldOut) -> None:
    residual = found.whole - np.log(found.measured)
    assert np.abs(residual).max() < 0.02
    # All rows share it, but the format's and the generation's deviations may carry a part.
    moved = sum(value for name, value in zip(found.design.names, found.fitted, strict=True) if name.startswith("gemm/"))
    assert moved < 0.5 * np.log(SPEED)


def test_a_source_that_was_left_out_profits_from_the_other(found: HeldOut) -> None:
    assert np.isfinite(found.log_time["source"]["ours"]).all()
    assert np.abs(found.residual("source")).mean() < 0.8 * abs(np.log(SPEED))


def test_rows_without_weight_are_not_seen(table: Path) -> None:
    known = measured_runs(read_training(table))
    measured = np.array([run.measured for run in known.runs])
    wrong = np.where(np.arange(len(measured)) < 12, 100.0 * measured, measured)
    weight = (np.arange(len(measured)) >= 12).astype(float)
    rows, design, explored = _rows(known), design_of(known), explored_rows(known)
    right = fitter(rows, design.deviation, measured, explored)(weight)
    assert np.array_equal(right, fitter(rows, design.deviation, wrong, explored)(weight))
    hidden = fitter(rows, design.deviation, np.full(len(measured), np.nan), explored)(np.ones(len(measured)))
    assert np.abs(hidden).max() < 1e-6  # nothing but the prior


def test_levels_nobody_fitted_change_nothing(table: Path) -> None:
    known = measured_runs(read_training(table))
    full = design_of(known)
    few = [name for name in full.names if "/stack" not in name]
    values = np.linspace(-0.1, 0.1, len(few))
    padded = np.array([dict(zip(few, values, strict=True)).get(name, 0.0) for name in full.names])
    starts = {name: jnp.asarray(start) for name, start in starts_of(known, NO_KERNELS, assumed_starts()).items()}
    narrow = efficiencies_of(jnp.asarray(values), design_of(known, few).places, starts)
    wide = efficiencies_of(jnp.asarray(padded), full.places, starts)
    for field in SCALARS:
        assert np.allclose(getattr(narrow, field), getattr(wide, field), rtol=1e-12)


def test_releases_are_steps_of_a_walk(tmp_path: Path) -> None:
    releases = ("25.09", "26.02", "26.04", "26.02.01")
    made = [{"source": "Megatron-Bridge", "notes": f"{release} NeMo Container"} for release in releases]
    wanted = [*made, {"source": "Megatron-Bridge"}, {"source": "Megatron-Bridge", "notes": "v27.01"}]
    known = known_runs(read_training(write(tmp_path, *wanted)))
    steps = [name for name in design_of(known).names if name.startswith("expert_overhead/release/")]
    assert [name.rpartition("/")[2] for name in steps] == ["26.02", "26.02.01", "26.04", "27.01"]
    # Fitted without the last: that, and the run that states none, are like the newest that was fitted.
    places = design_of(known, steps[:3]).places["expert_overhead"]
    assert np.append(2.0 ** np.arange(3), 0.0)[places].sum(0).tolist() == [0, 1, 7, 3, 7, 7]
    newest = design_of(known_runs(read_training(write(tmp_path, wanted[-1]))), steps[:3]).places["expert_overhead"]
    assert sorted(newest[:, 0].tolist()) == [0, 1, 2, 3, 3]  # the steps that the table itself does not name, too


def test_products_that_stay_wide_move_with_the_wide_class(tmp_path: Path) -> None:
    known = known_runs(read_training(write(tmp_path, {}, {"dtype": "fp8"})))
    design = design_of(known)
    values = np.array([0.3 if name == "gemm/class/8-bit" else 0.0 for name in design.names])
    starts = {name: jnp.asarray(start) for name, start in starts_of(known, NO_KERNELS, assumed_starts()).items()}
    moved, still = (efficiencies_of(jnp.asarray(each), design.places, starts) for each in (values, 0.0 * values))
    assert np.log(moved.gemm / still.gemm) == pytest.approx([0.0, 0.3])
    assert np.log(moved.plain_gemm / still.plain_gemm) == pytest.approx([0.0, 0.0], abs=1e-12)


def test_attention_starts_where_its_kernel_was_published(table: Path) -> None:
    known = measured_runs(read_training(table))
    starts = starts_of(known, NO_KERNELS, assumed_starts())
    flash = np.array([stack.name == "composer-fsdp" for stack in known.stacks])
    assert set(starts["attention"][flash]) == {FLASH_1_SHARE["hopper"]}
    assert set(starts["attention"][~flash]) == {assumed_starts()["attention"]}


def test_parameters_come_back_as_they_were_stored(found: HeldOut, tmp_path: Path) -> None:
    made = training_parameters(found, {"created": "2026-11-21", "data": []})
    assert 0.0 < made.widths["known"] <= made.widths["unseen"]
    save_training(made, tmp_path / "steps")
    read = load_training(tmp_path / "steps")
    assert read.deviations == dict(made.deviations) and read.widths == dict(made.widths)
    assert read.assumed == assumed_starts() and read.stacks == made.stacks
    card = json.loads((tmp_path / "steps.json").read_text())
    del card["assumed"]
    (tmp_path / "steps.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="damaged.*calibration.training.refit"):
        load_training(tmp_path / "steps")


def test_predictions_do_not_depend_on_what_is_asked_beside(found: HeldOut, table: Path, tmp_path: Path) -> None:
    made = training_parameters(found, {"created": "2026-11-21"})
    columns = predict_training(read_training(table), made, NO_KERNELS)
    assert np.abs(np.log(columns[TIME] / found.measured)).max() < 0.02
    assert (columns["lower"] < columns[TIME]).all() and (columns[TIME] < columns["upper"]).all()
    assert set(columns["tier"]) == {"known"} and columns["feasible"].all()
    first = read_training(table)
    alone = dataclasses.replace(first, runs=first.runs[:1], rows=1)
    again = predict_training(alone, made, NO_KERNELS)
    assert all(again[name][0] == pytest.approx(columns[name][0], rel=1e-9) for name in NUMBERS)


def test_what_cannot_run_has_no_time_and_what_is_too_large_has(found: HeldOut, tmp_path: Path) -> None:
    made = training_parameters(found, {})
    large = {"model": "llama-3-70b", "tp": 1, "pp": 1, "dp": 8, "zero": 0, "vp": 1}
    odd = {**SHAPE, "tp": 4, "dp": 1, "heads": 30, "kv_heads": 2}
    close = {"model": "llama-3-8b", "tp": 1, "pp": 1, "dp": 8, "zero": 3, "vp": 1, "micro_batch": 2, "seq": 16384}
    rows = (odd, large, {**large, "recompute": None}, close, {**close, "recompute": None}, {"gpu": "mystery"})
    columns = predict_training(read_training(write(tmp_path, *rows)), made, NO_KERNELS)
    assert np.isfinite(columns[TIME]).tolist() == [False, True, True, True, True, False]
    # 18 byte a parameter and 70 billion of them are 15 times a device, whatever is recomputed; of the activations of
    # 32,768 tokens, where nothing is stated, software keeps what fits.
    assert columns["feasible"].tolist() == [False, False, False, False, True, False]
    assert "does not divide the heads" in columns["reason"][0]
    assert all("memory over capacity (about 1," in reason for reason in columns["reason"][1:3])
    assert columns["reason"][5].startswith("unknown_device") and columns["tier"][5] == ""


def test_too_few_measured_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 1 known runs with step_time_s; at least 20 are needed"):
        measured_runs(read_training(write(tmp_path, {})))
