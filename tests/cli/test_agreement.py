"""One point asked in four ways, one answer: estimate, the winner of rank, a row of a sweep, the Python API."""

from __future__ import annotations

import json
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


def test_one_request_of_an_engine_is_the_estimate(cli, own_folder: Path, parse_json) -> None:
    """A request alone waits for nothing: its prefill and its mean decode, and as much room for more of its kind."""
    prompt, output, engine = 512, 8, {"sched": "vllm_v1", "model": "gpt2", "device": "a10"}
    (own_folder / "one.csv").write_text(f"arrived_at,prefill_tokens,decode_tokens\n0,{prompt},{output}\n")
    (own_folder / "s.json").write_text(json.dumps(engine))
    simulated = parse_json(cli("simulate", "one.csv", "--settings", "s.json", "-o", "out.csv", "--json").stdout)
    asked = ("gpt2", "--device", "a10", "--prompt", str(prompt), "--output", str(output), "--json")
    answer = parse_json(cli("estimate", *asked).stdout)
    for name in ("ttft", "tpot"):
        assert simulated["latency_s"][name]["mean"] == pytest.approx(answer["metrics"][name], rel=1e-2)
    room = simulated["settings"]["blocks"] * simulated["settings"]["block_size"]
    assert room == pytest.approx(answer["largest_batch"] * (prompt + output), rel=0.03)


def test_steps_of_an_engine_never_leave_out_an_encoder(refuse, own_folder: Path) -> None:
    """T5 reads each prompt with its encoder: estimate, rank, sweep and serve time it; the others say they do not."""
    (own_folder / "one.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,64,8\n")
    (own_folder / "s.json").write_text(json.dumps({"sched": "vllm_v1", "model": "t5-small", "device": "l4"}))
    told = "An encoder of this model reads every request"
    assert told in refuse("simulate", "one.csv", "--settings", "s.json", "-o", "out.csv")
    assert told in refuse("plan", "serve", "t5-small", "--devices", "l4", "--n", "1")
    assert not (own_folder / "out.csv").exists()
