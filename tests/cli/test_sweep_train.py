"""`sweep` of task train: rows with intervals and where they come from; what belongs to other tasks is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

AXES = {"device": ["h100-sxm", "a100-sxm-80gb"], "world_size": [8], "tensor_parallel": [1, 3], "dtype": ["bf16", "fp8"]}


@pytest.mark.usefixtures("quick_compilation")
def test_rows_say_what_they_rest_on(cli, own_folder: Path, sweep_file) -> None:
    sweep_file(task="train", axes=AXES, metrics=["step_time", "mfu", "reason"])
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet")
    assert result.exit_code == 0, result.output
    assert "all with world_size 8, " in result.stdout and "from  fitted to measured steps, " in result.stdout
    table = pq.read_table(own_folder / "rows.parquet")
    assert table.schema.metadata[b"jaxperf.task"] == b"train"
    rows = table.to_pylist()
    assert len(rows) == 8 and {"global_batch", "schedule", "step_time_lower", "mfu_upper"} <= set(rows[0])
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
    ],
)
def test_what_belongs_to_other_tasks_is_refused(refuse, sweep_file, changes, options, said: str) -> None:
    sweep_file(**{"task": "train", "axes": AXES, "metrics": ["step_time"], **changes})
    assert said in refuse("sweep", "sweep.yaml", "-o", "rows.parquet", *options)
