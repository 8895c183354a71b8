"""Profiles: kernels by name and time, and shapes only where the profiler recorded them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.datasets import format_of, read_measured, read_nsys, read_torch_averages, read_torch_trace
from calibration.datasets.launches import called
from calibration.datasets.torch_profiler import product_shape
from hwspecs.errors import InputError

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, float, int, int)"

# The layout of `nsys stats --report cuda_gpu_kern_sum --format csv`, with what it prints around the table.
SUMMARY = f"""
NOTICE: Existing SQLite export found: run.sqlite
Processing [run.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
61.2,65295462,9263,7049.1,6911.0,6015,9472,939.2,{GEMM}
38.8,41330000,4000,10332.5,10300.0,9900,12000,120.5,"{NORM}"

Processing [run.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_gpu_mem_time_sum.py]...
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,7500,3,2500.0,2500.0,2000,3000,10.0,[CUDA memcpy HtoD]
"""
# The layout of `nsys stats --report cuda_gpu_trace --format csv`.
TRACE_HEADER = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
)


def launch(start: int, duration: str, name: str, device: str = "NVIDIA A100-SXM4-80GB (0)") -> str:
    return f"{start},{duration},7,64,1,1,128,1,1,168,0.000,0.049,,,,,{device},1,,7,{name}"


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_nsys_summary(tmp_path: Path) -> None:
    times = read_nsys(put(tmp_path / "kern_sum.csv", SUMMARY))
    assert times.kernel.tolist() == [GEMM, NORM]
    assert times.launches.tolist() == [9263, 4000]
    np.testing.assert_allclose(times.total, [65295462e-9, 41330000e-9])
    np.testing.assert_allclose(times.median, [6911e-9, 10300e-9])
    assert (times.device, times.tables, times.problems) == ("", (), ())


def test_nsys_summary_in_another_time_unit(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ms),Instances,Avg (ms),Name\n100.0,3.5,7,0.5,k\n"
    times = read_nsys(put(tmp_path / "t.csv", text))
    assert times.total.tolist() == pytest.approx([3.5e-3])
    assert math.isnan(times.median[0])  # a mean is not a median


def test_nsys_trace_takes_the_median_and_leaves_copies_out(tmp_path: Path) -> None:
    lines = [TRACE_HEADER, launch(0, "5000", "gemm"), launch(9, "7000", "gemm"), launch(20, "90000", "gemm")]
    lines += [launch(30, "1000", f'"{NORM}"'), launch(50, "4", "[CUDA memcpy HtoD]"), launch(60, "soon", "gemm")]
    lines += [launch(70, "nan", "gemm")]
    times = read_nsys(put(tmp_path / "t.csv", "\n".join(lines)))
    assert times.kernel.tolist() == ["gemm", NORM]
    assert times.launches.tolist() == [3, 1]
    np.testing.assert_allclose(times.median, [7e-6, 1e-6])
    assert times.device == "a100-sxm-80gb"
    assert [(problem.row, problem.excluded) for problem in times.problems] == [(5, True), (6, True)]
    assert times.problems[1].message == "a time must be positive and finite, not nan."


def test_nsys_trace_of_unlike_devices_states_none(tmp_path: Path) -> None:
    lines = [TRACE_HEADER, launch(0, "5", "k"), launch(1, "5", "k", "NVIDIA H100 80GB HBM3 (1)")]
    assert read_nsys(put(tmp_path / "t.csv", "\n".join(lines))).device == ""


def test_nsys_refuses_another_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a CSV of nsys"):
        read_nsys(put(tmp_path / "t.csv", "Time (%),Count,Operation\n1,2,3\n"))
    with pytest.raises(InputError, match="names no kernel"):
        read_nsys(put(tmp_path / "u.csv", TRACE_HEADER + "\n"))


def operation(name: str, identity: int, dims: list[Any], kind: str = "c10::BFloat16") -> dict[str, Any]:
    arguments = {"External id": identity, "Input Dims": dims, "Input type": [kind] * len(dims)}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": identity, "dur": 30, "args": arguments}


def kernel(name: str, identity: int, duration: float) -> dict[str, Any]:
    arguments = {"External id": identity, "device": 0, "stream": 7, "grid": [64, 1, 1], "block": [128, 1, 1]}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 9, "dur": duration, "args": arguments}


def trace(path: Path, events: list[dict[str, Any]]) -> Path:
    described = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    text = json.dumps(described).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


EVENTS = [
    operation("aten::linear", 1, [[2, 4, 8], [16, 8], []]),  # calls mm and launches nothing itself
    operation("aten::mm", 2, [[8, 8], [8, 16]]),
    kernel(GEMM, 2, 10.0),
    kernel("splitK_reduce", 2, 2.0),
    operation("aten::mm", 3, [[8, 8], [8, 16]]),
    kernel(GEMM, 3, 20.0),
    operation("aten::bmm", 4, [[6, 3, 4], [6, 4, 5]], "c10::Half"),
    kernel("bmm_kernel", 4, 5.0),
    operation("aten::relu", 5, [[8, 16]]),
    kernel("elementwise_kernel", 5, 1.0),
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1, "dur": 3},
    {"ph": "M", "name": "process_name", "pid": 0},
]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_torch_trace(tmp_path: Path, name: str) -> None:
    times = read_torch_trace(trace(tmp_path / name, EVENTS))
    found = dict(zip(times.kernel.tolist(), zip(times.launches, times.total, times.median, strict=True), strict=True))
    assert found[GEMM] == (2, pytest.approx(30e-6), pytest.approx(15e-6))
    assert set(found) == {GEMM, "splitK_reduce", "bmm_kernel", "elementwise_kernel"}
    assert times.device == "h100-sxm"


def test_torch_trace_gives_shapes_of_products_only(tmp_path: Path) -> None:
    gemm, bmm = read_torch_trace(trace(tmp_path / "t.json", EVENTS)).tables
    assert {name: column.tolist() for name, column in gemm.shape.items()} == {
        "batch": [1],
        "m": [8],
        "n": [16],
        "k": [8],
    }
    assert gemm.latency is not None and gemm.latency.tolist() == pytest.approx([16e-6])  # median of 10 + 2 and 20
    assert (gemm.dtype.tolist(), gemm.device.tolist()) == (["bf16"], ["h100-sxm"])
    assert (bmm.family, bmm.dtype.tolist(), bmm.shape["batch"].tolist()) == ("bmm", ["fp16"], [6])
    assert not called(gemm).any()  # the device's time, in which no host launches anything


@pytest.mark.parametrize("duration", [math.nan, math.inf, -1.0, "10", None])
def test_a_kernel_of_a_trace_without_a_time_is_told_and_in_no_product(tmp_path: Path, duration: Any) -> None:
    events = [*EVENTS, operation("aten::mm", 6, [[8, 8], [8, 16]]), kernel(GEMM, 6, duration), kernel(GEMM, 6, 4.0)]
    times = read_torch_trace(trace(tmp_path / "t.json", events))
    assert times.launches[times.kernel == GEMM].item() == 3
    assert times.tables[0].latency is not None and times.tables[0].latency.tolist() == pytest.approx([16e-6])
    (problem,) = times.problems
    assert (problem.row, problem.column, problem.excluded) == (len(EVENTS) + 1, "dur", True)
    assert f"must be positive and finite, not {duration!r}" in problem.message


def test_a_trace_of_kernels_without_times_is_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.json", [operation("aten::mm", 2, [[8, 8], [8, 16]]), kernel(GEMM, 2, math.nan)])
    with pytest.raises(InputError, match="no kernel event with a duration: event 1: .* finite, not nan"):
        read_torch_trace(path)


def test_torch_trace_without_shapes_has_no_table(tmp_path: Path) -> None:
    bare = [operation("aten::mm", 2, []), kernel(GEMM, 2, 10.0)]
    assert read_torch_trace(trace(tmp_path / "t.json", bare)).tables == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ('{"traceEvents": ' + "[" * 100_000, "not valid JSON"),
        ('{"a": 1}', "no list 'traceEvents'"),
        ('{"traceEvents": [{"cat": "cpu_op"}]}', "no kernel event"),
    ],
)
def test_torch_trace_refuses_what_is_none(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_torch_trace(put(tmp_path / "t.json", text))


@pytest.mark.parametrize(
    ("op", "dims", "shape"),
    [
        ("aten::mm", [[3, 5], [5, 7]], (1, 3, 7, 5)),
        ("aten::addmm", [[7], [3, 5], [5, 7], [], []], (1, 3, 7, 5)),
        ("aten::linear", [[2, 3, 5], [7, 5], [7]], (1, 6, 7, 5)),
        ("aten::bmm", [[2, 3, 5], [2, 5, 7]], (2, 3, 7, 5)),
        ("aten::baddbmm", [[2, 3, 7], [2, 3, 5], [2, 5, 7]], (2, 3, 7, 5)),
        ("aten::mm", [[3, 5], [6, 7]], None),
        ("aten::mm", [[3, 5]], None),
        ("aten::mul", [[3, 5], [3, 5]], None),
    ],
)
def test_shapes_of_torch_products(op: str, dims: list[Any], shape: tuple[int, ...] | None) -> None:
    assert product_shape(op, dims) == shape


# The columns of `key_averages(group_by_input_shape=True).table()`, saved as CSV.
AVERAGES = f"""Name,Self CPU %,Self CPU,CPU total,Self CUDA,Self CUDA %,CUDA total,CUDA time avg,# of Calls,Input Shapes
aten::mm,10.0%,1.500ms,2.0ms,40.000us,80.0%,40.000us,20.000us,2,"[[8, 8], [8, 16]]"
aten::relu,1.0%,10.000us,20.0us,5.000us,10.0%,5.000us,5.000us,1,"[[8, 16]]"
{GEMM},0.0%,0.000us,0.000us,40.000us,80.0%,40.000us,20.000us,2,[]
elementwise_kernel,0.0%,0.000us,0.000us,5.000us,10.0%,5.000us,5.000us,1,[]
cudaLaunchKernel,5.0%,50.000us,50.000us,0.000us,0.0%,0.000us,0.000us,3,[]
"""


@pytest.mark.parametrize(
    "arguments",
    [
        {"External id": 1, "Input Dims": None, "Input type": None},
        {"External id": 1, "Input Dims": [["s0", 256], [256, 512]], "Input type": ["float"]},
        {"External id": 1, "Input Dims": [[0, 256], [256, 512]], "Input type": ["float"]},
        {"External id": [1], "Input Dims": [[128, 256], [256, 512]], "Input type": ["float"]},
    ],
)
def test_torch_trace_passes_over_products_without_sizes(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Empty products launch kernels too, and dynamic shapes have symbols for sizes."""
    odd = {**operation("aten::mm", 1, []), "args": arguments}
    times = read_torch_trace(trace(tmp_path / "t.json", [odd, kernel(GEMM, 1, 10.0)]))
    assert (times.kernel.tolist(), times.tables) == ([GEMM], ())


def test_nsys_trace_with_a_column_of_instances(tmp_path: Path) -> None:
    times = read_nsys(put(tmp_path / "t.csv", "Duration (ns), Instances, Name\n500,1,k\n700,1,k\n"))
    assert (times.kernel.tolist(), times.launches.tolist()) == (["k"], [2])


def test_torch_averages_do_not_count_a_kernel_twice(tmp_path: Path) -> None:
    times = read_torch_averages(put(tmp_path / "t.csv", AVERAGES))
    assert times.kernel.tolist() == [GEMM, "elementwise_kernel"]
    np.testing.assert_allclose(times.total, [40e-6, 5e-6])
    assert np.isnan(times.median).all()
    (gemm,) = times.tables
    assert gemm.latency is not None and gemm.latency.tolist() == pytest.approx([20e-6])
    assert gemm.shape["n"].tolist() == [16]


def test_torch_averages_by_attribute_count_microseconds(tmp_path: Path) -> None:
    text = "key,count,self_cpu_time_total,self_device_time_total\naten::mm,2,150.0,40.0\nk,2,0,40.0\n"
    times = read_torch_averages(put(tmp_path / "t.csv", text))
    assert (times.kernel.tolist(), times.total.tolist()) == (["k"], pytest.approx([40e-6]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "none of the columns Name, key"),
        ("key,count,self_cuda_time_total\nk,1,soon\n", "line 2: 'soon' is not a time"),
        ("key,count,self_cuda_time_total\nk,few,1\n", "line 2: 'few' is not a number of calls"),
    ],
)
def test_torch_averages_refuse_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_torch_averages(put(tmp_path / "t.csv", text))


