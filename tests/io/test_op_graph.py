"""Operation graphs in NeuSight's form: kernels of its rows, repeated layers, and every mistake with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwspecs.errors import InputError
from jaxperf.io.op_graph import read_op_graph
from jaxperf.models.graph import Graph, Op

HEADER = "Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape"
ROWS = """
input_ids,misc,[],[],[],set(),"{'wte'}",[],"(2, 8)"
wte,EMBEDDING,"[['MEM', ((2, 8), (2, 8, 16))]]",[],[],{'input_ids'},"{'x'}","[(2, 8)]","(2, 8, 16)"
h_0_attn_c_attn,Linear,"[['Linear', (16, 16, 48)]]","[['Linear', (16, 48, 16)], ['Linear', (48, 16, 16)]]",\
"[['VECadd', [1, 768]]]",{'wte'},set(),"[(2, 8, 16)]","(2, 8, 48)"
getitem,getitem,"[['MEM', ((1,), (2, 8, 16))]]",[],[],{'h_0_attn_c_attn'},set(),"[(1,)]","(2, 8, 16)"
size,misc,[],[],[],{'h_0_attn_c_attn'},set(),"[(2, 8, 48)]","(1,)"
transpose,misc,[],[],[],{'getitem'},set(),"[(2, 8, 16)]","(2, 16, 8)"
matmul,BMM,"[['BMM', (2, 8, 16, 8)]]",[],[],"{'getitem', 'transpose'}",set(),"[(2, 8, 16), (2, 16, 8)]","(2, 8, 8)"
truediv,VECdiv,"[['VECdiv', (16, 8)]]",[],[],{'matmul'},set(),"[(2, 8, 8), (1,)]","(2, 8, 8)"
sort_3,misc,[],[],[],{'truediv'},set(),"[(2, 8, 8)]","(2, 8, 8)"
softmax,VECsoftmax,"[['VECsoftmax', (16, 8)]]",[],[],{'sort_3'},set(),"[(2, 8, 8)]","(2, 8, 8)"
contiguous,contiguous,"[['MEM', ((2, 16, 8), (2, 16, 8))]]",[],[],{'transpose'},set(),"[(2, 16, 8)]","(2, 16, 8)"
h_0_drop,misc,[],[],[],{'softmax'},set(),"[(2, 8, 8)]","(2, 8, 8)"
add_1,VECadd,"[['VECadd', (16, 8)]]",[],[],"{'h_0_drop', 'softmax'}",set(),"[(2, 8, 8), (2, 8, 8)]","(2, 8, 8)"
lm_head,Linear,"[['Linear', (16, 8, 100)]]",[],[],{'add_1'},set(),"[(2, 8, 8)]","(2, 8, 100)"
"""
LINEAR = 'a,Linear,"[[\'Linear\', (16, 16, 48)]]",[],[],{},set(),"[(2, 8, 16)]","(2, 8, 48)"'


def written(directory: Path, rows: str = ROWS, header: str = HEADER) -> Path:
    path = directory / "tiny-inf-8-2.csv"
    path.write_text(header + "\n" + rows.strip() + "\n", encoding="utf-8")
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return read_op_graph(written(tmp_path), layers=3)


def only(graph: Graph, name: str) -> Op:
    (op,) = graph[name].forward
    return op


def test_matrix_products_name_their_reduction(graph: Graph):
    assert only(graph, "h_0_attn_c_attn").shape == {"batch": 1, "m": 16, "n": 48, "k": 16}
    assert only(graph, "matmul").shape == {"batch": 2, "m": 8, "n": 8, "k": 16}
    assert [op.shape["k"] for op in graph["h_0_attn_c_attn"].backward] == [48, 16]
    (added,) = graph["h_0_attn_c_attn"].accumulate
    assert (added.family, added.shape["elements_in"]) == ("elementwise", 2 * 768)


def test_a_scalar_operand_is_not_read_as_a_tensor(graph: Graph):
    assert only(graph, "truediv").note == "divu"
    assert only(graph, "truediv").shape["elements_in"] == 129
    assert only(graph, "add_1").shape["elements_in"] == 256


def test_views_launch_nothing_and_copies_do(graph: Graph):
    assert not any(graph[name].forward for name in ("getitem", "size", "transpose", "h_0_drop", "input_ids"))
    assert only(graph, "contiguous").shape == {"bytes_in": 4 * 256, "bytes_out": 4 * 256}
    assert only(graph, "wte").shape == {"rows": 16, "columns": 16}
    assert graph["input_ids"].kind == "input"


def test_unknown_functions_are_movement_and_named(graph: Graph):
    assert graph.unknown == {"sort": 3}


def test_one_layer_stands_for_all(graph: Graph):
    """From the first module of layer 0 over the residual sum after its last."""
    repeated = {node.name for node in graph.nodes if node.repeats == 3}
    assert {node.name for node in graph.nodes} - repeated == {"input_ids", "wte", "lm_head"}


def test_the_number_of_layers_must_be_known(tmp_path: Path):
    with pytest.raises(InputError, match="tiny-inf-8-2.csv holds one layer"):
        read_op_graph(written(tmp_path))


@pytest.mark.parametrize("layer", ["1", "9" * 5000])
def test_a_graph_with_all_layers_is_as_written(tmp_path: Path, layer: str):
    second = LINEAR.replace("a,L", f"h_{layer}_x,L") + "\n"
    graph = read_op_graph(written(tmp_path, ROWS + second))
    assert {node.repeats for node in graph.nodes} == {1.0}


def test_a_fused_node_is_one_kernel(tmp_path: Path):
    row = (
        "add~ln,fused,\"[['VECadd', (16, 8)], ['VECln', (16, 8)]]\",[],[],set(),set(),"
        '"[(2, 8, 8), (2, 8, 8)]","(2, 8, 8)"'
    )
    (op,) = read_op_graph(written(tmp_path, row)).nodes[0].forward
    assert (op.family, op.note, op.shape) == (
        "elementwise",
        "fused",
        {"elements_in": 256, "elements_out": 128, "rows": 16},
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "has no nodes"),
        (LINEAR.replace("{},set()", "{'b'},set()"), "tiny-inf-8-2.csv: .*node 'a' reads 'b', which is absent"),
        (LINEAR + "\n" + LINEAR, "2 nodes named 'a'"),
        (LINEAR.replace("(16, 16, 48)", "(16, 16)"), "line 2: node 'a' is not understood"),
        (LINEAR.replace("(16, 16, 48)", "(16, -16, 48)"), "line 2: node 'a' is not understood .*Column 'k' of gemm"),
        (LINEAR.replace('"(2, 8, 48)"', '"(2, -8, 48)"'), r"node 'a' is not understood \(a shape is \(2, -8, 48\)"),
        (LINEAR.replace('"(2, 8, 48)"', f'"({10**400},)"'), "line 2: node 'a' is not understood"),
        (LINEAR.replace("{},set()", "{7},set()"), "line 2: node 'a' is not understood .*it reads 7"),
        (LINEAR.replace("(16, 16, 48)", "(16, 16, 48"), "line 2, column 'FwOps'.*is not a Python literal"),
        (LINEAR.replace('"(2, 8, 48)"', '"__import__(1)"'), "column 'OutputShape'.*is not a Python literal"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, rows: str, message: str):
    with pytest.raises(InputError, match=message):
        read_op_graph(written(tmp_path, rows))


def test_a_cycle_is_named_with_its_file(tmp_path: Path):
    loop = LINEAR.replace("{},set()", "{'b'},set()") + "\n" + LINEAR.replace("a,L", "b,L").replace("{},", "{'a'},")
    with pytest.raises(InputError, match="tiny-inf-8-2.csv: .* has a cycle: a -> b -> a"):
        read_op_graph(written(tmp_path, loop))


def test_bad_files_are_named(tmp_path: Path):
    with pytest.raises(InputError, match="Cannot read"):
        read_op_graph(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="no column 'BwOps'. Did you mean FwOps"):
        read_op_graph(written(tmp_path, header=HEADER.replace("BwOps", "Backward")))
    path = tmp_path / "noise.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="noise.csv"):
        read_op_graph(path)


def test_published_graphs_count_the_published_flop(data_directory: Path):
    """Forward FLOP of the matrix products: 24 layers of 12 d^2 parameters and attention, GPT-2's head (arXiv:1909.08053
    eq. 3, without recomputation: per token 2 (12 L d^2 + V d) + 4 L s d)."""
    folder = data_directory / "neusight" / "opgraph"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    graph = read_op_graph(folder / "gpt2_large-inf-1024-4.csv", layers=36)
    layers, width, length, vocabulary, tokens = 36, 1280, 1024, 50257, 4 * 1024
    expected = tokens * (2 * (12 * layers * width**2 + vocabulary * width) + 4 * layers * length * width)
    found = sum(
        2.0 * node.repeats * op.count * op.shape["batch"] * op.shape["m"] * op.shape["n"] * op.shape["k"]
        for node in graph.nodes
        for op in node.forward
        if op.family in ("gemm", "bmm")
    )
    assert found == pytest.approx(expected, rel=1e-12)
