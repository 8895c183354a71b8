"""One point asked in four ways, one answer: estimate, the winner of rank, a row of a sweep, the Python API."""

from __future__ import annotations

from pathlib import Path

import jax
import pyarrow.parquet as pq
import pytest

import jaxperf as jp

METRICS = ("ttft", "tpot", "tokens_per_second", "tokens_per_second_per_device")
LAYOUT = {"--tp": "tensor_parallel", "--pp": "pipeline_parallel", "--ep": "expert_parallel", "--dp": "data_parallel"}


def test_four_ways(cli, own_folder: Path, sweep_file, parse_json) -> None:
    model, weights = "gpt2", "fp8"
    common = ("--prompt", "192", "--output", "32", "--weights", weights, "--json")
    small = ("--max-devices", "2", "--max-batch", "4")  # of the size that other tests rank too: one program for all
    result = cli("rank", model, "--devices", "h100-sxm,l4", *small, *common, "--slo", "tpot=20ms")
    (winner,) = (row for row in parse_json(result.stdout)["rows"] if row["device"] == "h100-sxm")

    layout = [text for option, name in LAYOUT.items() for text in (option, str(winner[name]))]
    arguments = ("--device", "h100-sxm", *layout, "--batch", str(winner["batch"]), *common)
    answer = parse_json(cli("estimate", model, *arguments).stdout)["metrics"]

    point = {name: winner[name] for name in (*LAYOUT.values(), "batch")} | {"prompt": 192, "output": 32}
    ends = [f"{name}{end}" for name in METRICS for end in ("", "_lower", "_upper")]
    axes = {"device": ["l4", "h100-sxm"], **point, "weights": weights}
    sweep_file(model=model, task="serve", axes=axes, metrics=list(METRICS))
    assert cli("sweep", "sweep.yaml", "-o", "rows.parquet").exit_code == 0
    row = pq.read_table(own_folder / "rows.parquet").to_pylist()[1]

    for name in ends:
        assert answer[name] == pytest.approx(winner[name], rel=1e-12)
        assert row[name] == pytest.approx(winner[name], rel=1e-12)

    with jax.enable_x64(True):
        step = jp.serve_step(jp.load_model(model))
        cost = step(jp.load_device("h100-sxm"), **point, weights=weights)
    for name in ("ttft", "tpot", "tokens_per_second"):
        assert float(getattr(cost, name)) == pytest.approx(winner[name], rel=1e-12)
