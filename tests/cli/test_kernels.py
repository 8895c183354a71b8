"""`jaxperf kernels`: the same rows in the same order, what is said about them, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import calibration.datasets
import calibration.kernels.predict
import jaxperf
from calibration.datasets import read_table
from calibration.intervals import Spread
from calibration.kernels.family import FittedFamily
from calibration.kernels.fit import Settings, counts, new_correction, new_law
from calibration.kernels.inputs import prepare
from calibration.kernels.levels import NO_NAMES
from calibration.kernels.model import KernelModel
from calibration.kernels.parameters import Parameters, save_parameters
from calibration.kernels.priors import PRIORS

HEADER = "note,device,framework,version,kernel,dtype,m,n,k,latency_us"
KNOWN = "h100-sxm,vllm,0.24.0,cublas,bf16"
ADDED = ["predicted_us", "lower_us", "upper_us", "roofline_us", "limiter", "tier", "reason"]
TABLE = f"""{HEADER}
a,{KNOWN},16,4096,4096,14.20
b,h100-sxn,vllm,0.24.0,cublas,bf16,16,4096,4096,14
c,l40s,vllm,0.24.0,cublas,bf16,4096,4096,4096,
d,{KNOWN},12x,4096,4096,14
"e, last",{KNOWN},4096,4096,4096,230.0
"""


pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parameters of gemm that know the software and the H100: the law at its prior, no correction, stated spreads."""
    folder = tmp_path_factory.mktemp("parameters")
    (folder / "gemm.csv").write_text(f"{HEADER}\na,{KNOWN},16,4096,4096,14.2\nb,{KNOWN},4096,4096,4096,230\n")
    table = read_table(folder / "gemm.csv").table("gemm")
    assert table is not None
    data = prepare(table)
    names = NO_NAMES.extended(data.spelled)
    law = new_law({name: mean for name, (mean, _) in PRIORS.items()}, counts(names), habits=0)
    features = np.concatenate([data.features - 20.0, data.features + 20.0])
    model = KernelModel(law, new_correction(features, counts(names), Settings(widths=(4,))))
    spread = Spread(measured=(0.05, 0.1), transfer=(0.2, 0.4))
    card = {"created": "2026-11-21", "data": [{"file": "gemm.csv", "rows": 2}], "devices": ["h100-sxm"], "errors": []}
    save_parameters(Parameters({"gemm": FittedFamily("gemm", data.names, names, model, spread)}, card), folder / "p")
    return folder / "p"


@pytest.fixture
def table(own_folder: Path) -> Path:
    path = own_folder / "in.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def predict(cli, stored: Path, parse_json) -> Callable[..., dict]:
    """Runs the command with --json and returns what it says."""

    def run(*arguments: object, code: int = 0) -> dict:
        result = cli("kernels", *arguments, "--params", stored, "--json")
        assert result.exit_code == code, result.output
        return parse_json(result.stdout)

    return run


def test_the_same_rows_in_the_same_order(predict, table: Path, own_folder: Path) -> None:
    predict(table, "-o", "out.csv")
    before, after = (Path(name).read_text().splitlines() for name in ("in.csv", "out.csv"))
    assert after[0] == f"{HEADER},{','.join(ADDED)}"
    assert [line.startswith(cells) for line, cells in zip(after, before, strict=True)] == [True] * 6
    assert sorted(path.name for path in own_folder.iterdir()) == ["in.csv", "out.csv"]