NCCL = "#   size  count  type  time  algbw  busbw\n8 2 float 1.0 0.0 0.0\n"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.csv", SUMMARY, "nsys"),
        ("a.csv", TRACE_HEADER + "\n", "nsys"),
        ("a.csv", AVERAGES, "torch_averages"),
        ("a.csv", "m,n,k\n1,1,1\n", "table"),
        ("a.json", json.dumps({"traceEvents": EVENTS}), "torch_trace"),
        ("a.json", '[{"m": 1, "n": 1, "k": 1}]', "table"),
        ("slurm-1.out", NCCL, "nccl_log"),
    ],
)
def test_the_format_of_a_file_is_told_by_its_lines(tmp_path: Path, name: str, text: str, kind: str) -> None:
    assert format_of(put(tmp_path / name, text)) == kind


def test_any_format_is_read(tmp_path: Path) -> None:
    assert len(read_measured(put(tmp_path / "a.csv", SUMMARY))) == 2  # type: ignore[arg-type]
    assert read_measured(put(tmp_path / "b.csv", "m,n,k\n1,1,1\n")).tables[0].family == "gemm"  # type: ignore[union-attr]
    with pytest.raises(InputError, match="none of the formats"):
        format_of(put(tmp_path / "notes.txt", "hello"))
    with pytest.raises(InputError, match="Cannot read"):
        format_of(tmp_path / "absent.log")
