"""Rows that follow one of the laws of the network tell which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.collectives.adapt import adapt, measured_points
from calibration.collectives.laws import STATIC_SHARE
from calibration.collectives.learn import Learned, kernel_time
from calibration.collectives.networks import networks, networks_of_few
from calibration.collectives.parameters import load_collectives
from calibration.collectives.points import Network, Points
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


OWN, SHARED, PAIRS = Network(), Network({SYSTEM: 1.0}), Network({SYSTEM: 2.0})


@pytest.mark.parametrize("network", [OWN, SHARED, PAIRS])
@pytest.mark.parametrize("per_node", [(1, 2, 4, 8), (1, 2, 4), (2, 4, 8)])
def test_the_ports_of_a_node_are_told_by_its_rows(tmp_path: Path, network: Network, per_node: tuple[int, ...]) -> None:
    points = two_nodes(tmp_path / "rows.csv", per_node)
    slower = 2.5 * np.exp(0.1 * np.random.default_rng(1).standard_normal(len(points)))
    assert networks(points, slower * points.joined(network).time, np.arange(len(points))) == network


def test_more_pairs_than_were_seen_do_not_fill_a_port(tmp_path: Path) -> None:
    """One and two ranks of a node are one pair, of which no row tells that it does not fill the port."""
    points = two_nodes(tmp_path / "rows.csv", (1, 2))
    assert networks(points, points.joined(PAIRS).time, np.arange(len(points))).port_pairs in ({}, {SYSTEM: 1.0})


def test_ranks_of_a_pair_share_its_switch(tmp_path: Path) -> None:
    """Large buffers: one and two ranks a node, behind one switch, have half of the port, four and eight all of it."""
    points = two_nodes(tmp_path / "rows.csv", (1, 2, 4, 8))
    halved, whole = (points.joined(network).time.reshape(4, -1)[:, -1] for network in (PAIRS, SHARED))
    assert halved / whole == pytest.approx([2.0, 2.0, 1.0, 1.0], rel=0.02)


@pytest.mark.parametrize("network", [OWN, SHARED])
def test_a_few_rows_tell_the_ports_too_and_adapting_keeps_them(tmp_path: Path, network: Network) -> None:
    points = two_nodes(tmp_path / "rows.csv", (1, 2, 4, 8))
    few, shipped = np.arange(0, len(points), 3), load_collectives()
    slower = 1.5 * kernel_time(Learned(shipped.learned.curves, network, {}), points)
    assert networks_of_few(shipped.learned.curves, points.take(few), slower[few]) == network
    (tmp_path / "few.csv").write_text(rows_of((1, 2, 4, 8), slower * 1e6, few))
    adapted = adapt(shipped, measured_collectives([tmp_path / "few.csv"])).learned.network
    assert adapted.port_pairs == {**shipped.learned.network.port_pairs, **network.port_pairs}
    assert adapted.static_routes == shipped.learned.network.static_routes


def test_one_number_of_ranks_a_node_tells_nothing(tmp_path: Path) -> None:
    points = two_nodes(tmp_path / "rows.csv", (8,))
    assert networks(points, points.joined(SHARED).time, np.arange(len(points))) == OWN


def test_rows_that_are_not_to_be_learned_from_have_no_say(tmp_path: Path) -> None:
    points = two_nodes(tmp_path / "rows.csv", (1, 2, 4, 8))
    lone = np.flatnonzero(points.numbers["ranks"] == 4.0)
    assert networks(points, points.joined(SHARED).time, lone) == OWN


def exchanges(path: Path, ranks: tuple[int, ...]) -> Points:
    """Dispatches of nodes of eight; their times are for the tests to say."""
    head = (
        "gpu,framework,version,kernel,op,topology,dtype,num_gpus,gpus_per_node,bytes,tokens,hidden,topk,sms,latency_us"
    )
    lines = [
        f"h100,sglang,1,deepep_normal,moe_a2a_dispatch,cloud,default,{each},8,{2**power * 7168},{2**power},7168,8,24,1"
        for each in ranks
        for power in range(18)
    ]
    path.write_text("\n".join([head, *lines, ""]))
    points, _ = measured_points(measured_collectives([path]))
    return points


@pytest.mark.parametrize(("ranks", "told"), [((16, 32, 64), True), ((16, 64), True), ((16, 32), False), ((64,), False)])
def test_static_routes_are_told_by_rows_on_both_sides_of_a_leaf(
    tmp_path: Path, ranks: tuple[int, ...], told: bool
) -> None:
    points = exchanges(tmp_path / "rows.csv", ranks)
    every, static = np.arange(len(points)), Network(static_routes=("h100-sxm/cloud/network",))
    assert networks(points, points.joined(static).time, every) == (static if told else OWN)
    assert networks(points, points.joined(OWN).time, every) == OWN


def test_static_routes_conflict_beyond_a_leaf_only(tmp_path: Path) -> None:
    points = exchanges(tmp_path / "rows.csv", (32, 64))
    static = points.joined(Network(static_routes=("h100-sxm/cloud/network",)))
    carried = [(each.law.time - each.law.empty).reshape(2, -1)[:, -1] for each in (points, static)]
    assert carried[1] / carried[0] == pytest.approx([1.0, 1.0 / STATIC_SHARE], rel=1e-6)
