"""Workload graphs: what is refused, and the order of nodes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets.schema import FAMILIES
from hwspecs.errors import InputError
from jaxperf.models.graph import OPS, Graph, Node, Op

GEMM = Op("gemm", {"m": 2, "n": 3, "k": 4})


def test_columns_are_those_of_measured_kernels():
    own = {family: dict(columns) for family, columns in OPS.items() if family not in ("memory", "none")}
    assert {family: list(columns) for family, columns in own.items()} == {
        family: [column.name for column in FAMILIES[family]] for family in own
    }
    defaults = {(family, c.name): c.default for family in own for c in FAMILIES[family]}
    for family, columns in own.items():
        for name, default in columns.items():
            assert defaults[family, name] in (default, None), (family, name)


def test_an_operation_fills_defaults():
    assert GEMM.shape == {"batch": 1.0, "m": 2.0, "n": 3.0, "k": 4.0}
    assert GEMM.count == 1.0
    assert pickle.loads(pickle.dumps(GEMM)) == GEMM


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gem", {}), "Unknown family 'gem'.*Did you mean gemm"),
        (("gemm", {"m": 1, "n": 1}), "Column 'k' of gemm is missing"),
        (("gemm", {"m": 1, "n": 1, "k": -1}), "Column 'k' of gemm is -1"),
        (("gemm", {"m": 1, "n": 1, "k": float("nan")}), "Column 'k' of gemm is nan"),
        (("gemm", {"m": 1, "n": 1, "k": 1, "rows": 1}), "gemm has no column 'rows'; its columns: batch, m, n, k"),
        (("norm", {"rows": 1, "columns": "4"}), "Column 'columns' of norm is '4'"),
        (("none", {}, "fp32", float("inf")), "The count of none is inf"),
    ],
)
def test_bad_operations_are_refused(arguments: tuple[Any, ...], message: str):
    with pytest.raises(InputError, match=message):
        Op(*arguments)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "Graph 'g' has no nodes"),
        ((Node("a"), Node("a")), "Graph 'g' has 2 nodes named 'a'"),
        ((Node("first"), Node("b", before=("fist",))), "node 'b' reads 'fist', which is absent. Did you mean first"),
        (
            (Node("a", before=("c",)), Node("b", before=("a",)), Node("c", before=("b",)), Node("d", before=("c",))),
            "Graph 'g' has a cycle: a -> b -> c -> a",
        ),
        ((Node("a", before=("a",)),), "Graph 'g' has a cycle: a -> a"),
    ],
)
def test_bad_graphs_are_refused(nodes: tuple[Node, ...], message: str):
    with pytest.raises(InputError, match=message):
        Graph("g", nodes)


def test_bad_node_is_refused():
    with pytest.raises(InputError, match="Node 'a': repeats is -1"):
        Node("a", repeats=-1)


@given(st.data())
def test_every_node_follows_what_it_reads(data: st.DataObject):
    count = data.draw(st.integers(1, 12))
    names = [f"n{index}" for index in range(count)]
    nodes = []
    for index, name in enumerate(names):
        before = data.draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
        nodes.append(Node(name, before=tuple(before)))
    graph = Graph("g", tuple(data.draw(st.permutations(nodes))))
    assert sorted(node.name for node in graph.nodes) == sorted(names)
    assert all(graph.place[other] < graph.place[node.name] for node in graph.nodes for other in node.before)
    assert graph[names[0]].name == names[0]


def test_an_order_that_is_one_already_is_kept():
    nodes = tuple(Node(name) for name in "cab")
    assert Graph("g", nodes).nodes == nodes


def test_unknown_operations_are_counted():
    moved = {"bytes_in": 4.0, "bytes_out": 4.0}
    nodes = (
        Node("a", forward=(Op("memory", moved, note="sort"), Op("memory", moved)), repeats=3.0),
        Node("b", backward=(Op("memory", moved, count=2.0, note="sort"),)),
    )
    assert Graph("g", nodes).unknown == {"sort": 5}


def test_an_absent_node_is_named():
    with pytest.raises(InputError, match="has no node 'ab'. Did you mean abc"):
        Graph("g", (Node("abc"),))["ab"]
