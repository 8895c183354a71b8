"""Graphs whose shapes are affine in the batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.scaled_graph import scaled


def graph(batch: float, extra: bool = False) -> Graph:
    nodes = [
        Node("a", forward=(Op("gemm", {"m": 128 * batch, "n": 64, "k": 32}),)),
        Node("b", forward=(Op("bmm", {"batch": 4 * batch, "m": 8, "n": 8, "k": 16}),), before=("a",), repeats=3.0),
    ]
    more = [Node("c", forward=(Op("norm", {"rows": batch, "columns": 8}),))] if extra else []
    return Graph(f"at-{batch:g}", tuple(nodes + more))


@given(st.integers(1, 64), st.integers(65, 512), st.integers(1, 4096))
def test_every_batch_lies_on_the_line(low: int, high: int, batch: int):
    found = scaled(graph(low), graph(high), (low, high)).ops(batch)
    for op, expected in zip(found, (node.forward[0] for node in graph(batch).nodes), strict=True):
        assert op.family == expected.family
        assert op.shape == pytest.approx(expected.shape, rel=1e-12, abs=1e-9)


def test_graphs_that_differ_are_refused():
    with pytest.raises(InputError, match="'at-1' and 'at-2' do not launch the same kernels"):
        scaled(graph(1), graph(2, extra=True), (1, 2))
    with pytest.raises(InputError, match="same batch 2"):
        scaled(graph(2), graph(2), (2, 2))
