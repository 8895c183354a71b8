"""What devices sustain, from measured kernels: scalars that made the rows are found again, and rows are chosen well."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calibration
from calibration.kernels.parameters import load_parameters
from calibration.sustained import fit
from calibration.sustained.__main__ import main
from calibration.sustained.fit import Law, exposed_share, fit_scalars, weighted_quantile, weights
from calibration.sustained.rows import Rows, newest, serving_rows
from calibration.sustained.table import cold, held_out, law_of, sustained
from jaxperf.core.sustained_file import load_sustained_table
from tests.calibration.tables import gemm_table

SHIPPED = Path(calibration.__file__).parent / "fitted" / "kernels"
LAW = Law(compute=0.2, memory=0.2, floor=float(np.log(4e-6)), power=0.0)
FAMILY = np.array([-np.log(0.7), -np.log(0.85), np.log(5e-6)])
DEVICES = {"fast": np.array([-0.1, -0.05, -0.2]), "slow": np.array([0.1, 0.05, 0.2])}
COUNT = 4000


def made_rows() -> Rows:
    """Rows that the scalars above make exactly, far from the power limit."""
    random = np.random.default_rng(0)
    compute, memory = (random.uniform(np.log(1e-7), np.log(1e-2), COUNT) for _ in range(2))
    device = np.where(np.arange(COUNT) % 2 == 0, "fast", "slow")
    scalars = np.array([FAMILY + DEVICES[name] for name in device]).T
    core, moved = np.exp(compute + scalars[0]), np.exp(memory + scalars[1])
    time = np.exp(scalars[2]) + np.hypot(core, moved)
    text = np.full(COUNT, "engine")
    none = np.zeros(COUNT)
    shape = np.arange(COUNT).astype(str)
    return Rows(
        compute,
        np.full(COUNT, -40.0),
        memory,
        none,
        none,
        np.log(time),
        text,
        device,
        device,
        text,
        device,
        shape,
        shape,
    )


def test_the_scalars_that_made_the_rows_are_found() -> None:
    found = fit_scalars(made_rows(), LAW)
    for name, offset in DEVICES.items():
        np.testing.assert_allclose(found.family + found.device[name], FAMILY + offset, atol=0.02)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_how_much_of_the_shorter_shows_is_found(share: float) -> None:
    """Rows that were made with a share of the shorter of arithmetic and transfer."""
    rows = made_rows()
    offset = np.array([DEVICES[name] for name in rows.device])
    core, transfer = rows.compute + FAMILY[0] + offset[:, 0], rows.memory + FAMILY[1] + offset[:, 1]
    longer, shorter = np.exp(np.maximum(core, transfer)), np.exp(np.minimum(core, transfer))
    time = np.log(np.exp(FAMILY[2] + offset[:, 2]) + np.sqrt(longer**2 + share * shorter**2))
    made = dataclasses.replace(rows, time=time)
    assert exposed_share(made, LAW) == pytest.approx(share, rel=0.41)  # the next of the shares that are tried
    assert exposed_share(made.take(np.arange(100)), LAW) == 1.0


def test_no_rate_is_above_the_datasheets() -> None:
    quick = dataclasses.replace(fit_scalars(made_rows(), LAW), family=np.array([-0.3, 0.1, -12.0]))
    found = quick.within_datasheet
    for name, offset in quick.device.items():
        limited = found.family + found.device[name]
        np.testing.assert_allclose(
            limited, np.r_[np.maximum((quick.family + offset)[:2], 0.0), (quick.family + offset)[2]]
        )


def test_the_best_of_several_starts_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arithmetic far slower than the law says, beside a memory that asks for nearly as much: a descent from the law
    alone stops where both are blamed."""
    random, rows = np.random.default_rng(1), made_rows()
    memory = rows.compute + 1.6 + random.normal(0.0, 0.15, COUNT)
    time = np.log(np.exp(FAMILY[2]) + np.hypot(np.exp(rows.compute + 1.8), np.exp(memory + FAMILY[1])))
    alike = dataclasses.replace(rows, memory=memory, time=time, device=np.full(COUNT, "slow"))

    def largest_error() -> float:
        return float(np.abs(fit_scalars(alike, LAW).log_time(alike) - time).max())

    several = largest_error()
    monkeypatch.setattr(fit, "SLOWER_ARITHMETIC", (0.0,))
    assert several < 0.8 * largest_error()


def test_an_unknown_device_gets_the_family() -> None:
    rows = made_rows()
    found = fit_scalars(rows, LAW)
    unknown = dataclasses.replace(rows, device=np.full(COUNT, "new"))
    between = found.log_time(unknown)
    fast, slow = (found.log_time(dataclasses.replace(rows, device=np.full(COUNT, name))) for name in ("fast", "slow"))
    assert ((fast <= between) & (between <= slow)).all()


def test_few_outliers_do_not_move_the_scalars() -> None:
    rows = made_rows()
    wrong = rows.time + np.where(np.arange(COUNT) % 20 == 0, 3.0, 0.0)
    found = fit_scalars(dataclasses.replace(rows, time=wrong), LAW)
    np.testing.assert_allclose(found.family + found.device["fast"], FAMILY + DEVICES["fast"], atol=0.05)


