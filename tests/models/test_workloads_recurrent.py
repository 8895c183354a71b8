"""Graphs of layers with a state of constant size, gates and sinks: all weights, and the products of a scan by hand."""

from __future__ import annotations

import pytest

from jaxperf.io.huggingface import load_model
from jaxperf.io.workloads import load_workload
from jaxperf.models.flops import flops_per_token
from jaxperf.models.graph import Node
from jaxperf.models.parameters import parameter_count
from jaxperf.models.workloads.counts import graph_flops, op_flops, parameter_bytes

MODELS = (
    *("mamba-130m", "jamba-v0.1", "mamba-codestral-7b", "bamba-9b", "nemotron-h-8b", "granite-4.0-h-tiny"),
    *("falcon-h1-0.5b", "lfm2-350m", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "minimax-text-01", "gpt-oss-20b"),
)


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_is_in_the_graph_and_every_product(name: str) -> None:
    """Of 512 tokens, which see 256 in the mean; masked scores are computed too, and scans repeat some within chunks."""
    config, graph = load_model(name), load_workload(name, "inf", 512, 1)
    assert parameter_bytes(graph) == 4 * parameter_count(config)
    assert graph_flops(graph) / 512 == pytest.approx(flops_per_token(config, 256), rel=0.05)


def products(node: Node, passes: tuple[str, ...] = ("forward",)) -> float:
    return sum(op_flops(op) for op in node.ops(passes))


def test_the_scan_of_mamba_2_by_hand() -> None:
    """Mamba-2 of Nemotron-H 8B: 128 heads of 64 channels in 8 groups, 128 numbers a channel; two chunks of 256."""
    graph = load_workload("nemotron-h-8b", "train", 512, 3)
    scan = next(node for node in graph.nodes if node.kind == "scan")
    tokens, heads = 3 * 512, 128
    within = 2 * tokens * 256 * (8 * 128 + heads * 64)
    assert products(scan) == within + 2 * 2 * tokens * heads * 128 * 64
    assert products(scan, ("backward",)) == 2 * products(scan)
    assert scan.output_bytes == tokens * heads * 64 * 4


def test_the_delta_rule_by_hand() -> None:
    """Qwen3-Next: 32 value heads of 128; chunks of 64 tokens, folded by an inverse of a triangle."""
    graph = load_workload("qwen3-next-80b-a3b", "inf", 512, 1)
    scan = next(node for node in graph.nodes if node.kind == "scan")
    folding = 2 * 64 * (3 * 128) + 2 * 64 * 64 / 6
    within = 2 * 64 * 2 * 128
    states = 3 * 2 * 128 * 128
    assert products(scan) == pytest.approx(512 * 32 * (folding + within + states), rel=1e-12)


def test_a_gate_and_a_sink_have_their_weights() -> None:
    gated = load_workload("qwen3-next-80b-a3b", "train", 64, 1)
    gate = next(node for node in gated.nodes if node.name.endswith("attention.gate"))
    assert gate.parameter_bytes == 4 * 2048 * 16 * 256
    sunk = load_workload("gpt-oss-20b", "train", 64, 1)
    sinks = [node for node in sunk.nodes if node.name.endswith("core.sinks")]
    assert {node.parameter_bytes for node in sinks} == {4 * 64}
    assert {node.output_bytes for node in sinks} == {4 * 64 * 64 * 65}
