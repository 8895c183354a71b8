"""What holds of every graph: valid operations, shapes that grow with the batch by a constant step, gradients."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.datasets.schema import FAMILIES
from jaxperf.io.huggingface import load_model
from jaxperf.io.workloads import load_workload
from jaxperf.models.graph import Graph
from jaxperf.models.parameters import parameter_count
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.counts import graph_bytes, graph_flops, graph_kernels, parameter_bytes
from jaxperf.models.workloads.operations import add, embedding, linear, matmul, split, view
from jaxperf.models.workloads.tape import Tape

TEXT = ["bert-base", "gpt2", "opt-125m", "t5-small", "switch-base-8", "llama-3.2-1b", "gemma-3-1b", "falcon-7b"]
MAPS = {"resnet-18": 64, "mobilenet-v2": 64, "dit-xl-2": 8, "wan-2.1-1.3b": 24}


def activations(graph: Graph) -> float:
    return sum(node.output_bytes * node.repeats for node in graph.nodes)


def of(name: str, mode: str, batch: int) -> Graph:
    return load_workload(name, mode, MAPS.get(name, 32), batch)


@pytest.mark.parametrize("name", [*TEXT, *MAPS])
@pytest.mark.parametrize("mode", ["inf", "train"])
def test_shapes_are_affine_in_the_batch(name: str, mode: str) -> None:
    """The same nodes and operations whatever the batch, and no column with a second difference."""
    graphs = [of(name, mode, batch) for batch in (2, 3, 4)]
    first, *others = ([(node.name, node.before, node.repeats) for node in graph.nodes] for graph in graphs)
    assert all(other == first for other in others)
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        for ops in zip(*(node.ops() for node in nodes), strict=True):
            assert len({(op.family, op.note, op.count, tuple(op.shape)) for op in ops}) == 1
            for low, middle, high in zip(*(op.shape.values() for op in ops), strict=True):
                assert high - middle == pytest.approx(middle - low, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "bert-base", "resnet-18", "dit-xl-2"])
@given(batch=st.integers(1, 64))
@settings(max_examples=5)
def test_flops_and_activations_are_linear_in_the_batch(name: str, batch: int) -> None:
    one, many = of(name, "train", 1), of(name, "train", batch)
    assert activations(many) <= batch * activations(one)  # masks and positions are those of one sequence
    assert graph_flops(many) == pytest.approx(batch * graph_flops(one), rel=1e-12)
    assert parameter_bytes(many) == parameter_bytes(one)


@pytest.mark.parametrize("name", [*TEXT, *MAPS, "stable-diffusion-1-unet", "vit-base-16", "mixtral-8x7b"])
def test_operations_have_the_columns_of_measured_ones(name: str) -> None:
    graph = load_workload(name, "train", {**MAPS, "stable-diffusion-1-unet": 16}.get(name, 32), 2)
    for node in graph.nodes:
        for op in node.ops():
            assert op.count > 0
            if op.family in FAMILIES:
                assert set(op.shape) <= {column.name for column in FAMILIES[op.family]}
                least = {column.name: column.least for column in FAMILIES[op.family]}
                low = {name for name, value in op.shape.items() if value < least[name] and value > 0}
                assert not low - {"elements_in", "elements_out"}, op
            else:
                assert op.family in ("memory", "none")
    assert not graph.unknown


@pytest.mark.parametrize("name", [*TEXT, *MAPS])
def test_inference_is_the_forward_pass_without_gradients(name: str) -> None:
    inference, training = of(name, "inf", 2), of(name, "train", 2)
    assert not any(node.backward or node.accumulate for node in inference.nodes)
    assert graph_flops(inference) == graph_flops(training, ("forward",))
    assert graph_kernels(inference) <= graph_kernels(training, ("forward",))
    assert parameter_bytes(inference) == parameter_bytes(training)


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "mixtral-8x7b"])
def test_half_the_bytes_in_half_precision(name: str) -> None:
    """All but the masks of one byte, which are a larger part of a smaller tensor."""
    full, half = (load_workload(name, "train", 32, 2, dtype=dtype) for dtype in ("fp32", "bf16"))
    assert graph_bytes(half) == pytest.approx(graph_bytes(full) / 2, rel=0.01)
    assert graph_bytes(half) >= graph_bytes(full) / 2 * (1 - 1e-12)
    assert {op.dtype for node in half.nodes for op in node.ops() if op.family != "none"} == {"bf16"}


@given(widths=st.lists(st.integers(1, 64), min_size=1, max_size=6), rows=st.integers(1, 99))
def test_backward_has_twice_the_flops_of_products(widths: list[int], rows: int) -> None:
    """Of linear layers on an input with a gradient: dX and dW each have the FLOP of the forward product."""
    tape = Tape("net", training=True)
    x = tape.input("x", rows, 8, gradient=True)
    for width in widths:
        x = linear(tape, x, width, "layer")
    x = matmul(tape, x, view(tape, x, x.shape[1], rows, name="transpose"))
    graph = tape.graph()
    assert graph_flops(graph, ("backward",)) == 2 * graph_flops(graph, ("forward",))
    weights = sum(a * b + b for a, b in zip([8, *widths], widths, strict=False))
    assert parameter_bytes(graph) == 4 * weights


@given(readers=st.integers(1, 9), times=st.integers(1, 5))
def test_one_sum_for_each_reader_after_the_first(readers: int, times: int) -> None:
    tape = Tape("fork", training=True)
    outside = linear(tape, tape.input("x", 4, 8), 8, "first")
    with tape.block(outside, times, "layers") as inner:
        for _ in range(readers):
            inner = add(tape, inner, linear(tape, outside, 8, "branch", bias=False), "sum")
    graph = tape.graph()
    sums = {node.name: sum(op.count for op in node.backward if op.note == "sum") for node in graph.nodes}
    assert sums["first"] == readers * times - 1  # the block's own input is not a reader: it is the tensor itself
    assert sum(sums.values()) == sums["first"]


def test_parts_of_a_split_are_not_summed() -> None:
    tape = Tape("split", training=True)
    parts = split(tape, linear(tape, tape.input("x", 4, 8), 12, "first"), (4, 4, 4))
    add(tape, parts[0], parts[1])
    graph = tape.graph()
    assert not [op for node in graph.nodes for op in node.backward if op.note == "sum"]
    assert [op.shape["bytes_in"] for op in graph["split"].backward] == [4 * 4 * 12]


def test_gradient_of_a_table() -> None:
    tape = Tape("table", training=True)
    embedding(tape, tape.input("ids", 2, 5), entries=100, width=8, name="table")
    fill, scatter = tape.graph()["table"].backward
    assert (fill.shape["bytes_in"], fill.shape["bytes_out"]) == (0, 4 * 100 * 8)
    assert scatter.shape["bytes_in"] == 2 * scatter.shape["bytes_out"] == 2 * 4 * 2 * 5 * 8


def test_layers_that_repeat_are_nodes_that_repeat() -> None:
    graph = workload("dit-xl-2", "inf", 32, 1)
    assert {node.repeats for node in graph.nodes if node.name.startswith("blocks")} == {28}
    switch = load_workload("switch-base-8", "inf", 32, 1)
    assert {node.repeats for node in switch.nodes if ".experts." in node.name} >= {6, 6 * 8}


@pytest.mark.parametrize("seq", [1, 5, 100])
def test_idle_experts_are_in_memory(seq: int) -> None:
    """Of 60 experts 4 tokens x 1 reach 4; all are stored, those reached have a gradient."""
    config = load_model("qwen1.5-moe-a2.7b")
    graph = workload(config, "train", seq, 1)
    assert parameter_bytes(graph) == 4 * parameter_count(config)
    reached = {node.repeats for node in graph.nodes if node.name.endswith("experts.gather")}
    assert reached == {24 * min(60, 4 * seq)}
