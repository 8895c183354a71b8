"""Fusion keeps products and parameters, moves fewer bytes, launches fewer kernels; counts by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.io.workloads import load_workload
from jaxperf.models.fusion import RULES, flash_attention, fuse_elementwise, fuse_optimizer, fuse_rows, fused
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.mixers import Attention
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.attention import CAUSAL, PADDING, Given, attention
from jaxperf.models.workloads.counts import graph_bytes, graph_flops, graph_kernels, op_bytes, parameter_bytes
from jaxperf.models.workloads.operations import add, layer_norm, linear, matmul, pointwise, softmax, view
from jaxperf.models.workloads.styles import Style
from jaxperf.models.workloads.tape import Tape, Tensor
from jaxperf.models.workloads.training import training_step

NAMES = {
    **dict.fromkeys(("bert-base", "gpt2", "opt-125m", "t5-small", "switch-base-8", "llama-3.2-1b", "gemma-2-2b"), 48),
    **{"mixtral-8x7b": 48, "resnet-18": 64, "mobilenet-v2": 64, "stable-diffusion-1-unet": 16, "dit-xl-2": 8},
}


def accumulated(graph: Graph) -> Counter[tuple[object, ...]]:
    """What is added to gradients, by kernel."""
    found: Counter[tuple[object, ...]] = Counter()
    for node in graph.nodes:
        for op in node.accumulate:
            found[op.key] += round(op.count * node.repeats)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["inf", "train"])
def test_fewer_bytes_and_kernels_for_the_same_products(name: str, mode: str) -> None:
    graph = load_workload(name, mode, NAMES[name], 2)
    rewritten = [fuse_elementwise(graph), fuse_rows(graph)]
    for other in rewritten:
        assert graph_flops(other) == graph_flops(graph)
        assert parameter_bytes(other) == parameter_bytes(graph)
        assert accumulated(other) == accumulated(graph)
        for part in (("forward",), ("backward",)):
            assert graph_bytes(other, part) <= graph_bytes(graph, part)
            assert graph_kernels(other, part) <= graph_kernels(graph, part)
    assert graph_bytes(rewritten[1]) <= graph_bytes(rewritten[0]) <= graph_bytes(graph)
    assert graph_bytes(rewritten[1]) < graph_bytes(graph)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "dit-xl-2"])
def test_a_second_time_changes_nothing(name: str, rule: str) -> None:
    once = RULES[rule](load_workload(name, "train", NAMES[name], 2))
    assert graph_bytes(RULES[rule](once)) == graph_bytes(once)
    assert graph_flops(RULES[rule](once)) == graph_flops(once)


def test_residual_and_norm_are_one_kernel() -> None:
    """Reads x, y and the two weights, writes the sum, which is read elsewhere, and the norm."""
    tape = Tape("residual", training=False)
    x = tape.input("x", 8, 64)
    total = add(tape, x, linear(tape, x, 64, "branch"))
    add(tape, linear(tape, layer_norm(tape, total, "norm"), 64, "next"), total, "last")
    graph = fuse_rows(tape.graph())
    made = graph["add~norm"]
    assert made.forward == (
        Op("elementwise", {"elements_in": 2 * 512 + 128, "elements_out": 1024, "rows": 8}, note="fused"),
    )
    assert made.output_bytes == 4 * 1024
    assert made.before == ("x", "branch")
    assert graph["next"].before == ("add~norm",)
    assert graph["last"].before == ("next", "add~norm")


def test_gelu_of_eight_kernels_is_one() -> None:
    """Forward x in and y out; backward dY and x in and dX out, and no gradients of three readers of x to sum."""
    tape = Tape("gelu", training=True)
    x = linear(tape, tape.input("x", 4, 8), 32, "up")
    linear(tape, ACTIVATIONS["gelu written out"](tape, x), 8, "down")
    plain, made = tape.graph(), fuse_elementwise(tape.graph())
    assert graph_kernels(plain, ("forward",)) == 8 + 2
    node = next(node for node in made.nodes if node.kind == "fused")
    assert [(op.shape["elements_in"], op.shape["elements_out"]) for op in node.forward] == [(128, 128)]
    assert [(op.shape["elements_in"], op.shape["elements_out"]) for op in node.backward] == [(256, 128)]
    assert [op.note for op in plain["up"].backward] == ["sum", "linear", "bias gradient"]
    assert [op.note for op in made["up"].backward] == ["linear", "bias gradient"]


def test_a_path_that_leaves_is_not_closed() -> None:
    """a -> product -> c and a -> c: one kernel of a and c would need the product's result before it begins."""
    tape = Tape("outside", training=False)
    x = tape.input("x", 8, 8)
    a = pointwise(tape, x, "relu", name="a")
    add(tape, a, linear(tape, a, 8, "product"), "c")
    graph = tape.graph()
    assert fuse_elementwise(graph) == graph


def test_two_paths_that_cross_are_not_closed() -> None:
    """Groups that are each sound alone and wait for one another together."""
    tape = Tape("crossed", training=False)
    x = tape.input("x", 8, 8)
    a, b = pointwise(tape, x, "relu", name="a"), pointwise(tape, x, "relu", name="b")
    p, q = linear(tape, a, 8, "p"), linear(tape, b, 8, "q")
    add(tape, a, q, "c")
    add(tape, b, p, "d")
    made = fuse_elementwise(tape.graph())
    assert graph_kernels(made) == 5  # one of the two groups, a and c or b and d
    assert {node.kind for node in made.nodes} >= {"fused", "linear"}


