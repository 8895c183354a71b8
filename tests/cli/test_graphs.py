"""`jaxperf graphs`: the same rows in the same order with what the shipped parameters predict, and every mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

HEADER = "note,device,model,mode,seq,batch,variant,label_ms"
TABLE = f"""{HEADER}
"a, first",Tesla T4,bert_large,inf,512,8,plain,694.46
b,Tesla T5,bert_large,inf,512,8,plain,
c,A100-PCIE-40GB,gpt2_large,train,1024,4,dp4,452.3
d,A100-PCIE-40GB,no-such-model,inf,1024,4,plain,
e,h100-pcie,gpt2_large,train,1024,1,,
"""
ADDED = ["predicted_ms", "lower_ms", "upper_ms", "kernel_ms", "host_ms", "roofline_ms"]
ADDED += ["exposed_communication_ms", "exposed_communication_fraction", "tier", "reason"]


pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def predict(answered) -> Callable[..., dict]:
    return partial(answered, "graphs")


def test_what_rows_get(predict, table: Path, own_folder: Path) -> None:
    said = predict(table, "-o", "out.parquet")
    read = pq.read_table("out.parquet")
    assert read.column_names == [*HEADER.split(","), *ADDED]
    first, unknown, parallel, nameless, other = read.to_pylist()
    assert [row["note"] for row in read.to_pylist()] == ["a, first", "b", "c", "d", "e"]
    for row in (first, parallel, other):
        assert row["lower_ms"] <= row["predicted_ms"] <= row["upper_ms"]
        assert row["roofline_ms"] < row["predicted_ms"] and 0 < row["host_ms"] < row["kernel_ms"]
    assert first["tier"] == "measured" and other["tier"] == "transfer"
    assert "several devices" in parallel["reason"]
    share = parallel["exposed_communication_ms"] / parallel["predicted_ms"]
    assert 0.0 < share < 0.5 and parallel["exposed_communication_fraction"] == pytest.approx(share)
    assert first["exposed_communication_ms"] == first["exposed_communication_fraction"] == 0.0
    assert abs(first["predicted_ms"] / first["label_ms"] - 1.0) < 0.25
    for row, reason in ((unknown, "not a known device"), (nameless, "no graph")):
        assert row["predicted_ms"] is None and reason in row["reason"]
    assert (said["rows"], said["predicted"]) == (5, 3)
    assert {group["tier"]: group["rows"] for group in said["groups"]} == {"measured": 2, "transfer": 1}
    assert sum(entry["rows"] for entry in said["without_prediction"]) == 2


def test_a_graph_of_the_folder_is_used(predict, table: Path, own_folder: Path) -> None:
    (own_folder / "graphs").mkdir()
    (own_folder / "graphs" / "bert_large-inf-512-8.csv").write_text(
        "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape\n"
        'a,Linear,"[[\'Linear\', (4096, 4096, 4096)]]",[],[],set(),set(),"[(4096, 4096)]","(4096, 4096)"\n'
    )
    (own_folder / "graphs" / "gpt2_large-train-1024-4-dp4.csv").write_text("read by none")
    predict(table, "-o", "out.parquet", "--graphs", "graphs")
    row, _, parallel, *_ = pq.read_table("out.parquet").to_pylist()
    assert "several devices" in parallel["reason"] and "1024-4-dp4.csv is not used" in parallel["reason"]
    assert row["roofline_ms"] == pytest.approx(2e3 * 4096**3 / 8.1e12, rel=0.05)  # fp32 peak of the T4's datasheet


def test_a_device_that_the_law_was_not_made_for_is_said(predict, own_folder: Path) -> None:
    devices = ("xeon-8480-plus", "h100-sxm")
    (own_folder / "in.csv").write_text(
        "\n".join([HEADER, *(f"a,{device},tiny,inf,8,1,," for device in devices)]) + "\n"
    )
    (own_folder / "tiny-inf-8-1.csv").write_text(
        "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape\n"
        'a,Linear,"[[\'Linear\', (512, 512, 512)]]",[],[],set(),set(),"[(512, 512)]","(512, 512)"\n'
    )
    predict("in.csv", "-o", "out.parquet", "--graphs", own_folder)
    processor, gpu = pq.read_table("out.parquet").to_pylist()
    assert processor["tier"] == gpu["tier"] == "transfer"
    assert (processor["reason"], gpu["reason"]) == ("not a GPU of the kinds that the law was made for", "")


def test_a_graph_without_a_kernel_has_no_time(cli, own_folder: Path) -> None:
    (own_folder / "in.csv").write_text(f"{HEADER}\na,t4,tiny,inf,8,1,,\n")
    (own_folder / "tiny-inf-8-1.csv").write_text(
        "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape\n"
        'a,misc,[],[],[],set(),set(),[],"(2, 8)"\nsize,misc,[],[],[],{\'a\'},set(),"[(2, 8)]","(1,)"\n'
    )
    result = cli("graphs", "in.csv", "-o", "out.csv", "--graphs", own_folder)
    assert result.exit_code == 3 and "(1): the graph launches no kernel" in result.output


@pytest.mark.long
def test_tensors_are_of_the_stated_format(predict, own_folder: Path) -> None:
    rows = ("fp32", "", "fp16", "fp8", "fp16")
    variants = ("plain", "plain", "plain", "plain", "dp4")
    text = "".join(f"t4,gpt2,train,128,4,{dtype},{one}\n" for dtype, one in zip(rows, variants, strict=True))
    text = f"device,model,mode,seq,batch,dtype,variant\n{text}t4,resnet-18,inf,224,1,,\n"
    (own_folder / "in.csv").write_text(text)
    predict("in.csv", "-o", "out.parquet")
    full, silent, half, narrow, several, image = pq.read_table("out.parquet").to_pylist()
    assert full["predicted_ms"] == silent["predicted_ms"] > 1.5 * half["predicted_ms"], "half the bytes, 8 x the peak"
    assert half["roofline_ms"] < 0.51 * full["roofline_ms"]
    assert full["reason"] == silent["reason"] == "" and "all tensors in fp16" in half["reason"]
    assert narrow["reason"] == "dtype 'fp8' is none of fp32, tf32, bf16, fp16"
    assert several["reason"] == "several devices are predicted in fp32 only; dtype is fp16"
    assert image["reason"] == "seq is the side of the image or latent map"


@pytest.mark.long
def test_adapting_to_measured_operations(predict, own_folder: Path) -> None:
    """Products measured at 51 TFLOP/s change the iterations of a device that was never measured."""
    table = own_folder / "in.csv"
    table.write_text(f"{HEADER}\ne,h100-pcie,bert_large,inf,512,8,,\n")
    predict(table, "-o", "before.parquet")
    lines = [f"h100-pcie,torch,fp32,{2**n},4096,4096,{3e-6 * 2**n * 2 * 4096**2 / 51e6}" for n in range(6, 13)]
    (own_folder / "own.csv").write_text("device,framework,dtype,m,n,k,latency_us\n" + "\n".join(lines))
    predict(table, "-o", "after.parquet", "--adapt", "own.csv")
    before, after = (pq.read_table(name).to_pylist()[0]["predicted_ms"] for name in ("before.parquet", "after.parquet"))
    assert math.isfinite(after) and after != pytest.approx(before, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.csv", "-o", "in.csv"), "is the input"),
        (("absent.csv", "-o", "out.csv"), "absent.csv"),
        (("in.csv", "-o", "out.csv", "--graphs", "absent"), "'absent' is not a folder of graphs"),
        (("in.csv", "-o", "out.csv", "--params", "absent"), "Cannot read parameters"),
        (("in.csv", "-o", "out.csv", "--adapt", "in.csv"), "in.csv"),
        (("in.csv", "-o", "out.xyz"), "xyz"),
    ],
)
def test_mistakes_are_one_sentence(cli, table: Path, arguments: tuple[str, ...], message: str) -> None:
    result = cli("graphs", *arguments)
    assert result.exit_code == 2
    assert message in result.output and "Traceback" not in result.output
    assert not Path("out.csv").exists()


def test_nothing_predicted_is_infeasible(cli, own_folder: Path) -> None:
    (own_folder / "in.csv").write_text(f"{HEADER}\nb,Tesla T5,bert_large,inf,512,8,plain,\n")
    result = cli("graphs", "in.csv", "-o", "out.csv")
    assert result.exit_code == 3
    assert "no prediction (1)" in result.output


def test_validate_names_what_it_needs(cli, own_folder: Path) -> None:
    result = cli("validate", "graphs", own_folder)
    assert result.exit_code == 2 and "e2e_labels.csv" in result.output
