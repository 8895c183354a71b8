"""Tables of training runs: every spelling of a row, and a sentence for every row that is none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from calibration.datasets.training import read_training, training_table
from hwspecs.errors import InputError
from tests.calibration.training.runs import GOOD, write


def test_spellings_are_resolved(tmp_path: Path) -> None:
    row = {"gpu": "Tesla_V100-PCIE-32GB", "dtype": "torch.BFloat16", "recompute": "unknown", "task": "SFT", "vp": None}
    (run,) = read_training(write(tmp_path, row)).runs
    assert (run.device, run.dtype, run.recompute, run.task) == ("v100-pcie-32gb", "bf16", "", "sft")
    assert math.isnan(run.layout["vp"]) and run.layout["tp"] == 2.0 and run.measured == 1.5


@pytest.mark.parametrize(
    ("text", "name"), [("FP8-MX", "mxfp8"), ("amp_fp8", "fp8"), ("NVFP4", "fp4"), ("FP8-CS", "fp8"), ("", "bf16")]
)
def test_formats_as_training_recipes_spell_them(tmp_path: Path, text: str, name: str) -> None:
    assert read_training(write(tmp_path, {"dtype": text})).runs[0].dtype == name


def test_labels_may_be_absent_or_withheld(tmp_path: Path) -> None:
    assert math.isnan(read_training(write(tmp_path, {}, drop=("step_time_s",))).runs[0].measured)
    for text in ("", "nan", "secret", -1.0, None):
        assert math.isnan(read_training(write(tmp_path, {"step_time_s": text})).runs[0].measured)


def test_flags_may_be_true_or_false(tmp_path: Path) -> None:
    first, second = read_training(write(tmp_path, {"seq_par": True}, {"seq_par": "false"})).runs
    assert (first.layout["seq_par"], second.layout["seq_par"]) == (1.0, 0.0)


def test_columns_have_other_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Model,Device,World Size,seq_len,Global Batch Size,mbs\nllama-3-8b,h100,8,2048,32,2\n")
    (run,) = read_training(path).runs
    assert (run.devices, run.sequence, run.global_batch, run.layout["micro_batch"]) == (8, 2048, 32, 2.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu": "H1000-SXM"}, "unknown_device: 'H1000-SXM' is not a known device"),
        ({"gpu": ""}, "unknown_device: no device"),
        ({"n_gpus": 0}, "n_gpus: '0' must be a whole number"),
        ({"n_gpus": "NA"}, "n_gpus is not stated; it must be a whole number from 1 to"),
        ({"seq": 2.5}, "seq: '2.5' must be a whole number"),
        ({"global_batch": "many"}, "global_batch: 'many' must be a whole number from 1 to"),
        ({"tp": -1}, "tp: '-1' must be a whole number from 1 to"),
        ({"tp": True}, "tp: 'True' must be a whole number from 1 to"),
        ({"vp": "true"}, "vp: 'true' must be a whole number from 1 to"),
        ({"zero": -1}, "zero: '-1' must be 0, 1, 2 or 3"),
        ({"seq_par": "often"}, "seq_par: 'often' must be 0 or 1"),
        ({"layers": 1e30}, "layers: '1e\\+30' must be a whole number from 0 to 1e\\+15"),
        ({"dtype": "bf17"}, "dtype: Unknown number format 'bf17'.*Did you mean bf16"),
        ({"task": "pretraim"}, "task: 'pretraim' is not one of.*Did you mean pretrain"),
        ({"recompute": "some"}, "recompute: 'some' is not one of"),
        ({"context_method": "uly"}, "context_method: 'uly' is not one of.*Did you mean ulysses"),
    ],
)
def test_a_bad_cell_is_a_reason(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    table = read_training(write(tmp_path, change, {}))
    assert [run.row for run in table.runs] == [1]
    with pytest.raises(InputError, match=sentence):
        raise InputError(table.reasons[0])


def test_text_that_parquet_holds_as_bytes_is_text() -> None:
    row = {name: value.encode() if isinstance(value, str) else value for name, value in GOOD.items()}
    (run,) = training_table("t.parquet", [row]).runs
    assert (run.model, run.device, run.dtype) == (GOOD["model"], "h100-sxm", "bf16")


def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the column 'seq' is missing"):
        read_training(write(tmp_path, {}, drop=("seq",)))


def test_two_spellings_of_one_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the columns 'tp' and 'TP' mean the same; remove one"):
        read_training(write(tmp_path, {"TP": 4}))


def test_columns_spelled_nearly_as_absent_ones_are_told(tmp_path: Path) -> None:
    extra = {"Micro Bath": 2, "recomp": "full", "tpp": 8, "my_own": 1, "vp_known": True, "step_time_ms": 3}
    found = read_training(write(tmp_path, extra, drop=("micro_batch", "recompute"))).notes
    assert found == (
        "the column 'Micro Bath' is not read. Did you mean micro_batch?",
        "the column 'recomp' is not read. Did you mean recompute?",
    )


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        read_training(write(tmp_path))


def test_every_row_of_the_shared_table_is_read(data_directory: Path) -> None:
    path = data_directory / "training" / "train_e2e.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    table = read_training(path)
    assert table.rows == 445 and not table.reasons and not table.notes
    assert sum(run.native for run in table.runs) == 21 and sum(run.repeat for run in table.runs) == 103


def test_two_columns_of_one_meaning_agree_or_the_row_is_none(tmp_path: Path) -> None:
    """The same number or device in other words is no contradiction; an empty cell says nothing."""
    rows = [
        {"tp": 2, "tensor_parallel": 4.0},
        {"tp": 2, "tensor_parallel": 2.0, "device": "h100", "gpu": "NVIDIA H100 80GB HBM3"},
        {"tp": None, "tensor_parallel": 8.0, "device": "cuda"},
        {"gpu": "a100-sxm-80gb", "device": "h100"},
    ]
    columns = {"tensor_parallel": None, "device": ""}
    table = read_training(write(tmp_path, *({**columns, **row} for row in rows)))
    assert {run.row: run.layout["tp"] for run in table.runs} == {1: 2.0, 2: 8.0}
    assert table.reasons[0] == "tp: 'tp' says 2 and 'tensor_parallel' 4.0; they mean the same, remove one."
    assert "'gpu' says a100-sxm-80gb and 'device' h100" in table.reasons[3]
