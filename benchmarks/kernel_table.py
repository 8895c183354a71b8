"""A table of kernels predicted with the shipped parameters: rows a second of compute, and of the whole command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.table import Row
from benchmarks.timing import medians

ROWS = 1 << 20
TARGET = ">= 5"  # million kernels a second on 2 cores
CORES = 2
SHARE = 16  # NumPy multiplies one row of so many
DEVICES = ("h100-sxm", "a100-sxm-80gb", "l40s", "b200")


def run() -> list[Row]:
    """Compute in this process, with a matrix product of as many FLOP as the networks beside it; then the command."""
    from calibration.datasets import read_table
    from calibration.kernels.parameters import load_parameters
    from calibration.kernels.predict import predict

    parameters = load_parameters()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.parquet")
        pq.write_table(table(), path)
        read = read_table(path)
        layers = parameters.families["gemm"].model.correction.layers
        operands = [np.ones((ROWS // SHARE, weights.shape[0]), np.float32) for weights, _ in layers]

        def product() -> None:
            for operand, (weights, _) in zip(operands, layers, strict=True):
                operand @ np.asarray(weights)

        seconds = medians({"predict": lambda: predict(read, parameters), "product": product}, 5, time.perf_counter)
        busy = processor_time(lambda: predict(read, parameters))
        command = wall_time(
            [sys.executable, "-m", "jaxperf", "kernels", str(path), "-o", str(Path(folder, "out.parquet"))]
        )
    what, ratio = f"{ROWS:,} kernels in memory, ", seconds["predict"] / (SHARE * seconds["product"])
    return [
        Row("kernel_table", what + "processor time spread over 2 cores", CORES * ROWS / busy / 1e6, "M/s", TARGET),
        Row("kernel_table", what + "elapsed", ROWS / seconds["predict"] / 1e6, "M/s"),
        Row(
            "kernel_table",
            "time over that of NumPy's products of the networks",
            ratio,
            "x",
        ),
        Row("kernel_table", f"whole command, {ROWS:,} rows of Parquet to Parquet", command, "s"),
    ]


def table() -> pa.Table:
    """Products of drawn sizes on several devices, in the columns of a user's table."""
    draw = np.random.default_rng(0)
    sizes = {name: draw.integers(1, 16384, ROWS) for name in ("m", "n", "k")}
    device = pa.DictionaryArray.from_arrays(draw.integers(0, len(DEVICES), ROWS).astype(np.int8), list(DEVICES))
    same = {"framework": "vllm", "version": "0.24.0", "kernel": "torch.nn.functional.linear", "dtype": "bf16"}
    return pa.table({"device": device, **{name: pa.repeat(text, ROWS) for name, text in same.items()}, **sizes})


def processor_time(work: Callable[[], object]) -> float:
    """Least processor time of five runs, all threads [s]: what others do on the machine counts little."""
    found = []
    for _ in range(5):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def wall_time(command: list[str]) -> float:
    """Elapsed time of a command, run once before so that its programs are compiled [s]."""
    subprocess.run(command, check=True, capture_output=True)
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start
