"""Tables of collectives on networks in words, against the functions that price them and sums by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hwspecs import load_network
from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.network.topology import torus_slice
from jaxperf.network.topology_collectives import bisection_all_to_all, rotated_all_reduce
from jaxperf.network.topology_table import predict_topology

GB = 1e9
TREE = "fat-tree 8/4 50GB/s 5us 2:1"


def answers(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    found = predict_topology({name: [row.get(name) for row in rows] for name in names})
    return [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]


def on(network: str, op: str = "all_reduce", size: float = GB, **more: str) -> dict[str, Any]:
    return {"op": op, "bytes": size, "network": network, **more}


def test_slices_of_pods_are_priced_as_from_python() -> None:
    chips = torus_slice(load_network("tpu-v4"), (4, 4, 8), as_float(1e-6))
    reduced, exchanged, twisted = answers(
        on("tpu-v4 4x4x8"), on("tpu-v4 4X4X8 1us", "all-to-all"), on("tpu-v4 4x4x8 twisted", "all_to_all")
    )
    assert reduced["predicted_us"] == pytest.approx(1e6 * float(rotated_all_reduce(chips, as_float(GB))), rel=1e-6)
    assert (reduced["algorithm"], reduced["ranks"]) == ("all axes at once", 128)
    assert reduced["reason"] == "closed form, fitted to nothing; 1 us a hop is assumed"
    assert exchanged["predicted_us"] == pytest.approx(1e6 * float(bisection_all_to_all(chips, as_float(GB))), rel=1e-6)
    assert exchanged["predicted_us"] / twisted["predicted_us"] == pytest.approx(1.75, rel=0.01)


def test_axes_are_priced_by_hand() -> None:
    """Eight ranks behind a switch, then 16: 2 x 7/8 S / 450 GB/s, 2 x 15/16 S/8 / 50 GB/s and two steps each."""
    (row,) = answers(on("switch 8 450GB/s 1us; switch 16 50GB/s 5us"))
    by_hand = 2 * (7 / 8 * GB / 450e9 + 15 / 16 * GB / 8 / 50e9 + 1e-6 + 5e-6)
    assert row["predicted_us"] == pytest.approx(1e6 * by_hand, rel=1e-6)
    assert (row["algorithm"], row["slowdown"], row["ranks"]) == ("axis after axis", 1.0, 128)


def test_rows_together_share_the_links_of_a_tree() -> None:
    """Two all-to-alls over both leaves, whose uplinks are half as wide as their ports: 4/7 of a node's bytes cross."""
    together = [on(TREE, "all_to_all", together="a")] * 2
    alone, one, other = answers(on(TREE, "all_to_all"), *together)
    crossing = 4 * (4 / 7) * (7 / 8 * GB) / (4 * 50e9 / 2)
    for time in (alone["predicted_us"], alone["alone_us"], one["alone_us"]):
        assert time == pytest.approx(1e6 * (crossing + 5e-6), rel=1e-6)
    assert one["predicted_us"] == other["predicted_us"] == pytest.approx(1e6 * (2 * crossing + 5e-6), rel=1e-6)
    assert one["slowdown"] == pytest.approx(2.0, rel=1e-3)


def test_nodes_of_a_tree_may_be_named() -> None:
    ring, incast = answers(on(TREE, nodes="0-2"), on(TREE, "incast", nodes="1-3 > 0"))
    assert ring["predicted_us"] == pytest.approx(1e6 * (2 * 2 / 3 * GB / 50e9 + 4 * 5e-6), rel=1e-6)
    assert incast["predicted_us"] == pytest.approx(1e6 * (3 * GB / 50e9 + 5e-6), rel=1e-6)
    assert (ring["ranks"], incast["ranks"]) == (3, 4)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (on("tpu-v9 4x4"), "Did you mean"),
        (on("tpu-v4 4x4"), "has 3 axes"),
        (on("ndr 4x4"), "is not a torus"),
        (on("rung 4 1GB/s 1us; ring 4 1GB/s 1us"), "Did you mean ring"),
        (on("ring 4 1GB/s"), "is not of the form ring 16 45GB/s 1us"),
        (on("ring 4 1GB/s 1us 2:1"), "of a switch with 2:1"),
        (on("ring 0 1GB/s 1us"), "whole number from 1"),
        (on("ring 4 0GB/s 1us"), "must be finite and greater than zero"),
        (on("ring 4 1GBs 1us"), "not a known unit"),
        (on("switch 4 1GB/s 1us 0.5:1"), "1:1 or more"),
        (on("ring 4 1GB/s 1us;"), "without a word"),
        (on(""), "without a word"),
        (on("tpu-v4 4x4x8 twisted"), "its all_to_all is"),
        (on("tpu-v4 4x4x8", "broadcast"), "is not one of all_reduce"),
        (on("tpu-v4 4x4x8", "incast"), "on a fat-tree only"),
        (on("tpu-v4 4x4x8", together="a"), "only rows on a fat-tree share links"),
        (on("tpu-v4 4x4x8", size=math.nan), "bytes: nan must be"),
        (on(TREE, nodes="0-8"), "none of the nodes 0 to 7"),
        (on(TREE, nodes="0,x"), "not of the form 0-3,6"),
        (on(TREE, nodes="0,0"), "names a node twice"),
        (on(TREE, nodes="3"), "two nodes at least"),
        (on(TREE, nodes="1>0"), "which only an incast has"),
        (on(TREE, "incast"), "who sends to whom"),
        (on("fat-tree 8 50GB/s 5us"), "is not of the form fat-tree 8/4"),
    ],
)
def test_what_is_no_network_is_a_reason(row: dict[str, Any], told: str) -> None:
    good, found = answers(on("ring 4 1GB/s 1us"), row)
    assert told in found["reason"] and math.isnan(found["predicted_us"])
    assert good["predicted_us"] > 0.0


def test_rows_together_stand_or_fall_together() -> None:
    found = answers(on(TREE, together="a"), on(TREE, nodes="9-10", together="a"), on(TREE))
    assert "another row of 'a' has no prediction" in found[0]["reason"] and "none of the nodes" in found[1]["reason"]
    assert found[2]["predicted_us"] > 0.0
    apart = answers(on(TREE, together="a"), on("fat-tree 4/2 50GB/s 5us", together="a"))
    assert all("are on different networks" in row["reason"] for row in apart)


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(InputError, match="no column network"):
        predict_topology({"op": ["all_reduce"], "bytes": [1.0], "netwrok": ["ring"]})
