"""Models traced from real JAX code against published counts and counts made by hand, kernel by kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxperf.io.jaxpr_graph import trace
from jaxperf.io.lowering import Traced, lower
from tests.io.traced_models import (
    bert,
    bert_by_hand,
    bert_parameters,
    llama_arguments,
    llama_block,
    llama_by_hand,
    resnet50,
    resnet50_by_hand,
    resnet50_parameters,
    struct,
)


def elements(tree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.fixture(scope="module")
def traced_resnet() -> Traced:
    return lower(trace(resnet50, resnet50_parameters(), struct(1, 224, 224, 3)))


def test_resnet50_has_the_published_macs_and_parameters(traced_resnet: Traced) -> None:
    """torchvision's table of models: ResNet50_Weights, 25,557,032 parameters, 4.09 G (multiply-accumulates)."""
    assert elements(resnet50_parameters()) == 25_557_032
    assert traced_resnet.total.product_flops / 2e9 == pytest.approx(4.09, abs=0.005)


def test_resnet50_agrees_with_the_count_by_hand(traced_resnet: Traced) -> None:
    macs, moved = resnet50_by_hand()
    assert traced_resnet.total.product_flops == 2.0 * macs
    assert traced_resnet.total.bytes_moved == pytest.approx(moved, rel=1e-9)


def test_resnet50_is_convolutions_chains_a_pooling_and_a_classifier(traced_resnet: Traced) -> None:
    nodes = traced_resnet.graph.nodes
    assert sum(node.kind == "conv_general_dilated" for node in nodes) == 53
    assert sum(node.kind == "reduce_window_max" for node in nodes) == 1
    # 1 + 16 x 3 chains (the mean is part of the last) and the bias of the classifier.
    assert sum(node.forward[0].family == "elementwise" for node in nodes) == 1 + 48 + 1 + 1
    assert traced_resnet.graph.unknown == {}


@pytest.mark.parametrize(("batch", "tokens"), [(1, 512), (4, 128)])
def test_bert_large_agrees_with_the_count_by_hand(batch: int, tokens: int) -> None:
    traced = lower(trace(bert, bert_parameters(), struct(batch, tokens, 1024)))
    macs, moved = bert_by_hand(batch, tokens)
    assert traced.total.product_flops == 2.0 * macs
    assert traced.total.flops == pytest.approx(2.0 * macs, rel=0.01)
    assert traced.total.bytes_moved == pytest.approx(moved, rel=1e-9)


def test_bert_large_has_the_kernels_of_its_paper() -> None:
    traced = lower(trace(bert, bert_parameters(), struct(1, 512, 1024)))
    runs: dict[str, float] = {}
    for node in traced.graph.nodes:
        for op in node.forward:
            runs[op.family] = runs.get(op.family, 0.0) + op.count
    assert runs == {"gemm": 6 * 24, "bmm": 2 * 24, "softmax": 24, "norm": 2 * 24, "elementwise": 4 * 24}
    layers = elements(bert_parameters())
    assert layers == 24 * (12 * 1024**2 + 13 * 1024)  # 302 M of BERT-Large's 340 M; the rest is embeddings


@pytest.mark.parametrize("tokens", [256, 2048])
def test_a_llama_block_agrees_with_the_count_by_hand(tokens: int) -> None:
    traced = lower(trace(llama_block, *llama_arguments(tokens)))
    macs, moved = llama_by_hand(tokens)
    assert traced.total.product_flops == 2.0 * macs
    assert traced.total.bytes_moved == pytest.approx(moved, rel=1e-9)


def test_a_gradient_has_twice_the_products_of_its_function() -> None:
    """Each product has two gradients; the first layer's input needs none."""

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x.sum()

    weights, x = [struct(64, 64)] * 3, struct(32, 64)
    forward = lower(trace(loss, weights, x)).total.product_flops
    both = lower(trace(jax.grad(loss), weights, x)).total.product_flops
    assert both == pytest.approx(forward * (1 + 2 - 1 / 3))
