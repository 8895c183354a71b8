"""Benchmarks that state neither layout nor lengths: which rows are asked for, and what a constant may see."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from calibration.datasets.serving import read_serving
from calibration.serving import ungated
from calibration.serving.evaluate import CONSTANT, LINE, OURS, hold_out
from calibration.serving.refit import measured_points
from jaxperf.core.sustained_file import load_sustained_table

HEADER = "source,model,gpu,n_gpu,tp,framework,mode,scenario,input_len,output_len,concurrency,qps,metric,value,unit"


@pytest.mark.long
def test_such_rows_are_priced_by_what_the_others_teach(tmp_path: Path):
    devices = ("h100_sxm", "h200_sxm", "a100_sxm", "l40s")
    lab = [
        f"lab,gpt2{size},h100_sxm,1,1,vllm,agg,,512,64,{load},,{metric},{value},ms"
        for size in ("", "-xl")
        for load in (1, 8)
        for metric, value in (("ttft", 30.0), ("tpot", 4.0 + load))
    ]
    logs = [
        f"MLPerf Inference x,llama3.1-8b,{gpu},8,,vLLM 0.10.0,agg,{scenario},,,,{qps},{metric},{value},"
        for gpu in devices
        for scenario, qps, metrics in (
            ("Offline", "", {"tokens_per_s": 30e3, "e2e_mean": 3e5}),
            ("Server", 8.0, {"tpot_mean": 20.0}),
        )
        for metric, value in metrics.items()
    ]
    path = tmp_path / "in.csv"
    path.write_text("\n".join([HEADER, *lab, *logs]) + "\n")
    table, rates = read_serving(path), load_sustained_table()
    found = hold_out(measured_points(table), rates, ())
    points = ungated.ungated_points(table)
    assert len(points) == 2 * len(devices)
    rows = ungated.ungated_errors(points, rates, found)
    asked = {(row["scenario"], row["output"]) for row in rows if "scenario" in row}
    assert asked == {("offline", "throughput"), ("server", "tpot")}  # a queue's latency is not asked for
    assert {row["who"] for row in rows if "who" in row} == {OURS, CONSTANT, LINE}
    assert [row["device"] for row in rows if "device" in row] == ["a100-sxm-80gb", "h100-sxm", "h200-sxm", "l40s"]
    assert all(np.isfinite(row["median"]) and row["rows"] == 4 for row in rows if "scenario" in row)


def test_devices_are_ordered_by_what_one_of_them_serves():
    """Measured 1 to 5 a device on five; who is right but for the order of two has one of ten pairs wrong."""
    points = [
        SimpleNamespace(
            architecture="m",
            spec=SimpleNamespace(name=f"d{place}"),
            replicas=2.0,
            group=place,
            configuration=SimpleNamespace(measured={"throughput": 2.0 * place * place}),
        )
        for place in (1.0, 2.0, 3.0, 4.0, 5.0)
    ]
    residuals = {OURS: np.zeros(5), LINE: np.log([1.0, 3.1 / 2.0, 1.0, 1.0, 1.0])}
    found = {row["who"]: row for row in ungated._orders(points, residuals)}  # pyright: ignore[reportArgumentType]
    assert found[OURS]["tau"] == 1.0 and found[OURS]["devices"] == 5
    assert found[LINE]["tau"] == pytest.approx(0.8)
    assert not ungated._orders(points[:4], {OURS: np.zeros(4)})  # pyright: ignore[reportArgumentType]


def test_a_constant_is_of_other_devices_and_the_same_scenario():
    residual = np.log([1.0, 2.0, 4.0, 8.0, 100.0])
    devices, scenarios = np.array([*"abcda"]), np.array(["offline"] * 4 + ["server"])
    found = ungated._without_own(residual, devices, scenarios)
    np.testing.assert_allclose(np.exp(found[:4]), [1.0 / 4.0, 2.0 / 4.0, 4.0 / 2.0, 8.0 / 2.0])
    assert np.isnan(found[4])
