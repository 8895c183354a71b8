"""`jaxperf batches`: the same rows in the same order, what is said about them, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from calibration.composition.batches import TIMES

HEADER = "note,gpu,tp,model,dtype,framework,batch,output_len,prompt_lengths,prefill_s,decode_step_s"
TABLE = f"""{HEADER}
a,L20,1,llama-3.2-1b,bf16,sglang,2,100,"[300, 200]",0.02,0.005
b,L21,1,llama-3.2-1b,bf16,sglang,2,100,"[300, 200]",,
c,H100,2,llama-3.2-1b,,other,1,07,[50],,
d,L20,1,llama-3.2-1bb,bf16,sglang,1,100,[50],,
"e, last",L20,1,llama-3.2-1b,bf16,sglang,3,100,[50],,
"""


pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def predict(answered, no_kernels: Path) -> Callable[..., dict]:
    return partial(answered, "batches", "--params", no_kernels)


def test_the_same_rows_come_back_with_predictions(predict: Callable[..., dict], table: Path, own_folder: Path) -> None:
    said = predict(table, "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [*HEADER.split(","), *TIMES, "tier", "reason"]
    assert [row["note"] for row in rows] == ["a", "b", "c", "d", "e, last"]
    assert [bool(row["predicted_prefill_s"]) for row in rows] == [True, False, True, False, False]
    assert [row["tier"] for row in rows] == ["measured", "", "unseen", "", ""]
    assert rows[2]["output_len"] == "07"
    for phase in ("prefill", "decode_step"):
        names = [f"predicted_{phase}_s{end}" for end in ("_lower", "", "_upper")]
        lower, time, upper = (float(rows[0][name]) for name in names)
        assert 0.0 < lower < time < upper
    assert "L21" in rows[1]["reason"] and "did you mean" in rows[3]["reason"].lower()
    assert rows[4]["reason"] == "batch: 3 is stated, but prompt_lengths holds 1."
    for words in ("dtype is not stated: bf16", "as sglang", "no device of its generation", "model never measured"):
        assert words in rows[2]["reason"]
    assert said["rows"] == 5 and said["predicted"] == 2
    assert sum(entry["rows"] for entry in said["without_prediction"]) == 3
    assert {entry["phase"]: entry["rows"] for entry in said["errors"]} == {"prefill": 1, "decode_step": 1}


def test_the_text_says_what_is_not_known(cli, no_kernels: Path, table: Path) -> None:
    result = cli("batches", table, "-o", "out.json", "--params", no_kernels)
    assert result.exit_code == 0
    for words in ("2 of 5 rows predicted", "no prediction (1)", "model never measured", "written: out.json"):
        assert words in result.stdout
    quiet = cli("batches", table, "-o", "out.json", "--params", no_kernels, "--quiet").stdout
    assert "note" not in quiet and "no prediction (1)" in quiet


def test_not_one_row_is_told_by_the_exit_code(predict: Callable[..., dict], own_folder: Path) -> None:
    (own_folder / "in.csv").write_text("\n".join([HEADER, TABLE.splitlines()[2]]) + "\n")
    assert predict("in.csv", "-o", "out.parquet", code=3)["predicted"] == 0
    assert (own_folder / "out.parquet").exists()


def test_an_own_device_is_predicted(predict: Callable[..., dict], own_folder: Path) -> None:
    (own_folder / "my").mkdir()
    (own_folder / "my" / "fast-l20.toml").write_text(
        'base = "l20"\nname = "fast-l20"\ndisplay_name = "Fast"\naliases = []\n'
        '[memory_bandwidth]\nquantity = "1728 GB/s"\nsource = "datasheet"\nconfidence = "estimated"\nnote = "twice"\n'
    )
    rows = [TABLE.splitlines()[1], TABLE.splitlines()[1].replace("L20", "fast-l20")]
    (own_folder / "in.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    predict("in.csv", "-o", "out.json", "--devices-dir", "my")
    slow, fast = json.loads((own_folder / "out.json").read_text())
    assert fast["tier"] == "transfer"
    assert fast["predicted_decode_step_s"] < 0.75 * slow["predicted_decode_step_s"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.csv", "-o", "out.csv"), "missing.csv"),
        (("in.csv", "-o", "in.csv"), "is the input"),
        (("in.csv", "-o", "out.xls"), "must end in"),
        (("in.csv", "-o", "no/out.csv"), "does not exist"),
        (("done.csv", "-o", "out.csv"), "already has a column 'predicted_prefill_s'"),
        (("short.csv", "-o", "out.csv"), "the column 'prompt_lengths' is missing"),
        (("in.csv", "-o", "out.csv", "--steps", "none"), "Cannot read parameters"),
        (("in.csv", "-o", "out.csv", "--params", "none"), "Cannot read parameters"),
        (("in.csv", "-o", "out.csv", "--devices-dir", "none"), "none"),
    ],
)
def test_a_mistake_is_one_sentence(
    refuse: Callable[..., str], table: Path, own_folder: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (own_folder / "done.csv").write_text(f"{HEADER},predicted_prefill_s\n{TABLE.splitlines()[1]},0.1\n")
    (own_folder / "short.csv").write_text("gpu,tp,model,output_len\nL20,1,gpt2,5\n")
    before = sorted(path.name for path in own_folder.iterdir())
    assert sentence in refuse("batches", *arguments)
    assert sorted(path.name for path in own_folder.iterdir()) == before


def test_without_measured_batches_validation_says_where_they_go(
    refuse: Callable[..., str], own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXPERF_DATA", str(own_folder))
    assert "JAXPERF_DATA" in refuse("validate", "batches")


def test_what_stands_for_a_framework_and_for_scales_is_said(predict: Callable[..., dict], own_folder: Path) -> None:
    rows = ['h100-sxm,1,"[1024]",mxfp8,vllm', 'h100-sxm,1,"[1024]",fp8,', 'b200,1,"[1024]",mxfp8,sglang']
    lines = [f"llama-3.1-8b,64,{row}" for row in rows]
    (own_folder / "t.csv").write_text(
        "\n".join(["model,output_len,gpu,tp,prompt_lengths,dtype,framework", *lines]) + "\n"
    )
    predict("t.csv", "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        own, none, known = (row["reason"] for row in csv.DictReader(file))
    assert "no batch of this framework measured: overheads as sglang, products its own" in own
    assert "framework not stated: overheads as sglang, products of none" in none
    assert "sglang" not in known
    scales = "no matrix units for the scales of mxfp8: counted at its fp8 rate"
    assert [scales in reason for reason in (own, none, known)] == [True, False, False]