def test_each_half_decade_of_a_cell_weighs_the_same() -> None:
    rows = made_rows().take(np.arange(600))
    few = np.r_[np.full(500, np.log(2e-6)), np.full(100, np.log(2e-3))]
    rows = dataclasses.replace(rows, time=few, cell=np.full(600, "one"))
    weight = weights(rows)
    assert weight.sum() == pytest.approx(1.0)
    assert weight[:500].sum() == pytest.approx(weight[500:].sum())


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_weighted_quantile_of_equal_weights_is_that_of_the_sorted_list(values: list[int], share: float) -> None:
    found = weighted_quantile(np.array(values, float), np.ones(len(values)), share)
    below = sum(value <= found for value in values)
    strictly = sum(value < found for value in values)
    assert found in values and below >= share * len(values) - 1e-9 and strictly < share * len(values) + 1e-9


def test_the_newest_version_is_not_the_last_word() -> None:
    assert newest(np.array(["0.9.1", "0.10.0", "0.2.14"])) == "0.10.0"
    assert newest(np.array(["1.0.0", "1.3.0rc20", "1.3.0rc4"])) == "1.3.0rc20"


def test_shapes_are_held_out_on_all_devices_alike() -> None:
    rows = made_rows()
    again = dataclasses.replace(rows, device=rows.device[::-1])
    np.testing.assert_array_equal(held_out(rows), held_out(again))
    assert 0.4 < held_out(rows).mean() < 0.6


def test_the_cold_transfer_is_never_longer_than_the_whole() -> None:
    parameters = load_parameters()
    rows = dataclasses.replace(
        made_rows(), source=np.full(COUNT, "gemm"), footprint=np.linspace(-8.0, 8.0, COUNT), memory=np.zeros(COUNT)
    )
    found = cold(rows, parameters).memory
    assert (found <= 0.0).all() and (np.diff(found) >= 0.0).all() and found[-1] == pytest.approx(0.0, abs=1e-3)


def test_a_family_without_a_law_or_rows_is_left_out() -> None:
    parameters = load_parameters()
    assert sustained(parameters, {})["families"] == {}
    assert law_of(dataclasses.replace(parameters, families={}), "gemm") is None


def test_eager_engines_other_kinds_and_block_scales_are_not_chosen() -> None:
    table = gemm_table()
    rows = serving_rows({"gemm": table}, "gemm")
    assert all(set(np.unique(each.device)) <= set(np.unique(table.device.astype(str))) for each in rows.values())
    eager = dataclasses.replace(table, framework=np.full(len(table), "torch", dtype=object))
    assert serving_rows({"gemm": eager}, "gemm") == {}
    blocks = dataclasses.replace(table, dtype=np.full(len(table), "fp8_block", dtype=object))
    assert serving_rows({"gemm": blocks}, "gemm") == {}


def test_software_that_is_no_engine_is_refused_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It wrote a table without families and ended well."""
    data, out = tmp_path / "t.csv", tmp_path / "o.json"
    data.write_text("device,framework,dtype,m,n,k,latency_us\n" + "h100-sxm,torch,bf16,16,4096,4096,20\n" * 50)
    for more in ([], ["--params", str(SHIPPED)]):
        with pytest.raises(SystemExit) as stopped:
            main([str(data), "-o", str(out), *more])
        assert stopped.value.code == 2 and "no device has enough rows" in capsys.readouterr().err
    assert not list(tmp_path.glob("o*"))


def test_with_parameters_the_command_extends_the_shipped_table(tmp_path: Path) -> None:
    data, out = tmp_path / "t.csv", tmp_path / "o.json"
    rows = [f"b200,mine,bf16,{m},{n},4096,{5 + m * n / 1e6}" for m in (1, 32, 512, 2048) for n in range(512, 6144, 512)]
    data.write_text("device,framework,dtype,m,n,k,latency_us\n" + "\n".join(rows) + "\n")
    main([str(data), "-o", str(out), "--params", str(SHIPPED)])
    shipped, own = load_sustained_table(), load_sustained_table(tmp_path / "o")
    assert set(own.families) == set(shipped.families)
    devices = own.families["gemm"]["classes"]["16-bit"]["devices"]
    assert set(devices) == {"b200", *shipped.families["gemm"]["classes"]["16-bit"]["devices"]}
    assert devices["h100-sxm"]["origin"] == "shipped" and "origin" not in devices["b200"]


def test_one_shape_alone_is_not_held_out() -> None:
    """Every row of a device, or all there are, may have shapes that are held out."""
    table = gemm_table()
    first = np.flatnonzero((table.device == table.device[0]) & (table.shape["m"] == table.shape["m"][0]))[:1]
    for at in range(2):
        alone = table.take(np.repeat(first + at, 50))
        entry = sustained(load_parameters(), {"gemm": alone})["families"]["gemm"]["classes"]["16-bit"]
        assert all(row["half_width"][1] > 0.0 for row in entry["devices"].values())


def test_the_shipped_table_names_its_data_and_is_sane() -> None:
    table = load_sustained_table()
    assert {"created", "command", "data"} <= set(table.card)
    assert table.card["parameters_sha256"] == load_parameters().card["sha256"]  # else: make it again
    assert all(len(each["sha256"]) == 64 and "/" not in each["file"] for each in table.card["data"])
    for family in table.families.values():
        for entry in family["classes"].values():
            assert all(1e-6 < row["floor"] < 3e-5 and row["rows"] >= 40 for row in entry["devices"].values())
    assert len(json.dumps(table.families)) < 100_000 and Path(table.path).name == "shipped"
