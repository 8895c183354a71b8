"""`jaxperf serve`: the same rows in the same order, every row answered or told why, `value` never an input."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from calibration.serving.predict import COLUMNS

HEADER = "note,model,gpu,n_gpu,tp,ep,dtype,framework,mode,input_len,output_len,concurrency,qps,metric,value"
TABLE = f"""{HEADER}
a,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,1,1.0,,fp8,vllm,agg,1024,0128,8,,ttft,100
b,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,1,1.0,,fp8,vllm,agg,1024,0128,8,,tpot,9
c,Llama-3.1-8B-Instuct,h100_sxm,1,1.0,,fp8,vllm,agg,1024,128,8,,tpot,9
d,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,16,2,,fp8,sglang,disagg,1024,128,64,,tpot,9
e,meta-llama/Llama-3.1-8B-Instruct,rtx4090,1,,,,new engine,agg,1024,128,,1.5,tpot,
"f, last",meta-llama/Llama-3.1-8B-Instruct,,1,1,,fp8,vllm,agg,1024,128,8,,tpot,9
"""

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def predict(answered) -> Callable[..., dict]:
    return partial(answered, "serve")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_stay_and_gain_predictions(own_folder: Path, predict):
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    table.write_text(TABLE)
    said = predict(table, "-o", out, "--price", "h100=2.5")
    before, after = rows_of(table), rows_of(out)
    assert [{name: row[name] for name in before[0]} for row in after] == before
    assert (said["rows"], said["predicted"], said["configurations"]) == (6, 4, 5)
    assert said["rates"]["path"] == said["scalars"]["path"] == "shipped"
    answer = said["answers"][0]
    assert all(answer[f"{name}_lower"] < answer[name] < answer[f"{name}_upper"] for name in COLUMNS)
    for row in after:
        if row["note"] in ("c", "f, last"):
            assert row["ttft_ms"] == "" and row["reason"] and row["tier"] == ""
            continue
        for name in COLUMNS:
            lower, told, upper = (float(row[f"{name}{end}"]) for end in ("_lower", "", "_upper"))
            certain = row["note"] == "e" and name == "output_tokens_per_s"  # at a low rate what comes is served
            assert 0.0 < lower and (lower == told == upper == 1.5 * 128.0 if certain else lower < told < upper)
        hours = int(row["n_gpu"]) * 1e6 / float(row["output_tokens_per_s"]) / 3600.0
        assert float(row["kwh_per_million_tokens"]) == pytest.approx(hours * (0.45 if row["note"] == "e" else 0.7))
        paid = row["dollars_per_million_tokens"]
        assert paid == "" if row["note"] == "e" else float(paid) == pytest.approx(2.5 * hours)
        e2e = float(row["ttft_ms"]) + 127.0 * float(row["tpot_ms"])
        assert float(row["e2e_ms"]) == pytest.approx(e2e, rel=1e-9)
    assert after[0]["tpot_ms"] == after[1]["tpot_ms"]
    assert [row["tier"] for row in after] == ["known", "known", "", "known", "unseen", ""]
    assert "Did you mean" in after[2]["reason"]
    assert "framework never measured" in after[4]["reason"] and "framework" not in after[0]["reason"]
    assert "the device never served" in after[4]["reason"] and "device" not in after[0]["reason"]
    # 8 requests in flight: tokens a second of the system are what the latencies say.
    assert float(after[0]["output_tokens_per_s"]) == pytest.approx(8e3 * 128.0 / float(after[0]["e2e_ms"]), rel=1e-9)


def test_what_was_measured_is_never_an_input(own_folder: Path, predict):
    found = []
    for name, text in (
        ("with", TABLE),
        ("other", TABLE.replace(",9\n", ",1234\n")),
        ("without", TABLE.replace(",9\n", ",\n")),
    ):
        table, out = own_folder / f"{name}.csv", own_folder / f"{name}-out.csv"
        table.write_text(text)
        predict(table, "-o", out)
        found.append([[row[column] for column in COLUMNS] for row in rows_of(out)])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("engine", "version", "spellings"),
    [
        ("vllm", "0.12.0", ("v0.12.0", "0.12", "0.12.0+cu129", "V0.12 ")),
        ("trtllm", "1.0.0rc3", ("v1.0.0rc3", "1.0.0RC3")),
    ],
)
def test_a_release_is_the_same_however_it_is_spelled(
    engine: str, version: str, spellings: tuple[str, ...], own_folder: Path, predict
):
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    head = "model,gpu,n_gpu,tp,dtype,framework,framework_version,mode,input_len,output_len,concurrency"
    told = (version, *spellings, "")
    rows = "".join(f"llama-3.1-8b,h100-sxm,1,1,bf16,{engine},{text},agg,1024,512,32\n" for text in told)
    table.write_text(f"{head}\n{rows}")
    predict(table, "-o", out)
    first, *others, unstated = [[row[name] for name in COLUMNS] for row in rows_of(out)]
    assert all(other == first for other in others)
    assert unstated != first  # the release tells something


def test_a_release_that_was_never_measured_says_so(own_folder: Path, predict):
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    head = "model,gpu,n_gpu,tp,dtype,framework,framework_version,mode,input_len,output_len,concurrency"
    told = ("vllm,0.12", "vllm,0.17.0", "vllm,", "an engine of mine,0.17.0")
    rows = "".join(f"llama-3.1-8b,h100-sxm,1,1,bf16,{text},agg,1024,512,32\n" for text in told)
    table.write_text(f"{head}\n{rows}")
    predict(table, "-o", out)
    sentence = "this release never measured: priced with what those of its engine share"
    assert [sentence in row["reason"] for row in rows_of(out)] == [False, True, False, False]


def test_a_table_with_nothing_to_predict_is_infeasible(own_folder: Path, predict):
    table = own_folder / "in.csv"
    table.write_text(f"{HEADER}\n{TABLE.splitlines()[3]}\n")
    said = predict(table, "-o", own_folder / "out.csv", code=3)
    assert said["predicted"] == 0 and said["without_prediction"][0]["rows"] == 1


def test_a_first_token_that_waits_between_client_and_engine_is_said(own_folder: Path, predict):
    """One campaign of Llama 3.1 8B on TensorRT-LLM, which with fewer in flight than it had says what no step does; one
    request has nobody to wait for, and another engine's wait for none."""
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    asked = (("trtllm", 1), ("trtllm", 2), ("trtllm", 8), ("trtllm", 64), ("vllm", 2))
    lines = [f",Llama-3.1-8B,h100_sxm,1,1,,fp8,{engine},agg,1024,512,{flight},,," for engine, flight in asked]
    table.write_text("\n".join([HEADER, *lines]))
    predict(table, "-o", out)
    said = ["held between client and engine" in row["reason"] for row in rows_of(out)]
    assert said == [False, True, True, False, False]


