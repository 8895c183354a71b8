"""Tables of requests with their power: rows of a configuration together, caps by their label, bad cells told."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from calibration.power.rows import read_power
from hwspecs.errors import InputError

COUNTS = "prompt_size,batch_size,token_size"
HEAD = f"model,hardware,{COUNTS},peak_power,average_power,prompt_time,token_time,e2e_time,tensor_parallel"
ROW = "llama2-70b,{gpu},512,{batch},128,{peak},{average},{prompt},50,6550,4"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "power.csv"
    path.write_text("\n".join((HEAD, *rows)) + "\n")
    return path


def row(gpu="a100-80gb", batch="1", peak="1.0", average="0.6", prompt="200") -> str:
    return ROW.format(gpu=gpu, batch=batch, peak=peak, average=average, prompt=prompt)


def test_repeated_rows_are_one_run_of_their_medians(tmp_path: Path) -> None:
    path = table(tmp_path, row(prompt="200"), row(prompt="210"), row(prompt="400"), row(batch="2"))
    runs = read_power(path).runs
    assert [(run.batch, run.rows) for run in runs] == [(1.0, 3), (2.0, 1)]
    assert runs[0].device.name == "a100-sxm-80gb" and runs[0].limit == 1.0
    assert runs[0].prompt_time == pytest.approx(0.21) and runs[0].rest_time == pytest.approx(6.34)


def test_a_cap_in_the_label_is_a_limit_on_the_same_device(tmp_path: Path) -> None:
    runs = read_power(table(tmp_path, row("h100-80gb"), row("h100-80gb-pcap"))).runs
    assert [run.limit for run in runs] == [1.0, 0.5]
    assert runs[0].configuration == runs[1].configuration


@pytest.mark.parametrize("cell", ["0", "", "nan", "n/a", "-1"])
def test_a_power_that_was_not_measured_is_no_power(tmp_path: Path, cell: str) -> None:
    (run,) = read_power(table(tmp_path, row(average=cell, peak=cell))).runs
    assert math.isnan(run.average_power) and math.isnan(run.peak_power)


def test_a_row_without_a_count_is_left_out_with_its_reason(tmp_path: Path) -> None:
    rows = (row(), row(batch="many"), row("warp-drive"), row().replace("llama2-70b", "no-such-model"))
    found = read_power(table(tmp_path, *rows))
    assert len(found.runs) == 1
    assert found.reasons[1] == "batch_size is 'many'; it must be a number from 1 to 1e+09."
    assert "'warp-drive' is not a known device" in found.reasons[2] and "no-such-model" in found.reasons[3]


def test_two_spellings_of_one_column_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, row())
    path.write_text(path.read_text().replace("e2e_time,", "e2e_time,Batch Size,").replace("6550,", "6550,2,"))
    with pytest.raises(InputError, match="the columns 'batch_size' and 'Batch Size' mean the same; remove one"):
        read_power(path)


def test_a_missing_column_and_an_unknown_device_are_told(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("model,gpu\nllama2-70b,a100\n")
    with pytest.raises(InputError, match="the column 'hardware' is missing"):
        read_power(path)
    with pytest.raises(InputError, match="hardware: 'warp-drive' is not a known device"):
        read_power(table(tmp_path, row("warp-drive")))
