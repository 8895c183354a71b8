"""Logs of nccl-tests, in the layouts of its versions, as collectives with out-of-place times."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from calibration.datasets import read_nccl_log
from hwspecs.errors import InputError

START = "# Collective test starting: all_reduce_perf\n"
COUNTS = "# nThread 1 nGpus 1 minBytes 8 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1\n"
RANKS = "#\n# Using devices\n" + "".join(
    f"#  Rank {rank:2} Group  0 Pid {900 + rank:6} on node-{rank // 2} device {rank % 2:2} [0x{rank:02x}] "
    "NVIDIA H100 80GB HBM3\n"
    for rank in range(4)
)
HEADER = """#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
# algbw = size / time; busbw = algbw * 2 (n - 1) / n = 1.5 algbw at n = 4.
SIZES = "    16777216       4194304     float     sum      -1"
ROWS = f"""           8             2     float     sum      -1    22.10    0.00    0.00      0    21.90  0.00  0.00  0
{SIZES}    120.0  139.81  209.72      0    119.0  140.98  211.48    N/A
"""
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 105.3\n#\n"
LOG = (
    START
    + "nccl-tests version 2.16.4 nccl-headers=22605 nccl-library=22605\n"
    + COUNTS
    + RANKS
    + HEADER
    + ROWS
    + FOOTER
)


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_log_with_everything(tmp_path: Path) -> None:
    log = read_nccl_log(put(tmp_path / "run.log", LOG))
    (table,) = log.read.tables
    assert (table.family, log.read.rows, log.read.problems) == ("collective", 2, ())
    assert table.text["op"].tolist() == ["all_reduce"] * 2
    assert table.shape["bytes"].tolist() == [8, 16777216]
    assert (table.shape["num_gpus"].tolist(), table.shape["gpus_per_node"].tolist()) == ([4, 4], [2, 2])
    assert table.latency is not None and table.latency.tolist() == pytest.approx([22.10e-6, 120e-6])
    assert log.in_place.tolist() == pytest.approx([21.9e-6, 119e-6])
    assert log.algorithm_bandwidth.tolist() == pytest.approx([0.0, 139.81e9])
    assert log.bus_bandwidth.tolist() == pytest.approx([0.0, 209.72e9])
    assert table.device.tolist() == ["h100-sxm"] * 2
    assert (table.framework.tolist(), table.version.tolist()) == (["nccl"] * 2, ["2.26.5"] * 2)
    assert table.dtype.tolist() == ["fp32"] * 2


def test_bus_bandwidth_is_what_nccl_tests_defines(tmp_path: Path) -> None:
    log = read_nccl_log(put(tmp_path / "run.log", LOG))
    ranks = log.read.tables[0].shape["num_gpus"]
    expected = log.algorithm_bandwidth * 2.0 * (ranks - 1.0) / ranks
    assert log.bus_bandwidth.tolist() == pytest.approx(expected.tolist(), rel=1e-3)


def test_the_layout_before_roots_and_groups(tmp_path: Path) -> None:
    text = """# nThread 1 nGpus 8 minBytes 1 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 validation: 0
#
# Using devices
#   Rank  0 Pid 112372 on localhost device  0 [0x00] A100-SXM4-40GB
#   Rank  1 Pid 112372 on localhost device  1 [0x00] A100-SXM4-40GB
#
#                                             out-of-place                       in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
hostname:3442:3442 [0] NCCL INFO Launch mode Parallel
     1048576        131072   float    20.00   52.43   26.21    N/A    19.00   55.19   27.59    N/A
"""
    (table,) = read_nccl_log(put(tmp_path / "all_gather_perf_8.log", text)).read.tables
    assert table.text["op"].tolist() == ["all_gather"]  # told by the file's name
    assert (table.shape["num_gpus"].tolist(), table.device.tolist()) == ([2], ["a100-sxm-40gb"])


@pytest.mark.parametrize(
    "tag",
    [
        *("[1,0]<stdout>:", "0: ", " 3: ", "worker-0: ", "worker-0  | ", "[pod/nccl-worker-0/main] "),
        *("2026-05-01T12:34:56.789Z ", "2026-05-01 12:34:56,789 worker-0: ", "[2026-05-01 12:34:56] "),
        *("12:34:56.789 ", "May  1 12:34:56 node-7 nccl[812]: "),
        "2026-05-01T12:34:56.789123456+02:00 [1,0]<stdout>:",
    ],
)
def test_lines_tagged_by_the_launcher(tmp_path: Path, tag: str) -> None:
    tagged = "".join(f"{tag}{line}\n" for line in LOG.splitlines())
    assert len(read_nccl_log(put(tmp_path / "run.log", tagged)).read.tables[0]) == 2


def test_several_benchmarks_in_one_log(tmp_path: Path) -> None:
    second = LOG.replace("all_reduce_perf", "alltoall_perf").replace("sum ", "none")
    third = "$ ./build/sendrecv_perf -b 8 -e 16M -f 2\n" + LOG.removeprefix(START)
    (table,) = read_nccl_log(put(tmp_path / "run.log", LOG + second + third)).read.tables
    assert table.text["op"].tolist() == ["all_reduce"] * 2 + ["all_to_all"] * 2 + ["send_recv"] * 2
    assert table.shape["num_gpus"].tolist() == [4] * 6


def test_results_that_cannot_be_trusted_are_located(tmp_path: Path) -> None:
    after = "119.0  140.98  211.48      0\n"
    bad = (
        f"           0             0     float     sum      -1     0.20    0.00    0.00      0    {after}"
        f"{SIZES}    120.0  139.81  209.72      5    {after}"
        f"{SIZES}    120.0   39.81  209.72      0    {after}"
        f"{SIZES}\n"
        f"{SIZES}    never  139.81  209.72      0    {after}"
    )
    log = read_nccl_log(put(tmp_path / "run.log", LOG + bad))
    assert log.read.rows == 7 and log.read.tables[0].row.tolist() == [0, 1]
    assert [problem.row for problem in log.read.problems] == [2, 3, 4, 5, 6]
    said = ["no measurement", "5 wrong results", "not the 39.81 GB/s", "5 values where the header has 13", "'never'"]
    lines = len(LOG.splitlines())
    for number, (problem, what) in enumerate(zip(log.read.problems, said, strict=True), start=lines + 1):
        assert problem.message.startswith(f"log line {number}: ") and what in problem.message


def test_ranks_without_a_list(tmp_path: Path) -> None:
    single = LOG.replace(RANKS, "").replace("nGpus 1", "nGpus 4")
    table = read_nccl_log(put(tmp_path / "a.log", single)).read.tables[0]
    assert table.shape["num_gpus"].tolist() == [4, 4] and math.isnan(table.shape["gpus_per_node"][0])
    assert table.device.tolist() == ["", ""]
    unknown = put(tmp_path / "b.log", LOG.replace(RANKS, ""))
    with pytest.raises(InputError, match="how many ranks"):
        read_nccl_log(unknown)
    assert read_nccl_log(unknown, num_gpus=16).read.tables[0].shape["num_gpus"].tolist() == [16, 16]


def test_what_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    nameless = put(tmp_path / "run.log", LOG.removeprefix(START))
    with pytest.raises(InputError, match=r"name the file after the test, such as all_reduce_perf.log"):
        read_nccl_log(nameless)
    assert read_nccl_log(nameless, op="all_gather").read.tables[0].text["op"].tolist() == ["all_gather"] * 2
    with pytest.raises(InputError, match="not a log of nccl-tests"):
        read_nccl_log(put(tmp_path / "no.log", "hello\n"))
