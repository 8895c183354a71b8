"""What a device never measured gets: the resources of a core, the priors of a family, and the folds that test it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets.schema import KernelTable
from calibration.intervals import Spread, interval_score
from calibration.kernels import calibrate, evaluate
from calibration.kernels.calibrate import joined
from calibration.kernels.card import by_family, intervals
from calibration.kernels.demand import STREAMS
from calibration.kernels.fit import DEFAULT, Settings, fit
from calibration.kernels.inputs import Prepared, prepare
from calibration.kernels.levels import spell
from calibration.kernels.model import LAW_LEVELS
from calibration.kernels.priors import NAMED_BY_LIBRARY, priors_of
from calibration.kernels.transfer import FEW, FEW_ROWS, TENTH, Transfer, best_share, few_rows, transfer
from tests.calibration.tables import blank_table, gemm_table, with_latency

QUICK = Settings(steps=60, law_steps=200, law_rows=2000, batch=128, widths=(8,))
# Cores and clock of their data sheets [1, Hz]; the A40 has twice the fp32 units of the A100 in each core.
CORES = {"a100-sxm-80gb": (108, 1.41e9), "a40": (84, 1.74e9), "h100-sxm": (132, 1.83e9)}


def lookups(device: str, rows: int = 200, seed: int = 0) -> KernelTable:
    generator = np.random.default_rng(seed)
    shape = {"rows": 2.0 ** generator.integers(4, 15, rows), "columns": 2.0 ** generator.integers(9, 14, rows)}
    return blank_table("embedding", shape, np.full(rows, device, dtype=object))


@pytest.mark.parametrize("device", CORES)
def test_a_kernel_by_rows_takes_a_core_by_its_clock(device: str) -> None:
    data = prepare(lookups(device, 20))
    cores, clock = CORES[device]
    np.testing.assert_allclose(data.core, data.demand.flops / (256.0 * cores * clock), rtol=1e-2)


def test_other_kernels_and_other_devices_take_their_arithmetic() -> None:
    gemm, tpu = prepare(gemm_table(20)), prepare(lookups("tpu-v6e", 20))
    np.testing.assert_array_equal(gemm.core, gemm.demand.compute)
    np.testing.assert_array_equal(tpu.core, tpu.demand.compute)


@pytest.mark.long
def test_what_a_core_takes_transfers_to_a_device_with_less_bandwidth() -> None:
    """Times of 2.4 bytes a core and cycle on an H100, whose memory would take 13: the A40's follow from its cores."""

    def timed(device: str) -> Prepared:
        table = lookups(device)
        cores, clock = CORES[device]
        moved = prepare(table).demand.moved
        return prepare(with_latency(table, 4e-6 + moved / (2.4 * cores * clock)))

    fitted, unseen = fit(timed("h100-sxm"), QUICK), timed("a40")
    law = jax.vmap(fitted.model.law)(unseen.inputs(fitted.names, fitted.features))
    error = np.abs(np.expm1(np.asarray(law) - np.log(unseen.table.measured)))
    assert np.median(error) < 0.1
    assert np.median(np.abs(unseen.roofline / unseen.table.measured - 1.0)) > 0.3


def test_a_law_learns_nothing_from_names_that_a_library_chose() -> None:
    """Two devices whose library names other kernels on each: the names would explain the devices away."""
    generator = np.random.default_rng(0)
    sizes = {name: 2.0 ** generator.integers(5, 11, 200) for name in ("m", "n", "k")} | {"batch": np.full(200, 8.0)}
    device = np.where(np.arange(200) % 2, "v100-pcie-32gb", "t4").astype(object)
    table = dataclasses.replace(blank_table("bmm", sizes, device, "fp32"), kernel=device + "_sgemm")
    named = prepare(with_latency(table, np.where(np.arange(200) % 2, 1.2, 2.0) * prepare(table).roofline + 2e-5))
    law = fit(named, QUICK).model.law
    np.testing.assert_array_equal(law.offsets["stack"], 0.0)
    assert np.abs(np.asarray(law.offsets["format"])).max() > 0.0


def test_a_slow_stack_says_little_of_its_format() -> None:
    """Block scales that one framework runs at a third of the rate, on one device: another's may well be faster."""
    plain = gemm_table(300, devices=("h100-sxm", "l40s"))
    slow = gemm_table(300, devices=("l40s",), seed=1)
    named = {"dtype": "fp8_block", "framework": "trtllm", "kernel": "torch_flow"}
    slow = dataclasses.replace(slow, **{name: np.full(300, text, object) for name, text in named.items()})
    slow = with_latency(slow, 3.0 * prepare(slow).roofline + 4e-6)
    fitted = fit(prepare(joined([plain, slow])), QUICK)
    offsets, spelled = fitted.model.law.offsets, spelled_first(slow)
    own = {level: fitted.names.known[level].index(spelled[level]) for level in offsets}
    slower = {level: float(offset[own[level], :2].sum()) for level, offset in offsets.items()}
    assert slower["stack"] > 0.1
    assert max(slower["format"], slower["framework"]) < 0.5 * slower["stack"]


