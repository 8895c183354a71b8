"""`sweep` of task train: rows with intervals and where they come from; what belongs to other tasks is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import hwspecs
from jaxperf.cli.plan_rates import FittedRates
from jaxperf.cli.sweep_train import _rated
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model

AXES = {"device": ["h100-sxm"], "world_size": [8], "tensor_parallel": [1, 3], "dtype": ["bf16", "fp8"]}


def test_rows_say_what_they_rest_on(cli, own_folder: Path, sweep_file) -> None:
    sweep_file(task="train", axes=AXES, metrics=["step_time", "mfu", "reason"])
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet")
    assert result.exit_code == 0, result.output
    assert "world_size 8, " in result.stdout and "from  fitted to measured steps, " in result.stdout
    table = pq.read_table(own_folder / "rows.parquet")
    assert table.schema.metadata[b"jaxperf.task"] == b"train"
    rows = table.to_pylist()
    assert len(rows) == 4 and {"global_batch", "schedule", "step_time_lower", "mfu_upper"} <= set(rows[0])
    for row in rows:
        runs = row["tensor_parallel"] == 1  # 3 ranks divide neither the heads nor the devices
        assert (row["reason"] == 0) == runs
        assert not runs or row["step_time_lower"] < row["step_time"] < row["step_time_upper"]
    width = {
        (row["device"], row["dtype"]): row["step_time_upper"] / row["step_time"]
        for row in rows
        if row["tensor_parallel"] == 1
    }
    assert width["h100-sxm", "bf16"] < width["h100-sxm", "fp8"]  # measured, and exploratory


def test_a_file_is_a_device(cli, own_folder: Path, sweep_file) -> None:
    """Of `plan train` and of `train` too, where kernels are looked up by the device's name."""
    (own_folder / "my.toml").write_text('name = "what-if"\nbase = "h100-sxm"\n')
    sweep_file(task="train", axes={"device": ["my.toml"], "world_size": [8]}, metrics=["step_time"])
    words = ("--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 512 --vocab-size 50304",)
    (own_folder / "run.args").write_text(" ".join((*words, "--micro-batch-size 1 --global-batch-size 8 --bf16")))
    plan = ("plan", "train", "gpt2", "--sequence", "1024", "--global-batch", "16", "--quiet")
    for arguments in (
        ("sweep", "sweep.yaml", "-o", "rows.parquet"),
        ("train", "run.args", "--device", "my.toml", "--n", "8", "-o", "run.csv"),
        (*plan, "--device", "my.toml", "--n", "2", "--top", "1"),
    ):
        result = cli(*arguments)
        assert result.exit_code == 0, result.output
    assert "what-if" in result.stdout


def test_a_file_in_a_table_is_told_where_it_goes(cli, own_folder: Path) -> None:
    (own_folder / "t.csv").write_text("model,gpu,n_gpus,seq,global_batch\ngpt2,my.toml,8,512,8\n")
    assert "--devices-dir gives the folder" in cli("train", "t.csv", "-o", "out.csv").stdout


def test_every_device_has_the_rates_of_each_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fitted is made up here: a number for each question, in the order in which it is asked."""
    devices = {name: hwspecs.load(name) for name in ("h100-sxm", "a100-sxm-80gb")}
    formats = ("bf16", "fp8", "fp16")

    def fitted(asked: Any, *rest: Any) -> list[FittedRates]:
        numbers = [list(devices).index(spec.name) + 10 * formats.index(request.dtype) for request, spec in asked]
        made_up: list[Any] = [as_float(float(each)) for each in numbers]
        return [FittedRates(one, str(each), each / 100.0) for one, each in zip(made_up, numbers, strict=True)]

    monkeypatch.setattr("jaxperf.cli.plan_rates.fitted_rates", fitted)
    rated, tiers = _rated(load_model("gpt2"), devices, formats, ())
    for place, name in enumerate(devices):
        numbers = [place + 10 * each for each in range(3)]
        assert np.asarray(rated[name].efficiencies).tolist() == numbers
        assert rated[name].width.tolist() == [each / 100.0 for each in numbers]
        assert [words.split()[0] for words in tiers[name].values()] == [str(each) for each in numbers]


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"launch": "eager"}, (), "has no launch mode"),
        ({}, ("--params", "kernels.json"), "takes what is fitted to steps"),
        ({"metrics": ["tpot"]}, (), "Task train has no metric 'tpot'"),
        ({"axes": AXES | {"batch": [1]}}, (), "'batch' is not a parameter of task train"),
        ({"axes": {"dtype": {"tensor_parallel": [1]}}}, (), "The zip axis 'dtype' has the name of a parameter"),
        ({"task": "trian"}, (), "allowed: decode, prefill, serve, train. Did you mean train?"),
        ({"keep": "top(5, reason)"}, (), "keep: 'reason' "),
        ({"axes": AXES | {"zero": [4]}}, (), "'zero' is 4; it must be a whole number from 0 to 3."),
        ({"axes": AXES | {"data_parallel": [8]}}, (), "'world_size' and 'data_parallel' are both given"),
        ({"metrics": ["memory"]}, ("--plot", "front.png"), "A Pareto picture needs a latency and a throughput"),
    ],
)
def test_mistakes_are_told_before_devices_are_rated(
    refuse, sweep_file, monkeypatch: pytest.MonkeyPatch, changes, options, said: str
) -> None:
    monkeypatch.setattr("jaxperf.cli.plan_rates.fitted_rates", lambda *asked: pytest.fail("rated in vain"))
    sweep_file(**{"task": "train", "axes": AXES, "metrics": ["step_time"], **changes})
    assert said in refuse("sweep", "sweep.yaml", "-o", "rows.parquet", *options)