def attended(batch: int, seq: int, heads: int, kv_heads: int, style: Style, training: bool, causal: bool) -> Graph:
    tape = Tape("attention", training)
    mixer = Attention(heads, kv_heads, 16, rotary=False, causal=causal)
    x = linear(tape, tape.input("x", batch, seq, 32), 32, "before")
    side = seq if causal else 1
    mask = tape.input("mask", batch, 1, side, seq)
    attention(tape, x, mixer, Given(style, mask, CAUSAL if causal else PADDING))
    return tape.graph()


@given(batch=st.integers(1, 4), seq=st.integers(2, 64), kv_heads=st.integers(1, 3), share=st.integers(1, 3))
@settings(max_examples=20)
def test_flash_attention_by_hand(batch: int, seq: int, kv_heads: int, share: int) -> None:
    """Causal: S (S + 1) / 2 of the scores; else all. Backward five products for two."""
    heads, dim = kv_heads * share, 16
    for causal in (True, False):
        plain = attended(batch, seq, heads, kv_heads, Style(), True, causal)
        made = flash_attention(plain)
        node = next(node for node in made.nodes if node.kind == "attention")
        seen = seq * (seq + 1) / 2 if causal else seq * seq
        assert graph_flops(Graph("one", (Node("one", forward=node.forward),))) == 4 * batch * heads * dim * seen
        assert node.backward[0].count == 2.5
        assert node.forward[0].shape["heads"] == batch * heads
        assert node.forward[0].shape["kv_heads"] == pytest.approx(batch * kv_heads)
        products = graph_flops(plain, ("forward",)) - graph_flops(made, ("forward",))
        assert products == pytest.approx(4 * batch * heads * dim * (seq * seq - seen))
        assert graph_bytes(made, ("forward",)) < graph_bytes(plain, ("forward",))
        assert not any(node.kind in ("softmax", "matmul") for node in made.nodes)
        assert not any("repeat" in node.name for node in made.nodes)


@pytest.mark.parametrize("name", ["gpt2", "opt-125m", "llama-3.2-1b", "bert-base", "gemma-2-2b", "vit-base-16"])
def test_flash_attention_in_a_model(name: str) -> None:
    plain = load_workload(name, "train", 256, 2)
    made = flash_attention(plain)
    layers = max(node.repeats for node in plain.nodes)
    assert sum(node.repeats for node in made.nodes if node.kind == "attention") >= layers
    assert graph_bytes(made) < graph_bytes(plain)
    assert graph_flops(made, ("forward",)) <= graph_flops(plain, ("forward",))


def test_biases_of_heads_and_short_memories_keep_their_scores() -> None:
    """T5's positions are in its scores; Stable Diffusion's text has 77 tokens for 256 queries."""
    assert flash_attention(load_workload("t5-small", "inf", 64, 1)) == load_workload("t5-small", "inf", 64, 1)
    unet = flash_attention(load_workload("stable-diffusion-1-unet", "inf", 16, 1))
    kinds = {"cross" if "cross" in node.name else "self" for node in unet.nodes if node.kind == "softmax"}
    assert kinds == {"cross"}


@pytest.mark.parametrize("implementation", ["for-loop", "foreach"])
def test_fused_optimizer(implementation: str) -> None:
    """AdamW: 28 bytes for each fp32 parameter; a launch for 21 M elements."""
    config = load_model("gpt2")
    graph = training_step(config, 16, 1, "adamw", implementation)
    made = fuse_optimizer(graph)
    assert sum(map(op_bytes, made.nodes[0].backward)) == pytest.approx(28 * 124_439_808)
    assert len(made.nodes[0].backward) == 1
    assert graph_bytes(made) < graph_bytes(graph)
    assert made.nodes[1:] == graph.nodes[1:]
    assert fuse_optimizer(made) == made


@given(widths=st.lists(st.sampled_from(["relu", "gelu", "add", "norm", "softmax", "product", "view"]), max_size=12))
def test_any_chain(widths: list[str]) -> None:
    """Chains with forks back to any earlier tensor stay valid graphs of the same products."""
    tape = Tape("chain", training=True)
    seen: list[Tensor] = [linear(tape, tape.input("x", 16, 16), 16, "first")]
    for index, word in enumerate(widths):
        x, other = seen[-1], seen[index * 7 % len(seen)]
        match word:
            case "add":
                seen.append(add(tape, x, other))
            case "norm":
                seen.append(layer_norm(tape, x, "norm"))
            case "softmax":
                seen.append(softmax(tape, x))
            case "product":
                seen.append(matmul(tape, x, other))
            case "view":
                seen.append(view(tape, x, 16, 16))
            case _:
                seen.append(pointwise(tape, x, word))
    graph = tape.graph()
    for rule in (fuse_elementwise, fuse_rows, flash_attention):
        made = rule(graph)
        assert graph_kernels(made) <= graph_kernels(graph)
        assert parameter_bytes(made) == parameter_bytes(graph)
        if rule is not flash_attention:
            assert graph_flops(made) == graph_flops(graph)
            assert graph_bytes(made) <= graph_bytes(graph)


def test_rules_are_named() -> None:
    graph = load_workload("gpt2", "train", 16, 1)
    assert fused(graph, ()) == graph
    assert fused(graph, ("rows", "attention")) == fuse_rows(flash_attention(graph))
    assert load_workload("gpt2", "train", 16, 1, "fusion") == fused(graph) == fuse_rows(graph)
    with pytest.raises(InputError, match="Unknown fusion rule 'flash'; known: attention, elementwise, rows, optimizer"):
        fused(graph, ("flash",))
