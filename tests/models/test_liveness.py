"""Peak memory: small graphs by hand, random ones against a simulation that looks at every moment, and bad names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.workloads import load_workload
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.liveness import Action, inference_peak, peak
from jaxperf.models.training_memory import FULL_PRECISION, States, training_actions, training_memory

GEMM = Op("gemm", {"m": 1, "n": 1, "k": 1})


def node(name: str, output: float, *before: str, op: Op = GEMM, backward: bool = True, parameters: float = 0.0) -> Node:
    return Node(name, "", (op,), (op,) if backward else (), (), before, output, parameters)


def chain(*outputs: float, parameters: float = 0.0) -> Graph:
    """Products one after the other."""
    names = [f"n{index}" for index in range(len(outputs))]
    nodes = [
        node(name, size, *names[max(index - 1, 0) : index], parameters=parameters)
        for index, (name, size) in enumerate(zip(names, outputs, strict=True))
    ]
    return Graph("chain", tuple(nodes))


# --- inference --------------------------------------------------------------------------------------------------------


def test_a_chain_holds_two_neighbours() -> None:
    found = inference_peak(chain(10.0, 30.0, 20.0, 5.0))
    assert (found.nbytes, found.action) == (50.0, "n2")


def test_a_residual_is_held_to_its_sum() -> None:
    """x = 8 lives past the wide middle: 8 + 32 at the activation is less than 8 + 32 + 32."""
    graph = Graph(
        "block",
        (node("x", 8.0), node("up", 32.0, "x"), node("act", 32.0, "up"), node("down", 8.0, "act"),
         node("sum", 8.0, "down", "x")),
    )  # fmt: skip
    found = inference_peak(graph)
    assert (found.nbytes, found.action) == (8.0 + 32.0 + 32.0, "act")


def test_workspace_is_held_while_its_node_runs() -> None:
    graph = chain(10.0, 10.0, 10.0)
    assert inference_peak(graph, {"n0": 100.0}).nbytes == 110.0
    assert inference_peak(graph, {"n1": 100.0}).nbytes == 120.0


def test_outputs_that_nobody_reads_live_to_the_end() -> None:
    graph = Graph("two", (node("a", 4.0), node("logits", 16.0, "a"), node("b", 4.0, "a"), node("c", 4.0, "b")))
    assert inference_peak(graph).nbytes == 16.0 + 4.0 + 4.0


# --- training ---------------------------------------------------------------------------------------------------------


def test_training_a_chain_keeps_every_input_of_a_product() -> None:
    """Three products of 10: at the first backward step all inputs, the output's gradient and its input's are there.

    The last output is the loss's: nothing reads it again, its gradient takes its place.
    """
    found = training_memory(chain(10.0, 10.0, 10.0, parameters=4.0))
    assert found.activations == 10.0 + 10.0 + 10.0 + 10.0  # outputs of n0 and n1, gradients of n2 and n1
    assert found.action == "n2 backward"
    assert (found.weights, found.gradients, found.optimizer) == (12.0, 12.0, 24.0)
    assert found.total == 12.0 + 12.0 + 24.0 + 40.0


def test_mixed_precision_takes_16_bytes_a_parameter() -> None:
    """Rajbhandari et al. 2020, section 3.1: 2 + 2 + K with K = 12 for Adam."""
    graph = chain(1.0, parameters=2.0 * 1000)
    found = training_memory(graph, States())
    assert found.weights + found.gradients + found.optimizer == 16.0 * 1000
    assert FULL_PRECISION == States(4.0, 4.0, 0.0, 8.0)


def test_sums_keep_nothing_and_a_softmax_its_output() -> None:
    def kept(op: Op) -> set[tuple[str, str]]:
        graph = Graph("one", (node("x", 1.0), node("y", 1.0, "x", op=op)))
        backward = [action for action in training_actions(graph) if action.name == "y backward"]
        return {tensor for tensor in backward[0].reads if tensor[0] == "output"}

    stream = {"elements_in": 1, "elements_out": 1}
    assert kept(Op("elementwise", stream, note="add")) == set()
    assert kept(Op("elementwise", stream, note="gelu")) == {("output", "x")}
    assert kept(Op("elementwise", stream, note="relu")) == {("output", "y")}
    assert kept(Op("memory", {"bytes_in": 1, "bytes_out": 1})) == set()
    assert kept(Op("softmax", {"rows": 1, "columns": 1})) == {("output", "y")}
    assert kept(GEMM) == {("output", "x")}


def even_segments(graph: Graph, count: int) -> list[list[str]]:
    """The nodes in order, cut into `count` segments of nearly equal length."""
    return [part.tolist() for part in np.array_split([each.name for each in graph.nodes], count)]


def test_recomputing_keeps_what_leaves_a_segment() -> None:
    """Four equal products in two segments: one boundary, one segment computed again and two gradients."""
    graph = chain(*[10.0] * 8)
    plain = training_memory(graph).activations
    again = training_memory(graph, segments=even_segments(graph, 2)).activations
    assert plain == 9 * 10.0  # outputs of n0 to n6, gradients of n7 and n6
    # n3 leaves the first segment; n4 to n6 again, n7 again while it is computed, then two gradients.
    assert again == (1 + 3 + 2) * 10.0


def test_recomputing_a_long_chain_needs_the_square_root() -> None:
    """Chen et al. 2016: sqrt(n) segments of sqrt(n) nodes need O(sqrt(n))."""
    graph = chain(*[1.0] * 100)
    assert training_memory(graph).activations == 101.0
    assert training_memory(graph, segments=even_segments(graph, 10)).activations <= 2 * 10 + 2


def test_nodes_that_no_gradient_reaches_have_no_backward_pass() -> None:
    tokens = Node("tokens", output_bytes=100.0)
    graph = Graph("lm", (tokens, node("embed", 10.0, "tokens"), node("head", 10.0, "embed")))
    names = [action.name for action in training_actions(graph)]
    assert names == ["tokens", "embed", "head", "head backward", "embed backward"]


@pytest.mark.parametrize(
    ("model", "heads", "hidden", "more"), [("bert_large", 16, 1024, 0), ("gpt2-large", 20, 1280, 24)]
)
def test_a_transformer_layer_keeps_what_the_literature_counts(model: str, heads: int, hidden: int, more: int) -> None:
    """Korthikanti et al. 2022 (arXiv:2205.05198), equation 1: s b h (34 + 5 a s / h) bytes a layer in 16 bits.

    GPT-2's GELU in separate steps keeps three more tensors of 4 h. The graph has its layers as nodes that are repeated;
    of each kept tensor there is one less, and that at work.
    """
    batch, tokens = 8, 512
    graph = load_workload(model, "train", tokens, batch, dtype="bf16")
    a_layer = 0.0
    for action in training_actions(graph):
        for (role, name), nbytes in action.writes.items():
            repeats = graph[name].repeats
            if repeats > 1 and role in ("kept", "mask"):
                a_layer += nbytes / (repeats - 1 if role == "kept" else repeats)
    assert a_layer == pytest.approx(tokens * batch * hidden * (34 + more + 5 * heads * tokens / hidden), rel=1e-7)


def test_factors_keep_each_other() -> None:
    """Of x times a constant the constant alone is kept; of x times y both."""
    op = Op("elementwise", {"elements_in": 2, "elements_out": 1}, note="mul")
    constant = Node("c", output_bytes=1.0)

    def kept(*before: str) -> set[str]:
        graph = Graph("product", (node("x", 1.0), node("y", 1.0), constant, node("z", 1.0, *before, op=op)))
        (action,) = [each for each in training_actions(graph) if each.name == "z backward"]
        return {name for role, name in action.reads if role == "output"}

    assert kept("x", "y") == {"x", "y"}
    assert kept("x", "c") == {"c"}
    assert kept("x") == {"x"}


def test_a_view_takes_no_memory_and_keeps_what_it_views() -> None:
    """x = 10 is read through a view at the end: it lives on, and nothing is held twice."""
    seen = Node("seen", "view", before=("x",), output_bytes=10.0)
    graph = Graph("views", (node("x", 10.0), seen, node("y", 7.0), node("z", 1.0, "seen", "y")))
    assert inference_peak(graph).nbytes == 18.0
    assert training_memory(graph).activations == 10.0 + 7.0 + 1.0 + 10.0 + 7.0  # with the gradients of all three


def test_a_dropout_keeps_a_byte_an_element() -> None:
    drop = Op("elementwise", {"elements_in": 25, "elements_out": 25}, note="dropout")
    graph = Graph("drop", (node("x", 100.0), node("y", 100.0, "x", op=drop), node("z", 4.0, "y")))
    assert [action.writes for action in training_actions(graph)][1] == {("output", "y"): 100.0, ("mask", "y"): 25.0}
    # Both outputs of the products' inputs: y for z; x is read by none. Gradients of z and y, then of y and x.
    assert training_memory(graph).activations == 25.0 + 100.0 + 100.0 + 4.0


# --- any graph --------------------------------------------------------------------------------------------------------

names = st.integers(0, 6)
sizes = st.integers(0, 100).map(float)
actions = st.lists(
    st.tuples(st.lists(names, max_size=3), st.dictionaries(names, sizes, max_size=2), sizes), max_size=12
)


@given(drawn=actions, kept=st.lists(names, max_size=2))
def test_the_peak_is_that_of_a_simulation_of_every_moment(drawn, kept) -> None:
    """Brute force: a tensor is there at t if it was written by t and is used at t or later, or is kept."""
    tensors = lambda these: [("output", str(each)) for each in these]  # noqa: E731
    run = [
        Action(str(at), tuple(tensors(reads)), {("output", str(each)): size for each, size in writes.items()}, work)
        for at, (reads, writes, work) in enumerate(drawn)
    ]
    held = tensors(kept)
    expected = 0.0
    for moment, action in enumerate(run):
        total = action.workspace
        for tensor in {each for other in run for each in other.writes}:
            first = next(at for at, other in enumerate(run) if tensor in other.writes)
            last = max(at for at, other in enumerate(run) if tensor in other.writes or tensor in other.reads)
            if first <= moment <= (len(run) if tensor in held else last):
                total += run[first].writes[tensor]
        expected = max(expected, total)
    assert peak(run, held).nbytes == pytest.approx(expected)


@st.composite
def graphs(draw) -> Graph:
    nodes = []
    for index in range(draw(st.integers(1, 9))):
        before = draw(st.sets(st.integers(0, index - 1), max_size=2)) if index else set()
        nodes.append(node(f"n{index}", draw(sizes), *(f"n{each}" for each in sorted(before)), parameters=draw(sizes)))
    return Graph("random", tuple(nodes))


@given(graph=graphs(), count=st.integers(1, 9))
def test_training_holds_at_least_what_inference_holds_and_recomputing_all_of_it_once(graph: Graph, count: int) -> None:
    inference = inference_peak(graph).nbytes
    largest = max(each.output_bytes for each in graph.nodes)
    assert largest <= inference <= sum(each.output_bytes for each in graph.nodes)
    segments = even_segments(graph, min(count, len(graph.nodes)))
    everything = sum(each.output_bytes for each in graph.nodes)
    for found in (training_memory(graph), training_memory(graph, segments=segments)):
        assert largest <= found.activations <= 3 * everything
    acts = training_actions(graph, segments)
    again = [action.name for action in acts if action.name.endswith(" again")]
    assert sorted(again) == sorted(f"{each.name} again" for each in graph.nodes)


@given(graph=graphs(), factor=st.integers(2, 5))
def test_the_peak_scales_with_the_tensors(graph: Graph, factor: int) -> None:
    larger = Graph("larger", tuple(node(n.name, factor * n.output_bytes, *n.before) for n in graph.nodes))
    assert inference_peak(larger).nbytes == pytest.approx(factor * inference_peak(graph).nbytes)
    assert training_memory(larger).activations == pytest.approx(factor * training_memory(graph).activations)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_segments_and_workspaces_name_nodes() -> None:
    graph = chain(1.0, 1.0)
    with pytest.raises(InputError, match="a segment names 'n7', which is absent"):
        training_memory(graph, segments=[("n7",)])
    with pytest.raises(InputError, match="node 'n0' is in two segments"):
        training_memory(graph, segments=[("n0",), ("n1", "n0")])
    with pytest.raises(InputError, match="a workspace names 'x'"):
        inference_peak(graph, {"x": 1.0})
