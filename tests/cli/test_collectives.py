"""`jaxperf collectives`: the same rows in the same order, what is said about them, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from calibration.collectives.predict import NO_FORMAT, NO_FORMAT_OF_DISPATCH, NUMBERS, OF_A_RANK, TEXTS
from calibration.datasets import read_table

HEADER = "note,gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,tokens,hidden,topk,sms"
TABLE = f"""{HEADER},latency_us
a,h100_sxm,nccl,2.27.3,nccl,all_reduce,intra_node,half,8,8,16777216,0,0,0,0,120
b,B200,nccl,2.29.2,nccl,all_gather,intra_node,half,8,8,1048576,0,0,0,0,
c,H1000,nccl,2.27.3,nccl,all_reduce,intra_node,half,8,8,1024,0,0,0,0,
d,h100_sxm,nccl,2.27.3,nccl,gather,intra_node,half,8,8,1024,0,0,0,0,
"e, last",h200,sglang,0.5.12,deepep_normal,moe_a2a_dispatch,intra_node,default,8,8,7340032,1024,7168,8,20,
f,h100_sxm,nccl,2.27.3,nccl,all_reduce,intra_node,half,many,8,1024,0,0,0,0,
"""
LOG = """# nThread 1 nGpus 8 minBytes 8 maxBytes 16
# nccl-tests version 2.13.9
#  Rank  0 Group  0 Pid 1 on node device  0 [0x00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 1 on node device  1 [0x01] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        4096          1024     float     sum      -1     8.10    0.51    0.51      0     8.00    0.51    0.51      0
"""


pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def predict(answered) -> Callable[..., dict]:
    return partial(answered, "collectives")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_rows_come_back_with_predictions(predict: Callable[..., dict], table: Path, own_folder: Path) -> None:
    said = predict(table, "-o", "out.csv")
    rows = rows_of(own_folder / "out.csv")
    assert list(rows[0]) == [*HEADER.split(","), "latency_us", *NUMBERS, *TEXTS]
    assert [row["note"] for row in rows] == ["a", "b", "c", "d", "e, last", "f"]
    assert [bool(row["predicted_us"]) for row in rows] == [True, True, False, False, True, False]
    first, second = rows[0], rows[1]
    assert 0.5 * 120 < float(first["predicted_us"]) < 2 * 120
    assert float(first["lower_us"]) < float(first["predicted_us"]) < float(first["upper_us"])
    assert (first["tier"], first["algorithm"]) == ("measured", "nvls")
    assert (second["tier"], second["reason"]) == ("transfer", rows[1]["reason"])
    assert "nothing of this device" in second["reason"]
    assert "no specification" in rows[2]["reason"]
    assert "none of all_reduce" in rows[3]["reason"]
    assert rows[4]["algorithm"] == "normal"
    assert rows[5]["reason"].startswith("the row is no collective or could not be read: column 'num_gpus': 'many'")
    assert (said["rows"], said["predicted"]) == (6, 3)
    assert [group["measured"] for group in said["groups"]] == [1, 0]


def test_few_rows_of_a_new_system_move_its_predictions(
    predict: Callable[..., dict], table: Path, own_folder: Path
) -> None:
    header = "gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,latency_us"
    sizes = [2**power for power in range(12, 30, 2)]
    lines = [f"B200,nccl,2.29.2,nccl,all_gather,intra_node,half,8,8,{size},{100 + size / 4e5}" for size in sizes]
    (own_folder / "few.csv").write_text("\n".join([header, *lines]) + "\n")
    said = predict(table, "-o", "out.csv", "--adapt", "few.csv")
    adapted = rows_of(own_folder / "out.csv")[1]
    assert adapted["tier"] == "adapted"
    assert float(adapted["predicted_us"]) == pytest.approx(100 + 1048576 / 4e5, rel=0.1)
    assert said["parameters"]["adapted"] == 1


def test_rows_to_adapt_to_that_cannot_be_used_are_told(predict, table: Path, own_folder: Path) -> None:
    header = "gpu,op,topology,num_gpus,gpus_per_node,bytes,latency_us"
    lines = [f"B200,all_gather,intra_node,8,8,{2**power},{time}" for power, time in ((20, "9"), (21, "-5"), (22, "x"))]
    (own_folder / "few.csv").write_text("\n".join([header, *lines]) + "\n")
    told = " ".join(predict(table, "-o", "out.csv", "--adapt", "few.csv")["problems"]["first"])
    assert "few.csv, line 3, column 'latency_us'" in told and "few.csv, line 4, column 'latency_us'" in told


def test_rows_to_adapt_to_are_read_once(
    predict, table: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_folder / "few.csv").write_text("gpu,op,num_gpus,bytes,latency_us\nB200,all_gather,8,1048576,9\n")
    opened: list[str] = []

    def counted(path, *more, **named):
        opened.append(Path(path).name)
        return read_table(path, *more, **named)

    monkeypatch.setattr("calibration.collectives.rows.read_table", counted)
    predict(table, "-o", "out.csv", "--adapt", "few.csv")
    assert sorted(opened) == ["few.csv", "in.csv"]


def test_rows_say_what_they_rest_on_or_lack(predict, own_folder: Path) -> None:
    rows = (
        "all_reduce,8,3,1024,,,",
        "all_reduce,8,4,1024,,,",
        "moe_a2a_dispatch,8,8,1024,,,",
        "all_reduce,x,8,1024,,,",
    )
    lines = [f"h100-sxm,{row}" for row in rows]
    header = "gpu,op,num_gpus,gpus_per_node,bytes,tokens,hidden,topk"
    (own_folder / "in.csv").write_text("\n".join([header, *lines]) + "\n")
    predict("in.csv", "-o", "out.csv")
    uneven, even, exchange, unread = (row["reason"] for row in rows_of(own_folder / "out.csv"))
    assert "no multiple of gpus_per_node" in uneven and "no multiple" not in even
    assert "of an exchange of tokens also tokens, hidden and topk, must be above zero" in exchange
    assert "could not be read: column 'num_gpus': 'x' is not a number" in unread


def test_what_a_row_is_taken_for_is_told(predict, own_folder: Path) -> None:
    """A kernel that nobody knows runs as an engine's own; a node larger than the device's is joined by its links."""
    rows = ("bananas,8", "vllm_custom_graph,8", "nccl,8", ",8", "nccl,16")
    lines = [
        f"h100-sxm,all_reduce,16,{per_node},1024,{kernel}" for kernel, per_node in (row.split(",") for row in rows)
    ]
    (own_folder / "in.csv").write_text("\n".join(["gpu,op,num_gpus,gpus_per_node,bytes,kernel", *lines]) + "\n")
    predict("in.csv", "-o", "out.csv")
    told = [row["reason"] for row in rows_of(own_folder / "out.csv")]
    assert ["no kernel of this name was measured" in reason for reason in told] == [True, False, False, False, False]
    assert ["more than a node of the device has" in reason for reason in told] == [False, False, False, False, True]


def test_bytes_that_are_those_of_one_rank_are_told(predict, own_folder: Path) -> None:
    lines = [f"b60,8,65536,half,{row}" for row in ("all_gather,oneccl", "all_reduce,oneccl", "all_gather,nccl")]
    (own_folder / "in.csv").write_text("\n".join(["gpu,num_gpus,bytes,dtype,op,kernel", *lines]) + "\n")
    predict("in.csv", "-o", "out.csv")
    assert [OF_A_RANK in row["reason"] for row in rows_of(own_folder / "out.csv")] == [True, False, False]


def test_a_format_nobody_knows_and_too_many_experts_are_told_of_their_rows(predict, own_folder: Path) -> None:
    rows = ("all_reduce,float99,8,,", "all_reduce,half,8,,", "moe_a2a_combine,default,8,16,8", "moe_a2a_combine,,8,8,8")
    lines = [f"h100-sxm,8,7168,1,7168,{row}" for row in rows]
    head = "gpu,num_gpus,bytes,tokens,hidden,op,dtype,gpus_per_node,topk,experts"
    (own_folder / "in.csv").write_text("\n".join([head, *lines]) + "\n")
    said = predict("in.csv", "-o", "out.csv")
    unknown, known, many, unstated = rows_of(own_folder / "out.csv")
    assert [NO_FORMAT in row["reason"] for row in (unknown, known, many, unstated)] == [True, False, False, True]
    assert "(dtype)" in unknown["reason"]
    assert (many["predicted_us"], many["reason"]) == ("", "topk is above experts")
    assert unknown["predicted_us"] and unstated["predicted_us"]
    assert "'float99' is not a known number format" in " ".join(said["problems"]["first"])


def test_the_format_that_a_dispatch_is_taken_in_is_told(predict, own_folder: Path) -> None:
    rows = ("deepep_normal,", "deepep_normal,default", "deepep_normal,bf16", "trtllm_deepep_ht,")
    lines = [f"h100-sxm,moe_a2a_dispatch,16,8,1,4096,7168,8,{row}" for row in rows]
    head = "gpu,op,num_gpus,gpus_per_node,bytes,tokens,hidden,topk,kernel,dtype"
    (own_folder / "in.csv").write_text("\n".join([head, *lines]) + "\n")
    predict("in.csv", "-o", "out.csv")
    blank, default, stated, other = rows_of(own_folder / "out.csv")
    assert NO_FORMAT_OF_DISPATCH in blank["reason"] and NO_FORMAT in other["reason"]
    assert not any("number format" in row["reason"] for row in (default, stated))
    assert float(stated["predicted_us"]) > 1.3 * float(default["predicted_us"])


def test_links_that_a_user_changed_are_not_those_that_were_measured(predict, own_folder: Path) -> None:
    (own_folder / "mine").mkdir()
    value = '{ quantity = "900 GB/s", source = "own", confidence = "estimated", note = "twice" }'
    source = '[sources.own]\ntitle = "t"\npublisher = "p"\nkind = "estimate"\nyear = 2026\n'
    (own_folder / "mine" / "h100-sxm.toml").write_text(
        f'name = "h100-sxm"\nbase = "h100-sxm"\n[node]\nlink_bandwidth = {value}\n\n{source}'
    )
    (own_folder / "in.csv").write_text("gpu,op,num_gpus,bytes\nh100-sxm,all_reduce,8,1e9\n")
    times = []
    for more in ((), ("--devices-dir", "mine")):
        predict("in.csv", "-o", "out.csv", *more)
        (row,) = rows_of(own_folder / "out.csv")
        times.append((row["tier"], float(row["predicted_us"])))
    assert times[0][0] != "transfer" == times[1][0] and times[1][1] < 0.8 * times[0][1]


def test_a_log_of_nccl_tests_is_a_table(predict: Callable[..., dict], own_folder: Path) -> None:
    (own_folder / "all_reduce_perf.log").write_text(LOG)
    said = predict("all_reduce_perf.log", "-o", "out.json")
    (row,) = json.loads((own_folder / "out.json").read_text())["rows"]
    assert (row["gpu"], row["op"], row["num_gpus"], row["bytes"]) == ("h100-sxm", "all_reduce", 2, 4096)
    assert row["latency_us"] == pytest.approx(8.1)
    assert 2.0 < row["predicted_us"] < 40.0
    assert said["predicted"] == 1


def test_cycles_of_astra_sim(predict: Callable[..., dict], own_folder: Path) -> None:
    # The survey's case: 1 MiB over 8 devices on a switch of 400 GiB/s takes 57,426 cycles.
    (own_folder / "cases.csv").write_text(
        "backend,collective,topology,npus_per_dim,bw_GiBps,lat_ns,size_bytes,algorithm,endpoint_delay,active_chunks,"
        "splits,local_mem_bw,npus\n"
        "Aware,all_reduce,Switch,8,400.0,936.25,1048576,ring,10,2,4,3350,8\n"
        "Aware,all_reduce,Cube,8,400.0,936.25,1048576,ring,10,2,4,3350,\n"
        "Aware,all_reduce,Switch,8,400.0,936.25,1048576,ring,10,2,4,3350,16\n"
    )
    said = predict("cases.csv", "-o", "out.csv", "--backend", "astra")
    known, unknown, other = rows_of(own_folder / "out.csv")
    assert other["reason"] == "npus is 16, but npus_per_dim makes 8"
    assert known["predicted_cycles"] == "57426"
    assert unknown["predicted_cycles"] == ""
    assert "Cube" in unknown["reason"]
    assert (said["rows"], said["predicted"], said["notes"]) == (3, 1, [])


def test_what_a_case_of_astra_sim_leaves_open_is_said(predict: Callable[..., dict], own_folder: Path) -> None:
    (own_folder / "cases.csv").write_text(
        "backend,collective,topology,npus_per_dim,bw_GiBps,lat_ns,size_bytes,algorithm,endpoint_delay,splits\n"
        "Aware,all_reduce,Switch,8,400.0,936.25,1048576,ring,,4\nAware,all_reduce,Switch,8,400,936,1024,ring,10,4\n"
    )
    said = predict("cases.csv", "-o", "out.csv", "--backend", "astra")["notes"]
    assert [note["rows"] for note in said] == [2, 2, 1]
    assert said[0]["reason"] == "active_chunks is not stated: 1, as in the simulator's example"


def test_nothing_feasible_ends_with_three(cli, own_folder: Path) -> None:
    (own_folder / "in.csv").write_text("gpu,op,num_gpus,bytes\nH1000,all_reduce,8,1024\n")
    result = cli("collectives", "in.csv", "-o", "out.csv")
    assert result.exit_code == 3
    assert (own_folder / "out.csv").exists()
    assert "no prediction (1): the device is unknown" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["in.csv", "-o", "in.csv"], "is the input"),
        (["in.csv", "-o", "out.txt"], "must be one of|must end in"),
        (["gone.csv", "-o", "out.csv"], "gone.csv"),
        (["in.csv", "-o", "out.csv", "--backend", "astro"], "'astro' is not one of fitted, astra.*astra"),
        (["in.csv", "-o", "out.csv", "--backend", "astra"], "backend, collective"),
        (["heads.csv", "-o", "out.csv", "--backend", "astra"], "heads.csv has no rows"),
        (["in.csv", "-o", "out.csv", "--backend", "astra", "--adapt", "in.csv"], "fits nothing"),
        (["in.csv", "-o", "out.csv", "--params", "none"], "Cannot read parameters"),
        (["in.csv", "-o", "out.csv", "--adapt", "empty.csv"], "no measured times"),
    ],
)
def test_mistakes_are_one_sentence(
    refuse: Callable[..., str], table: Path, own_folder: Path, arguments: list[str], sentence: str
) -> None:
    (own_folder / "empty.csv").write_text("gpu,op,num_gpus,bytes\nh100,all_reduce,8,1024\n")
    (own_folder / "heads.csv").write_text(
        "backend,collective,topology,npus_per_dim,bw_GiBps,lat_ns,size_bytes,algorithm\n"
    )
    said = refuse("collectives", *arguments)
    assert re.search(sentence, said), said
    assert said.count("\n") == 1
    assert not (own_folder / "out.csv").exists()


def test_a_table_that_is_predicted_already_is_refused(cli, refuse: Callable[..., str], table: Path) -> None:
    assert cli("collectives", table, "-o", "out.csv").exit_code == 0
    assert "already has a column 'predicted_us'" in refuse("collectives", "out.csv", "-o", "more.csv")


def test_validate_prints_every_split(cli, own_folder: Path) -> None:
    lines = ["gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,latency_us"]
    for gpu, rate in (("a100", 200e3), ("h100", 330e3)):
        for ranks in (2, 4, 8):
            for size in (2**power for power in range(10, 27)):
                time = 15 + 2 * (ranks - 1) / ranks * size / rate
                lines.append(f"{gpu},nccl,2.27,nccl,all_reduce,node,int8,{ranks},{ranks},{size},{time}")
    (own_folder / "rows.csv").write_text("\n".join(lines) + "\n")
    result = cli("validate", "collectives", "rows.csv", "-o", "errors.csv")
    assert result.exit_code == 0, result.output
    for title in ("Unseen sizes", "Unseen rank counts", "Unseen device", "New system"):
        assert title in result.stdout
    rows = rows_of(own_folder / "errors.csv")
    assert {row["split"] for row in rows} == {"sizes", "ranks", "device", "24 rows"}
    assert all(float(row["ours_mean"]) < 0.2 for row in rows if row["split"] in ("sizes", "24 rows"))


def test_validate_without_data_says_what_to_give(
    refuse: Callable[..., str], own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXPERF_DATA", str(own_folder))
    assert "No measured data" in refuse("validate", "collectives")


def test_networks_in_words(cli, own_folder: Path) -> None:
    (own_folder / "nets.csv").write_text(
        "op,bytes,network,id\nall_reduce,1e9,tpu-v4 4x4x8,7\nall_reduce,1e9,tpu-v9 4x4,8\n"
    )
    result = cli("collectives", "nets.csv", "-o", "out.csv", "--backend", "topology")
    assert result.exit_code == 0 and "1 of 2 rows predicted" in result.stdout and "fitted to nothing" in result.stdout
    with (own_folder / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["id"], first["ranks"], second["predicted_us"]) == ("7", "128", "")
