"""Backward passes of NeuSight's operation graphs: the kernels of PyTorch's derivatives, and the bytes of whole models.

Expected shapes are counted by hand from tools/autograd/derivatives.yaml and the kernels that it names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxperf.io.op_graph import read_op_graph
from jaxperf.io.workloads import load_workload
from jaxperf.models.graph import Graph, Node

HEADER = "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape"
N = 2 * 8 * 16  # elements of the residual stream
ROWS = """
ids,misc,[],[],[],set(),set(),[],"(2, 8)"
wte,EMBEDDING,"[['MEM', ((2, 8), (2, 8, 16))]]","[['MEM', ((100, 16),)], ['MEM', ((100, 16),)]]",[],{'ids'},set(),\
"[(2, 8)]","(2, 8, 16)"
h_0_ln,VECln,"[['VECln', (16, 16)]]","[['VECmul', (16, 16)]]","[['VECadd', [1, 16]], ['VECadd', [1, 16]]]",{'wte'},\
set(),"[(2, 8, 16)]","(2, 8, 16)"
h_0_fc,Linear,"[['Linear', (16, 16, 48)]]","[['Linear', (16, 48, 16)], ['Linear', (48, 16, 16)]]",\
"[['VECadd', [1, 768]], ['VECadd', [1, 48]]]",{'h_0_ln'},set(),"[(2, 8, 16)]","(2, 8, 48)"
split,misc,[],[],[],{'h_0_fc'},set(),"[(2, 8, 48)]","(1,)"
getitem,getitem,"[['MEM', ((1,), (1,))]]","[['MEM', ((1,),)]]",[],{'split'},set(),"[(1,)]","(2, 8, 16)"
getitem_1,getitem,"[['MEM', ((1,), (1,))]]","[['MEM', ((1,),)]]",[],{'split'},set(),"[(1,)]","(2, 8, 16)"
size,misc,[],[],[],{'getitem'},set(),"[(2, 8, 16)]","(1,)"
truediv,VECdiv,"[['VECdiv', (16, 16)]]","[['VECdiv', (16, 16)], ['VECdiv', (16, 16)]]",[],"{'getitem', 'size'}",set(),\
"[(2, 8, 16), (1,)]","(2, 8, 16)"
where,where,"[['MEM', ((8, 16), (2, 8, 16))]]","[['MEM', ((2, 8, 16),)]]",[],{'truediv'},set(),"[(2, 8, 16)]",\
"(2, 8, 16)"
max_1,misc,[],[],[],{'where'},set(),"[(2, 8, 16), (1,)]","(2, 8, 16)"
softmax,VECsoftmax,"[['VECsoftmax', (16, 16)]]","[['VECmul', (16, 16)], ['VECsoftmax', (16, 16)]]",[],{'max_1'},set(),\
"[(2, 8, 16)]","(2, 8, 16)"
tanh,VECtanh,"[['VECtanh', (16, 16)]]","[['VECmulu', (16, 16)], ['VECaddu', (16, 16)]]",[],{'softmax'},set(),\
"[(2, 8, 16)]","(2, 8, 16)"
mul,VECmul,"[['VECmul', (16, 16)]]","[['VECmul', (16, 16)], ['VECmul', (16, 16)]]",[],"{'tanh', 'getitem_1'}",set(),\
"[(2, 8, 16), (2, 8, 16)]","(2, 8, 16)"
h_0_drop,dropout,"[['MEM', ((2, 8, 16), (2, 8, 16))]]","[['MEM', ((2, 8, 16),)]]",[],{'mul'},set(),"[(2, 8, 16)]",\
"(2, 8, 16)"
add,VECadd,"[['VECadd', (16, 16)]]","[['MEM', ((16, 16),)], ['MEM', ((16, 16),)]]",[],"{'h_0_drop', 'wte'}",set(),\
"[(2, 8, 16), (2, 8, 16)]","(2, 8, 16)"
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    path = tmp_path / "tiny-train-8-2.csv"
    path.write_text(HEADER + "\n" + ROWS.strip() + "\n", encoding="utf-8")
    return read_op_graph(path, layers=3)


def kernels(graph: Graph, name: str, part: str = "backward") -> list[tuple[object, ...]]:
    """Note or family, elements read and written, and count."""
    found = []
    for op in getattr(graph[name], part):
        moved = [op.shape.get(f"elements_{side}", op.shape.get(f"bytes_{side}")) for side in ("in", "out")]
        found.append((op.note or op.family, *moved, op.count))
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # zeros for the table, then the rows of dY read, added to those there and written; the layer's two readers of
        # its input, three times, are summed first
        ("wte", [("sum", 2 * N, N, 3), ("memory", 0, 4 * 1600, 1), ("memory", 8 * N, 4 * N, 1)]),
        ("h_0_ln", [("norm gradient", 2 * N, N, 1), ("norm weight gradient", 2 * N, 32, 1)]),
        ("h_0_fc", [("linear", None, None, 1), ("linear", None, None, 1), ("bias gradient", 3 * N, 48, 1)]),
        ("split", [("memory", 12 * N, 12 * N, 1)]),
        ("getitem", []),
        ("truediv", [("divu", N, N, 1)]),  # the divisor is a number
        ("where", [("where", 1.25 * N, N, 1)]),
        ("max_1", [("memory", 8 * N, 4 * N, 1)]),  # an unknown function: dY and what was read
        ("softmax", [("mul", 2 * N, N, 1), ("softmax gradient", 2 * N, N, 1)]),
        ("tanh", [("tanh", 2 * N, N, 1)]),
        ("mul", [("mul", 2 * N, N, 1), ("mul", 2 * N, N, 1)]),
        ("h_0_drop", [("dropout", 1.25 * N, N, 1)]),
        ("add", []),
    ],
)
def test_kernels_are_those_of_the_derivative(graph: Graph, name: str, expected: list[tuple[object, ...]]):
    assert kernels(graph, name) == expected


def test_dropout_writes_its_mask(graph: Graph):
    assert kernels(graph, "h_0_drop", "forward") == [("dropout", N, 1.25 * N, 1)]


def test_unknown_functions_are_counted_once(graph: Graph):
    assert graph.unknown == {"max": 3}


def moved(node: Node) -> float:
    """Bytes that the backward pass moves beside the products of matrices."""
    found = 0.0
    for op in node.backward:
        elements = op.shape.get("elements_in", 0.0) + op.shape.get("elements_out", 0.0)
        found += op.count * (4.0 * elements + op.shape.get("bytes_in", 0.0) + op.shape.get("bytes_out", 0.0))
    return node.repeats * found


@pytest.mark.parametrize(
    ("name", "model", "layers"),
    [
        ("gpt2_large-train-1024-1", "gpt2_large", 36),
        ("bert_large-train-512-2", "bert_large", 24),
        ("opt_13-train-2048-1", "opt_13", 24),
    ],
)
def test_a_traced_model_moves_what_ours_does(data_directory: Path, name: str, model: str, layers: int):
    """Two ways to one model: rows of a file with one layer, and our recorded operations."""
    path = data_directory / "neusight" / "opgraph" / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    _, mode, seq, batch = name.rsplit("-", 3)
    theirs = sum(moved(node) for node in read_op_graph(path, layers).nodes)
    ours = sum(moved(node) for node in load_workload(model, mode, int(seq), int(batch)).nodes)
    assert theirs == pytest.approx(ours, rel=0.02)