def spelled_first(table: KernelTable) -> dict[str, str]:
    """The names of a table's first row at the levels of the law."""
    spelled = spell(table)
    return {level: str(spelled[level][0]) for level in LAW_LEVELS}


def test_priors_name_levels_of_the_law() -> None:
    assert priors_of("gemm").levels == LAW_LEVELS
    assert all("stack" not in priors_of(family).levels for family in NAMED_BY_LIBRARY)
    assert all(priors_of(family).scalars["compute"][0] > priors_of("gemm").scalars["compute"][0] for family in STREAMS)


def said(law: float, correction: float) -> Any:
    """A fold of one device whose law errs by so much, and by that and the correction with all of it."""
    unseen = SimpleNamespace(table=SimpleNamespace(device=np.full(3, "a", object)))
    return SimpleNamespace(unseen=unseen, residual=lambda share: np.full(3, law + share * correction))


def test_a_correction_has_to_help_many_devices_by_more_than_chance() -> None:
    """It helps two devices of three by 0.05 and harms the third by 0.04."""
    by_chance = [said(0.2, change) for change in (-0.05, -0.05, 0.04)]
    assert best_share(by_chance) == 1.0  # a standard error of three says little
    assert best_share(2 * by_chance) == 0.0
    assert best_share([said(0.2, change) for change in 2 * (-0.05, -0.05, -0.04)]) == 1.0
    assert best_share([]) == 0.0


@given(st.floats(-3.0, 3.0), st.floats(0.001, 2.0))
def test_an_interval_scores_its_width_and_twenty_times_what_it_misses(residual: float, width: float) -> None:
    missed = max(abs(residual) - width, 0.0)
    found = interval_score(np.array([residual]), np.array([width]))[0]
    assert found == pytest.approx(2 * width + 20 * missed, rel=1e-9)


@pytest.fixture(scope="module")
def noisy() -> Prepared:
    """The same shapes on either device, so that the folds are alike and compiled once."""
    table = joined([gemm_table(160, devices=(name,)) for name in ("h100-sxm", "l40s")])
    noise = np.exp(0.1 * np.random.default_rng(2).standard_normal(320))
    return prepare(with_latency(table, table.latency * noise))


@pytest.mark.long
def test_folds_say_how_their_intervals_cover(noisy: Prepared) -> None:
    rows = transfer(noisy, QUICK, lambda _: None).rows
    widths = {(row["split"], row["device"]): row for row in intervals(rows)}
    devices = {"h100-sxm", "l40s"}
    assert set(widths) == {(split, device) for split in ("unseen generation", FEW_ROWS, TENTH) for device in devices}
    for row in widths.values():
        assert 50.0 < row["coverage90"] <= 100.0
        assert row["interval_score"] > 100.0 * 2 * np.log1p(row["half_width"] / 100.0) * 0.9
    few, none = (by_family(rows, split)[0]["median"] for split in (FEW_ROWS, "unseen generation"))
    assert few < none + 1.0


def test_few_rows_and_the_rest_share_no_shape(noisy: Prepared) -> None:
    few, rest = few_rows(noisy)
    shapes = [set(zip(*(data.table.shape[name] for name in ("m", "n", "k")), strict=True)) for data in (few, rest)]
    assert 0 < len(few.table) <= FEW
    assert not shapes[0] & shapes[1]


def test_whole_folds_are_fitted_with_all_settings(noisy: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(data: Prepared, settings: Settings, *others: object) -> Transfer:
        return Transfer(0.0, Spread(), [{"steps": settings.steps}])

    monkeypatch.setattr(evaluate, "transfer", held)
    assert evaluate.evaluate_family(noisy, DEFAULT, lambda _: None, whole=True) == [{"steps": DEFAULT.steps}]
    assert DEFAULT.steps > calibrate.FOLD["steps"]


def test_one_generation_alone_teaches_nothing_of_others() -> None:
    alone = transfer(prepare(gemm_table(60, devices=("h100-sxm",))), QUICK, lambda _: None)
    assert alone.share == 0.0 and not alone.rows


def test_a_card_of_an_earlier_fit_states_no_coverage() -> None:
    figures = dict.fromkeys(("median", "mean", "p90", "roofline_median"), 5.0)
    old = {"family": "gemm", "format": "bf16", "device": "l40s", "split": "unseen shapes", "rows": 10, **figures}
    assert intervals([old]) == []
    assert by_family([old], "unseen shapes")[0]["median"] == 5.0
