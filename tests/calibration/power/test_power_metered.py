"""Kernels whose power was metered: the shipped table is physical, and the law is asked with what they kept busy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwspecs
from calibration.datasets import data_hash, read_table
from calibration.kernels.parameters import load_parameters
from calibration.kernels.predict import predict_table
from calibration.power.metered import FOLDER, WHO, metered_errors
from calibration.power.parameters import load_power
from hwspecs.errors import InputError
from jaxperf.core.sustained_file import load_sustained_table
from jaxperf.serving.techniques.power import PowerLaw

TABLES = sorted(FOLDER.glob("*.parquet"))
RATES = load_sustained_table()
CONSTANT = 0.6


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_what_was_metered_is_physical(path: Path) -> None:
    """Between what the device draws idle and its limit, but for the limiter's own slack; no faster back to back than
    alone, but for the scatter of the repeats; no clock above the highest, and a lower one only near the limit."""
    card, rows = json.loads(path.with_suffix(".json").read_text()), pq.read_table(path).to_pylist()
    assert card["sha256"] == data_hash(path) and not card["problems"] and "--meter" in card["command"]
    assert read_table(path).problems == () and card["kernels_measured"] == len(rows)
    tdp = hwspecs.load(card["device"]).tdp.si
    metered = [row for row in rows if row["power_w"] is not None]
    assert len(metered) > 0.8 * len(rows) and 0.05 * tdp < card["idle_power_w"] < 0.25 * tdp
    highest = max(row["clock_mhz"] for row in metered)
    for row in metered:
        assert card["idle_power_w"] < row["power_w"] < 1.06 * tdp
        assert row["sustained_us"] > 0.9 * row["latency_us"] and row["clock_mhz"] <= highest
        assert row["clock_mhz"] > 0.95 * highest or row["power_w"] > 0.8 * tdp


def test_the_shipped_law_is_scored_on_every_family() -> None:
    rows = metered_errors(load_power().law, RATES, CONSTANT)
    assert rows[-1]["family"] == "all" and rows[-1]["rows"] == sum(row["rows"] for row in rows[:-1])
    for row in rows:
        assert all(0.0 <= row[f"{who}_{figure}"] < 1.0 for who in WHO for figure in ("median", "mean", "p90"))
    # What the docs say: no kernel that fills this GPU draws much less than its limit.
    assert rows[-1]["tdp_median"] < 0.1 < rows[-1]["constant_median"]


@pytest.mark.long
def test_large_products_take_what_is_predicted_when_they_run_back_to_back() -> None:
    """Alone they are faster than any loop of them is; the shipped parameters were fitted to loops."""
    path, parameters = FOLDER / "h200-sxm.parquet", load_parameters()
    times = {name: pq.read_table(path)[name].to_numpy() for name in ("latency_us", "sustained_us")}
    off: dict[str, list[float]] = {name: [] for name in times}
    nearer: list[bool] = []  # to the time back to back than to the time alone, by family
    for table in read_table(path).tables:
        if table.family in ("gemm", "bmm", "attention_prefill"):
            predicted = predict_table(table, parameters)["predicted_us"]
            errors = {name: np.abs(predicted / column[table.row] - 1.0) for name, column in times.items()}
            nearer.append(2.0 * np.median(errors["sustained_us"]) < np.median(errors["latency_us"]))
            for name, each in errors.items():
                off[name] += each.tolist()
    assert len(off["sustained_us"]) == 15 and nearer == [True] * 3
    back_to_back, alone = (float(np.median(off[name])) for name in ("sustained_us", "latency_us"))
    assert back_to_back < 0.1 and 0.15 < alone < 0.3


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A product that keeps the arithmetic busy, and an addition that draws half of the limit, both far too slow for
    anything but the background to count; and one that was not metered."""
    shape = {"device": "h200-sxm", "framework": "jax", "version": "1", "dtype": "bf16", "latency_us": 1e6}
    product = {"family": "gemm", "op": "gemm", "kernel": "matmul", "m": 64, "n": 64, "k": 64}
    rows = [
        shape | product | {"power_w": 140.0, "sustained_us": 1e6},
        shape | product | {"power_w": 280.0, "sustained_us": 1e6},
        shape | product | {"power_w": None, "sustained_us": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "own.parquet")
    return tmp_path / "own.parquet"


def test_a_device_that_waits_draws_the_background(own: Path) -> None:
    row = metered_errors(PowerLaw(0.2, 0.5, 0.3), RATES, CONSTANT, [own])[0]
    assert (row["family"], row["rows"], row["watts"]) == ("gemm", 2, 210.0)
    assert row["ours_mean"] == pytest.approx(0.25, abs=1e-3)  # 140 W said of 140 and of 280
    assert row["tdp_mean"] == pytest.approx(np.mean([4.0, 1.5])) and row["constant_mean"] == pytest.approx(1.25)


def test_a_table_without_power_is_refused(own: Path) -> None:
    pq.write_table(pq.read_table(own).drop_columns(["power_w"]), own)
    with pytest.raises(InputError, match="power_w"):
        metered_errors(PowerLaw(0.2, 0.5, 0.3), RATES, CONSTANT, [own])