def test_what_a_row_gets(predict, table: Path) -> None:
    said = predict(table, "-o", "out.parquet")
    told = json.loads(pq.read_schema("out.parquet").metadata[b"jaxperf"])
    assert told == {"version": jaxperf.__version__, "parameters": said["parameters"]}
    small, unknown, transfer, unread, large = pq.read_table("out.parquet").to_pylist()
    # 16 x 4096 x 4096 in bf16 moves 33.8 MB at 3.35 TB/s; 2 x 4096^3 FLOP at 989 TFLOP/s take 139 us, and 3 % more
    # where the last wave of tiles is counted as whole.
    assert small["roofline_us"] == pytest.approx((4096**2 + 2 * 16 * 4096) * 2 / 3.35e12 * 1e6, rel=1e-3)
    assert 1.0 <= large["roofline_us"] / (2 * 4096**3 / 989.5e12 * 1e6) < 1.032
    for row, width in ((small, 0.1), (large, 0.1), (transfer, 0.4)):
        assert row["predicted_us"] > row["roofline_us"] * 0.5
        assert row["upper_us"] / row["predicted_us"] == pytest.approx(math.exp(width), rel=1e-4)
        assert row["lower_us"] / row["predicted_us"] == pytest.approx(math.exp(-width), rel=1e-4)
    assert [row["tier"] for row in (small, transfer, large)] == ["measured", "transfer", "measured"]
    assert large["limiter"] == "compute" and "device never measured" in transfer["reason"]
    for row, reason in ((unknown, "device is unknown"), (unread, "column 'm': '12x' is not a number")):
        assert row["predicted_us"] is None and row["roofline_us"] is None and reason in row["reason"]


def test_the_summary_counts_what_was_written(predict, table: Path) -> None:
    said = predict(table, "-o", "out.parquet")
    rows = pq.read_table("out.parquet").to_pylist()
    assert (said["rows"], said["predicted"]) == (5, 3)
    groups = {(group["family"], group["tier"]): group for group in said["groups"]}
    assert {key: group["rows"] for key, group in groups.items()} == {("gemm", "measured"): 2, ("gemm", "transfer"): 1}
    errors = [abs(rows[i]["predicted_us"] / rows[i]["latency_us"] - 1.0) for i in (0, 4)]
    assert groups["gemm", "measured"]["error"] == pytest.approx(np.mean(errors), rel=1e-6)
    assert groups["gemm", "measured"]["measured"] == 2
    assert groups["gemm", "transfer"]["error"] is None and groups["gemm", "transfer"]["measured"] == 0
    assert sum(entry["rows"] for entry in said["without_prediction"]) == 2
    assert "the row could not be read" in {entry["reason"] for entry in said["without_prediction"]}
    assert said["parameters"]["devices"] == ["h100-sxm"] and said["parameters"]["families"] == ["gemm"]
    places = [sentence.split(": ")[0] for sentence in said["problems"]["first"]]
    assert "in.csv, line 5, column 'm'" in " ".join(places) and "in.csv, line 3, column 'device'" in " ".join(places)


def test_ten_problems_are_shown_and_the_rest_counted(cli, stored: Path, own_folder: Path) -> None:
    lines = [f"a,{KNOWN},{m},4096,4096,14" for m in (16, *("x" * 25))]
    (own_folder / "bad.csv").write_text("\n".join([HEADER, *lines]))
    result = cli("kernels", "bad.csv", "-o", "out.csv", "--params", stored)
    assert result.exit_code == 0
    shown = [line for line in result.stdout.splitlines() if line.startswith("problem: ")]
    assert len(shown) == 11 and shown[0].startswith("problem: bad.csv, line 3, column 'm': ")
    assert shown[-1] == "problem: and 15 more; at most 25 rows in all have one."
    quiet = cli("kernels", "bad.csv", "-o", "out.csv", "--params", stored, "--quiet").stdout
    assert "problem" not in quiet and "1 of 26 rows predicted" in quiet and "written: out.csv" in quiet


def test_a_family_without_parameters_gets_the_roofline(predict, own_folder: Path) -> None:
    (own_folder / "q.csv").write_text("device,dtype,m,k\nh100-sxm,fp8,1024,4096\n")
    said = predict("q.csv", "-o", "q.parquet", "--family", "quantize")
    assert [(group["family"], group["tier"]) for group in said["groups"]] == [("quantize", "roofline")]
    row = pq.read_table("q.parquet").to_pylist()[0]
    assert row["predicted_us"] == row["lower_us"] == row["roofline_us"] < row["upper_us"]


