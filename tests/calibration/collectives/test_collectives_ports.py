"""Rows that follow one of the two laws of the network tell which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.collectives.adapt import adapt, measured_points
from calibration.collectives.learn import Learned, kernel_time
from calibration.collectives.parameters import load_collectives
from calibration.collectives.points import Points
from calibration.collectives.ports import ports_of_few, shared_ports
from calibration.collectives.rows import measured_collectives

SYSTEM = "a100-sxm-80gb/cloud/network"
POWERS = range(12, 28)


def two_nodes(path: Path, per_node: tuple[int, ...]) -> Points:
    """All-reduces of two nodes; their times are for the tests to say."""
    rows = np.arange(len(POWERS) * len(per_node))
    path.write_text(rows_of(per_node, np.ones(len(rows)), rows))
    points, _ = measured_points(measured_collectives([path]))
    return points


def rows_of(per_node: tuple[int, ...], microseconds: np.ndarray, rows: np.ndarray) -> str:
    """Some of their rows as a table."""
    lines = [
        f"a100,nccl,2.18,nccl,all_reduce,cloud,half,{2 * ranks},{ranks},{2**power}"
        for ranks in per_node
        for power in POWERS
    ]
    head = "gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,latency_us"
    return "\n".join([head, *(f"{lines[row]},{microseconds[row]}" for row in rows), ""])


@pytest.mark.parametrize("shared", [(), (SYSTEM,)])
@pytest.mark.parametrize("per_node", [(1, 2, 4, 8), (1, 2, 4), (2, 4, 8)])
def test_the_ports_of_a_node_are_told_by_its_rows(
    tmp_path: Path, shared: tuple[str, ...], per_node: tuple[int, ...]
) -> None:
    points = two_nodes(tmp_path / "rows.csv", per_node)
    slower = 2.5 * np.exp(0.1 * np.random.default_rng(1).standard_normal(len(points)))
    assert shared_ports(points, slower * points.joined(shared).time, np.arange(len(points))) == shared


@pytest.mark.parametrize("shared", [(), (SYSTEM,)])
def test_a_few_rows_tell_the_ports_too_and_adapting_keeps_them(tmp_path: Path, shared: tuple[str, ...]) -> None:
    points = two_nodes(tmp_path / "rows.csv", (1, 2, 4, 8))
    few, shipped = np.arange(0, len(points), 3), load_collectives()
    slower = 1.5 * kernel_time(Learned(shipped.learned.curves, shared, {}), points)
    assert ports_of_few(shipped.learned.curves, points.take(few), slower[few]) == shared
    (tmp_path / "few.csv").write_text(rows_of((1, 2, 4, 8), slower * 1e6, few))
    adapted = adapt(shipped, measured_collectives([tmp_path / "few.csv"]))
    assert set(adapted.learned.shared_ports) == {*shipped.learned.shared_ports, *shared}


def test_one_number_of_ranks_a_node_tells_nothing(tmp_path: Path) -> None:
    points = two_nodes(tmp_path / "rows.csv", (8,))
    assert shared_ports(points, points.joined((SYSTEM,)).time, np.arange(len(points))) == ()


def test_rows_that_are_not_to_be_learned_from_have_no_say(tmp_path: Path) -> None:
    points = two_nodes(tmp_path / "rows.csv", (1, 2, 4, 8))
    lone = np.flatnonzero(points.numbers["ranks"] == 4.0)
    assert shared_ports(points, points.joined((SYSTEM,)).time, lone) == ()
