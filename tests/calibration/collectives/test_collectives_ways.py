"""The way of an all-reduce on a device that was not measured: the one that the fitted times say is the fastest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hwspecs
from calibration.collectives.learn import as_run, kernel_time
from calibration.collectives.parameters import CollectiveParameters
from calibration.collectives.points import points_of
from calibration.collectives.predict import predict_collectives
from calibration.collectives.rows import FAMILY, read_collectives
from calibration.datasets.schema import KernelTable

NODES = (2, 3, 4, 8, 16)
GB = (12, 20, 24, 24.9, 25.1, 26, 28, 30, 50, 100, 400)  # of each rank's port a second
SIZES = [round(2.0**power) for power in np.arange(12.125, 33.0, 0.125)]
PROPORTIONAL = 2.0**0.125  # of two neighbouring sizes
MOST_JUMP = 1.3  # over proportional
COPY = """
base = "a100-sxm-80gb"
name = "{name}"
display_name = "{name}"
aliases = []
[node]
network_bandwidth = {{ quantity = "{rate} GB/s", source = "own", confidence = "estimated", note = "made up" }}
[sources.own]
title = "Made up"
publisher = "us"
kind = "estimate"
year = 2026
"""


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., KernelTable]:
    """All-reduces of every size on some GPUs, numbers of ranks and of a software."""

    def read(gpus: list[str], ranks: tuple[int, ...], software: str = ",,,,") -> KernelTable:
        lines = [f"{gpu},{n},{size},all_reduce,{software}" for gpu in gpus for n in ranks for size in SIZES]
        file = tmp_path / "t.csv"
        file.write_text("\n".join(["gpu,num_gpus,bytes,op,framework,version,kernel,dtype,topology", *lines]) + "\n")
        found = read_collectives(file, [str(tmp_path / "devices")]).table(FAMILY)
        assert found is not None
        return found

    (tmp_path / "devices").mkdir()
    return read


@pytest.mark.parametrize("software", ["", "nccl,2.18,nccl,half,"])
def test_faster_ports_are_not_slower(table, shipped: CollectiveParameters, tmp_path: Path, software: str) -> None:
    """16 MiB took 16 A100 with ports of 28 GB/s 284 us by trees, of 30 GB/s 387 us by rings."""
    gpus = [f"own-{rate}".replace(".", "-") for rate in GB]
    for gpu, rate in zip(gpus, GB, strict=True):
        (tmp_path / "devices" / f"{gpu}.toml").write_text(COPY.format(name=gpu, rate=rate))
    folders = [str(tmp_path / "devices")]
    hwspecs.open_registry(folders)
    rows = table(gpus, tuple(8 * nodes for nodes in NODES), software or ",,,,")
    time = np.asarray(predict_collectives(rows, len(rows), shipped, folders)["predicted_us"])
    time = time.reshape(len(GB), len(NODES), len(SIZES))
    assert (time[1:] <= (1.0 + 1e-6) * time[:-1]).all()
    assert (time[..., 1:] <= MOST_JUMP * PROPORTIONAL * time[..., :-1]).all()


def test_more_bytes_take_the_shipped_a100_no_less_and_not_far_more(table, shipped: CollectiveParameters) -> None:
    """45 MiB took 16 ranks 678 us and 64 MiB 1316, 90 and 128 MiB the same, and 256 MiB 128 ranks less than 64."""
    rows = table(["a100-sxm-80gb"], tuple(8 * nodes for nodes in NODES))
    columns = predict_collectives(rows, len(rows), shipped)
    time = np.asarray(columns["predicted_us"]).reshape(len(NODES), len(SIZES))
    growth = time[:, 1:] / time[:, :-1]
    assert (growth >= 1.0 - 1e-6).all() and (growth <= MOST_JUMP * PROPORTIONAL).all()
    assert (time[2:] >= (1.0 - 1e-6) * time[1:-1]).all()  # two nodes have curves of their own
    assert time[0, SIZES.index(2**27)] > 1.1 * time[0, SIZES.index(round(2**26.5))]


def test_the_way_of_the_least_fitted_time_is_taken_and_named(table, shipped: CollectiveParameters) -> None:
    learned, ranks = shipped.learned, (16, 64)
    rows = table(["a100-sxm-80gb"], ranks, ",,,,intra_node")
    points = points_of(rows).joined(learned.network)
    run = as_run(learned, points)
    time = kernel_time(learned, run)
    assert (time <= (1.0 + 1e-9) * kernel_time(learned, points)).all()
    assert (run.law.kind != points.law.kind).any() and (run.time >= points.time).all()
    assert np.asarray(predict_collectives(rows, len(rows), shipped)["algorithm"])[-1] == "tree-simple"


def test_a_library_that_was_measured_keeps_its_own_choice(table, shipped: CollectiveParameters) -> None:
    points = points_of(table(["a100-sxm-80gb"], (16, 32), "vidur,7d47513,nccl,half,dgx"))
    joined = points.joined(shipped.learned.network)
    assert (as_run(shipped.learned, points).law.kind == joined.law.kind).all()