def test_an_encoder_is_a_row_with_a_reason_among_the_others(own_folder: Path, predict):
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    table.write_text(f"{TABLE}g,bert-large,h100_sxm,1,1.0,,fp16,vllm,agg,128,128,8,,tpot,9\n")
    assert predict(table, "-o", out)["predicted"] == 4
    assert "it generates no tokens" in rows_of(out)[-1]["reason"]


def test_what_is_not_priced_as_it_is_stated_is_said(own_folder: Path, predict):
    """Two pools of one worker, or near what they serve, and fixed batches with and without memory for their last
    tokens."""
    header = HEADER.replace(",concurrency", ",batch,concurrency")
    row = "meta-llama/Llama-3.1-8B-Instruct,h100_sxm"
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    table.write_text(
        f"""{header}
one,{row},1,1,,bf16,vllm,disagg,1024,256,,16,,,
rate,{row},4,1,,bf16,vllm,disagg,1024,256,,,2,,
near,{row},4,1,,bf16,vllm,disagg,1024,1,,,175,,
nearer,{row},4,1,,bf16,vllm,disagg,1024,1,,,195,,
over,{row},4,1,,bf16,vllm,disagg,1024,1,,,999,,
pools,{row},4,1,,bf16,vllm,disagg,1024,256,,16,,,
large,{row},1,1,,bf16,vllm,static,1024,256,4096,,,,
small,{row},1,1,,bf16,vllm,static,1024,256,64,,,,
"""
    )
    predict(table, "-o", out)
    together, memory = "priced on the same devices", "do not fit in device memory"
    reasons = {row["note"]: row["reason"] for row in rows_of(out)}
    assert together in reasons["one"] and not reasons["rate"] and memory in reasons["large"]
    assert any("near what the system serves" in reasons[note] for note in ("near", "nearer"))
    ends = {row["note"]: [row[f"output_tokens_per_s_{end}"] for end in ("lower", "upper")] for row in rows_of(out)}
    assert float(ends["near"][0]) < float(ends["near"][1]) == 175.0, "no more than comes"
    assert "one token out: there is no time between tokens" in reasons["near"]
    assert ends["rate"] == ["512", "512"] and "the queue grows" in reasons["over"]
    assert reasons["pools"].startswith("source is not stated") and memory not in reasons["small"]


