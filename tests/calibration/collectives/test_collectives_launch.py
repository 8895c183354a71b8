"""Kernels that a host launches one by one are not over before it has; those of a graph follow the law."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.collectives.adapt import measured_points
from calibration.collectives.launch import launch_of, launch_times
from calibration.collectives.learn import learn, learn_few, predicted
from calibration.collectives.parameters import CollectiveParameters
from calibration.collectives.points import Points
from calibration.collectives.predict import predict_collectives
from calibration.collectives.rows import FAMILY, measured_collectives, read_collectives

LAUNCH = {"a100": 60e-6, "h100": 40e-6}
SIZES = [2.0**power for power in range(10, 27)]
HEAD = "gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,latency_us"


def measured_rows(
    path: Path, kernel: str, devices: tuple[str, ...], ranks: tuple[int, ...], launched: bool
) -> tuple[Points, np.ndarray]:
    """All-reduces at 1.2 times their law, but none before its launch where they are launched one by one."""
    each = [(device, count, size) for device in devices for count in ranks for size in SIZES]
    rows = [
        f"{device},nccl,2.18,{kernel},all_reduce,node,int8,{count},{count},{size:.0f}" for device, count, size in each
    ]
    path.write_text("\n".join([HEAD, *(f"{row},1" for row in rows), ""]))
    law = measured_points(measured_collectives([path]))[0].time
    least = np.array([LAUNCH[device] if launched else 0.0 for device, _, _ in each])
    times = np.maximum(1.2 * law, least) * 1e6
    path.write_text("\n".join([HEAD, *(f"{row},{time:.9g}" for row, time in zip(rows, times, strict=True)), ""]))
    return measured_points(measured_collectives([path]))


@pytest.mark.parametrize("launched", [True, False])
def test_rows_tell_whether_and_how_long_a_host_launches_them(tmp_path: Path, launched: bool) -> None:
    points, measured = measured_rows(tmp_path / "rows.csv", "nccl", ("a100", "h100"), (2, 4, 8), launched)
    times = launch_times(points, measured, np.arange(len(points)))
    expected = [LAUNCH[device] if launched else 0.0 for device in ("a100", "h100")]
    assert [times[name] for name in sorted(times)] == pytest.approx(expected, rel=1e-6)
    assert np.unique(launch_of(times, points)) == pytest.approx(np.unique([*times.values()]))


def test_a_launch_holds_for_numbers_of_ranks_that_were_not_measured(tmp_path: Path) -> None:
    points, measured = measured_rows(tmp_path / "rows.csv", "nccl", ("a100", "h100"), (2, 4, 8), launched=True)
    wanted = points.numbers["ranks"] == 8.0
    told = predicted(learn(points, measured, np.flatnonzero(~wanted)), points.take(np.flatnonzero(wanted)))
    assert np.abs(told / measured[wanted] - 1.0).max() < 0.1


def test_one_number_of_ranks_tells_the_time_of_software_that_is_known(tmp_path: Path) -> None:
    """Of a stack that nobody measured it tells nothing: what is the same for all sizes may be the kernel's own."""
    known, times = measured_rows(tmp_path / "known.csv", "nccl", ("a100",), (2, 4, 8), launched=True)
    before = learn(known, times, np.arange(len(known)))
    for kernel, expected in (("nccl", LAUNCH["h100"]), ("rccl", 0.0)):
        few, measured = measured_rows(tmp_path / "few.csv", kernel, ("h100",), (4,), launched=True)
        after = learn_few(before, few, measured)
        assert launch_of(after.launches, few) == pytest.approx(np.full(len(few), expected), rel=1e-6)
        assert after.launches.items() >= before.launches.items()
        assert np.median(np.abs(predicted(after, few) / measured - 1.0)) < 0.1


def test_what_a_launch_bounds_is_measured_and_said(tmp_path: Path) -> None:
    points, measured = measured_rows(tmp_path / "rows.csv", "nccl", ("a100",), (2, 4, 8), launched=True)
    learned = learn(points, measured, np.arange(len(points)))
    read = read_collectives(tmp_path / "rows.csv")
    found = predict_collectives(read.table(FAMILY), read.rows, CollectiveParameters(learned, {}, (), {}))
    bound = np.asarray(found["limiter"]) == "launch"
    assert set(np.asarray(found["tier"])) == {"measured"}
    assert bound.any() and not bound.all()
    assert np.asarray(found["predicted_us"])[bound] == pytest.approx(LAUNCH["a100"] * 1e6, rel=1e-6)
    assert (np.asarray(found["predicted_us"])[~bound] > LAUNCH["a100"] * 1e6).all()