def test_a_format_that_the_device_lacks_is_said(predict, own_folder: Path) -> None:
    shape = "4096,4096,4096\n"
    rows = [f"{device},{dtype},{shape}" for device in ("h100_sxm", "b200") for dtype in ("nvfp4", "fp8")]
    (own_folder / "g.csv").write_text("gpu,dtype,m,n,k\n" + "".join(rows))
    predict("g.csv", "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        said = ["no units for this format: multiplied in another" in row["reason"] for row in csv.DictReader(file)]
    assert said == [True, False, False, False]


def test_a_format_that_nobody_knows_falls_back_aloud(predict, own_folder: Path) -> None:
    rows = [f"h100_sxm,{dtype},4096,4096,4096" for dtype in ("w3a16", "fp8", "")]
    (own_folder / "g.csv").write_text("\n".join(["gpu,dtype,m,n,k", *rows]) + "\n")
    said = predict("g.csv", "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        unknown, known, unstated = csv.DictReader(file)
    assert unknown["predicted_us"] == unstated["predicted_us"] and "number format" not in known["reason"]
    assert all("no known number format (dtype): bf16 assumed" in row["reason"] for row in (unknown, unstated))
    wrong = "column 'dtype': 'w3a16' is not a known number format. Did you mean w4a16"
    assert wrong in " ".join(said["problems"]["first"])


def test_a_table_may_name_devices_of_a_folder(predict, own_folder: Path) -> None:
    """Half the bandwidth doubles the roofline of a memory-bound kernel."""
    folder = own_folder / "mine"
    folder.mkdir()
    value = '{ quantity = "1.675 TB/s", source = "own", confidence = "estimated", note = "half" }'
    source = '[sources.own]\ntitle = "t"\npublisher = "p"\nkind = "estimate"\nyear = 2026\n'
    (folder / "half.toml").write_text(f'name = "half"\nbase = "h100-sxm"\nmemory_bandwidth = {value}\n\n{source}')
    (own_folder / "in.csv").write_text(f"{HEADER}\na,{KNOWN},16,4096,4096,\nb,half,,,,bf16,16,4096,4096,\n")
    assert predict("in.csv", "-o", "out.parquet")["predicted"] == 1
    assert predict("in.csv", "-o", "out.parquet", "--devices-dir", folder)["predicted"] == 2
    shipped, own = pq.read_table("out.parquet").to_pylist()
    assert own["roofline_us"] == pytest.approx(2.0 * shipped["roofline_us"], rel=1e-4)
    assert own["tier"] == "transfer" and "framework never measured" in own["reason"]


def test_a_device_that_a_user_changed_is_not_the_one_that_was_measured(predict, own_folder: Path) -> None:
    folder = own_folder / "mine"
    folder.mkdir()
    value = '{ quantity = "6.7 TB/s", source = "own", confidence = "estimated", note = "twice" }'
    source = '[sources.own]\ntitle = "t"\npublisher = "p"\nkind = "estimate"\nyear = 2026\n'
    for name in ("h100-sxm", "twice"):
        (folder / f"{name}.toml").write_text(
            f'name = "{name}"\nbase = "h100-sxm"\nmemory_bandwidth = {value}\n\n{source}'
        )
    rows = [f"a,{KNOWN.replace('h100_sxm', name)},16,4096,4096," for name in ("h100-sxm", "twice")]
    (own_folder / "in.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    predict("in.csv", "-o", "out.parquet", "--devices-dir", folder)
    own, stranger = pq.read_table("out.parquet").to_pylist()
    assert own["tier"] == "transfer" and "not the device of this name that was measured" in own["reason"]
    assert {name: own[name] for name in ("predicted_us", "lower_us", "upper_us")} == {
        name: stranger[name] for name in ("predicted_us", "lower_us", "upper_us")
    }


def test_nothing_predicted_is_exit_code_3_with_the_reasons_written(predict, own_folder: Path) -> None:
    (own_folder / "in.csv").write_text("device,m,n,k\nno-such-chip,16,16,16\n")
    said = predict("in.csv", "-o", "out.csv", code=3)
    assert said["predicted"] == 0 and said["groups"] == []
    assert "the device is unknown" in Path("out.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("in.csv", "-o", "in.csv"), "in.csv is the input"),
        (("in.csv", "-o", "./in.csv"), "is the input"),
        (("in.csv", "-o", "out.xlsx"), "must end in"),
        (("in.csv", "-o", "nowhere/out.csv"), "does not exist"),
        (("in.csv", "-o", "folder.csv"), "it is a folder"),
        (("in.csv", "-o", "out.csv", "--family", "gem"), "Did you mean gemm"),
        (("in.csv", "-o", "out.csv", "--params", "none"), "none.safetensors"),
        (("in.csv", "-o", "out.csv", "--devices-dir", "none"), "none is not a directory"),
        (("none.csv", "-o", "out.csv"), "No such file"),
        (("done.csv", "-o", "out.csv"), "already has a column 'predicted_us'"),
        (("lacks.csv", "-o", "out.csv"), "'k' is missing"),
        (("nobody.csv", "-o", "out.csv"), "the column 'device' is missing (also called gpu, "),
        (("header.csv", "-o", "out.csv"), "has no rows"),
        (("zero.csv", "-o", "out.csv"), "zero.csv is empty"),
        (("cut.parquet", "-o", "out.csv"), "cut.parquet is truncated"),
    ],
)
def test_refused(refuse, stored: Path, table: Path, own_folder: Path, arguments: tuple[str, ...], said: str) -> None:
    (own_folder / "folder.csv").mkdir()
    (own_folder / "done.csv").write_text("device,m,n,k,predicted_us\nh100-sxm,1,1,1,1\n")
    (own_folder / "lacks.csv").write_text("device,m,n\nh100-sxm,1,1\n")
    (own_folder / "nobody.csv").write_text("devcie,m,n,k\nh100-sxm,1,1,1\n")
    (own_folder / "header.csv").write_text(HEADER + "\n")
    (own_folder / "zero.csv").write_text("")
    (own_folder / "cut.parquet").write_bytes(b"PAR1 cut")
    before = sorted(own_folder.iterdir())
    params = () if "--params" in arguments else ("--params", stored)
    assert said in refuse("kernels", *arguments, *params)
    assert sorted(own_folder.iterdir()) == before and table.read_text() == TABLE


@pytest.mark.parametrize("change", ["truncated", "flipped", "older", "newer", "no json"])
def test_damaged_parameters_say_what_to_do(refuse, stored: Path, table: Path, own_folder: Path, change: str) -> None:
    body = Path(f"{stored}.safetensors").read_bytes()
    card = json.loads(Path(f"{stored}.json").read_text())
    if change == "truncated":
        body = body[: len(body) // 2]
    if change == "flipped":
        body = body[:-5] + bytes([body[-5] ^ 1]) + body[-4:]
    card["schema"] += {"older": -1, "newer": 1}.get(change, 0)
    (own_folder / "p.safetensors").write_bytes(body)
    (own_folder / "p.json").write_text("not JSON" if change == "no json" else json.dumps(card))
    said = refuse("kernels", table, "-o", "out.csv", "--params", "p")
    assert "p." in said and ("newer jaxperf" if change == "newer" else "jaxperf calibrate") in said
    assert not (own_folder / "out.csv").exists()


@pytest.mark.parametrize("where", ["predict", "write"])
def test_ctrl_c_leaves_what_was_there(
    cli, stored: Path, table: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    (own_folder / "out.csv").write_text("older\n")

    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    if where == "predict":
        monkeypatch.setattr(calibration.kernels.predict, "predict", interrupted)
    else:
        monkeypatch.setattr(calibration.datasets.write, "_csv_rows", interrupted)
    assert cli("kernels", table, "-o", "out.csv", "--params", stored).exit_code == 130
    assert (own_folder / "out.csv").read_text() == "older\n"
    assert sorted(path.name for path in own_folder.iterdir()) == ["in.csv", "out.csv"]


@pytest.mark.parametrize("command", ["kernels", "calibrate", "validate"])
def test_help_is_plain_text(cli, command: str) -> None:
    lines = cli(command, "--help").stdout.splitlines()
    assert lines[0].startswith("Usage: ") and max(map(len, lines)) <= 80
    for garbage in ("\x1b", "[[", "list[", "Optional", "PathLike", "typer", "**", "`"):
        assert garbage not in "\n".join(lines)


def test_latent_prefill_behind_a_prefix_computes_and_says_it(cli, own_folder: Path) -> None:
    """64 times the keys for the same queries; fewer keys than queries are no kernel."""
    header = "gpu,framework,version,op,kernel,dtype,kv_dtype,heads,batch,q_len,kv_len"
    rows = [f"h100_sxm,sglang,0.5.10,mla_prefill,flash_attention,bf16,bf16,16,4,1024,{kv}" for kv in (1024, 65536, 512)]
    (own_folder / "mla.csv").write_text("\n".join([header, *rows]) + "\n")
    assert cli("kernels", "mla.csv", "-o", "out.parquet").exit_code == 0
    found = pq.read_table("out.parquet").to_pylist()
    # SGLang multiplies the latents: 2 (576 + 512) FLOP a pair, head and sequence, at 989 TFLOP/s.
    pairs = 1024 * (65536 - 1024) + 1024 * 1025 / 2
    assert found[1]["roofline_us"] == pytest.approx(2 * 1088 * 16 * 4 * pairs / 989e12 * 1e6, rel=0.05)
    assert found[1]["predicted_us"] > found[1]["roofline_us"] > 50 * found[0]["roofline_us"]
    assert "prefix" in found[1]["reason"] and "prefix" not in found[0]["reason"]
    assert found[2]["predicted_us"] is None or math.isnan(found[2]["predicted_us"])


def test_capitals_of_an_operation_change_nothing(cli, own_folder: Path) -> None:
    header = "gpu,framework,version,op,kernel,dtype,kv_dtype,heads,batch,q_len,kv_len"
    for name, op in (("small", "mla_prefill"), ("large", " MLA_Prefill")):
        row = f"h100_sxm,sglang,0.5.10,{op},flash_attention,bf16,bf16,16,4,1024,1024"
        (own_folder / f"{name}.csv").write_text(f"{header}\n{row}\n")
        assert cli("kernels", f"{name}.csv", "-o", f"{name}.parquet").exit_code == 0
    small, large = (pq.read_table(f"{name}.parquet").to_pylist()[0] for name in ("small", "large"))
    assert small["tier"] == "measured"
    assert small == large | {"op": "mla_prefill"}


def test_times_in_the_table_do_not_matter(predict, table: Path, own_folder: Path) -> None:
    """Without a unit, as text, or two that contradict each other: the same predictions."""
    rows = [f"{KNOWN},16,4096,4096", f"{KNOWN},4096,4096,4096"]
    tables = {
        "latency_us": ("5", "x"),
        "latency": ("5", "6"),
        "latency_us,time_ms": ("5,7", "6,"),
        "latency_us,Latency_us": ("5,7", "6,"),
    }
    found = []
    for number, (columns, times) in enumerate(tables.items()):
        lines = [f"{row},{time}" for row, time in zip(rows, times, strict=True)]
        Path(f"{number}.csv").write_text("\n".join([f"{HEADER[5:-11]},{columns}", *lines]) + "\n")
        assert predict(f"{number}.csv", "-o", f"{number}.parquet")["predicted"] == 2
        found.append(pq.read_table(f"{number}.parquet").select(ADDED))
    assert all(each.equals(found[0]) for each in found)


def test_rows_without_a_prediction_say_which_of_the_reasons(predict, own_folder: Path) -> None:
    large = f"{KNOWN},{2**53},{2**53},{2**53}"
    Path("a.csv").write_text(f"{HEADER[5:-11]}\n{large}\n{KNOWN},8,8,8\n")
    (said,) = predict("a.csv", "-o", "a.parquet")["without_prediction"]
    assert said["rows"] == 1 and "too large" in said["reason"]
    Path("b.csv").write_text("gpu,op,dtype,num_gpus,bytes\nh100,all_reduce,bf16,8,1000000\n")
    (said,) = predict("b.csv", "-o", "b.parquet", code=3)["without_prediction"]
    assert "jaxperf collectives" in said["reason"]