def test_a_fixed_batch_that_mostly_waits_for_launches_is_said(own_folder: Path, predict):
    """Fixed batches were fitted of one release that replayed no graphs; others are as their engine serves, and with
    much work steps are kernels."""
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    old = "vllm 0.2.0"
    asked = ((old, "static", 1024, 1), (old, "static", 1024, 2), ("trtllm", "static", 1024, 1))
    asked += (("vllm 0.12.0", "agg", 1024, 1), (old, "static", 16384, 16), ("vllm 0.12.0", "static", 1024, 1))
    lines = [f",Llama-3.1-8B,h100_sxm,1,1,,bf16,{engine},{mode},{n},512,{load},,," for engine, mode, n, load in asked]
    table.write_text("\n".join([HEADER, *lines]))
    said = predict(table, "-o", out)
    rows = rows_of(out)
    assert ["and the host (" in row["reason"] for row in rows] == [True, True, False, False, False, False]
    assert ["an engine of 2023 alone" in row["reason"] for row in rows] == [False, False, True, False, False, True]
    served, alone = (float(rows[place]["tpot_ms"]) for place in (3, 5))
    assert alone == pytest.approx(served, rel=0.1) and rows[3]["tier"] == "known" != rows[5]["tier"]
    figure = re.search(r"\(([0-9.]+) ms\)", rows[0]["reason"])
    assert figure and 0.5 < float(figure[1]) / float(rows[0]["tpot_ms"]) < 1.0
    (note,) = [each for each in said["notes"] if "more than half of a decode step is kernels" in each["reason"]]
    assert note["rows"] == 2 and " ms)" not in note["reason"]


def test_mistakes_are_one_sentence(own_folder: Path, cli):
    table = own_folder / "in.csv"
    table.write_text(TABLE.replace("model,", "modle,", 1))
    result = cli("serve", table, "-o", own_folder / "out.csv")
    assert result.exit_code == 2 and "column 'model' is missing" in result.output and "modle" in result.output
    table.write_text(TABLE)
    result = cli("serve", table, "-o", table)
    assert result.exit_code == 2 and table.read_text() == TABLE


@pytest.mark.parametrize("column", ["n_gpu", "tp", "ep"])
def test_a_layout_has_whole_numbers_of_ranks(own_folder: Path, predict, column: str):
    cells = dict(zip(HEADER.split(","), TABLE.splitlines()[1].split(","), strict=True)) | {column: "1.5"}
    table = own_folder / "in.csv"
    table.write_text(f"{HEADER}\n{','.join(cells.values())}\n")
    said = predict(table, "-o", own_folder / "out.csv", code=3)
    assert said["without_prediction"][0]["reason"] == f"{column}: 1.5 must be a whole number."


@pytest.mark.long
def test_a_model_of_a_folder_is_priced_by_its_own_config(own_folder: Path, predict):
    """Two folders of one name beside the shipped model of that name: half of the layers take about half of the time."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    lines = [HEADER, "own,llama-3.1-8b,h100-sxm,1,1,,bf16,vllm,agg,1024,128,8,,,"]
    for layers in (32, 16):
        folder = own_folder / str(layers) / "llama-3.1-8b"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**fields, "num_hidden_layers": layers}))
        lines.append(f"{layers},{folder},h100-sxm,1,1,,bf16,vllm,agg,1024,128,8,,,")
    table, out = own_folder / "in.csv", own_folder / "out.csv"
    table.write_text("\n".join(lines) + "\n")
    predict(table, "-o", out)
    shipped, full, half = rows_of(out)
    assert [row["tier"] for row in (shipped, full, half)] == ["known", "transfer", "transfer"]
    assert 0.5 < float(half["tpot_ms"]) / float(full["tpot_ms"]) < 0.7
    assert 0.6 < float(full["tpot_ms"]) / float(shipped["tpot_ms"]) < 1.6
