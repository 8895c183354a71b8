"""Training steps: loss, recomputation, optimizers; counts by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.models.parameters import parameter_count
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.counts import graph_flops, graph_kernels, op_bytes
from jaxperf.models.workloads.operations import layer_norm, linear
from jaxperf.models.workloads.optimizers import (
    IMPLEMENTATIONS,
    MOST_ELEMENTS,
    MOST_TENSORS,
    OPTIMIZERS,
    trained_tensors,
    with_optimizer,
)
from jaxperf.models.workloads.tape import Tape
from jaxperf.models.workloads.training import recomputed, training_step, without_accumulation


@pytest.mark.parametrize("name", ["gpt2", "bert-large", "t5-small", "mixtral-8x7b", "llama-3.2-1b"])
def test_every_parameter_is_trained_once(name: str) -> None:
    """Tied tables too, and biases beside them."""
    config = load_model(name)
    tensors = trained_tensors(workload(config, "train", 16, 1))
    assert sum(size * count for size, count in tensors.items()) == parameter_count(config)


def test_buffers_are_not_trained() -> None:
    """The correction biases of GLM 4.5 choose experts and get no gradient."""
    config = load_model("glm-4.5-air")
    sparse = [layer for layer in config.layers if getattr(layer.ffn, "correction_bias", False)]
    trained = sum(size * count for size, count in trained_tensors(workload(config, "train", 16, 1)).items())
    assert trained == parameter_count(config) - sum(getattr(layer.ffn, "experts", 0) for layer in sparse)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_bytes_of_the_optimizer(name: str, implementation: str) -> None:
    graph = workload(load_model("gpt2"), "train", 16, 1)
    step = with_optimizer(graph, name, implementation).nodes[0]
    optimizer, parameters = OPTIMIZERS[name], parameter_count(load_model("gpt2"))
    moved = sum(optimizer.fused) if implementation == "fused" else sum(r + w for _, r, w in optimizer.kernels)
    assert sum(map(op_bytes, step.backward)) == pytest.approx(4 * moved * parameters, rel=1e-12)


def test_launches_of_the_optimizer() -> None:
    """GPT-2: 148 trained tensors, 124.4 M elements (148 = 12 layers of 12, two tables, two of the last norm)."""
    graph = workload(load_model("gpt2"), "train", 16, 1)
    tensors, parameters = sum(trained_tensors(graph).values()), parameter_count(load_model("gpt2"))
    assert tensors == 148
    launches = {
        how: sum(op.count for op in with_optimizer(graph, "adamw", how).nodes[0].backward) for how in IMPLEMENTATIONS
    }
    assert launches["for-loop"] == 8 * 148
    each = [
        max(math.ceil(148 / MOST_TENSORS[lists - 1]), math.ceil(parameters / MOST_ELEMENTS)) for lists in (1, 2, 3, 4)
    ]
    assert launches["fused"] == each[3]
    assert launches["foreach"] == 5 * each[0] + 2 * each[1] + each[2]


def test_adamw_moves_as_much_as_its_formulas() -> None:
    """p m v g read, p m v written when fused: 28 bytes for each fp32 parameter (arXiv:1711.05101, algorithm 2)."""
    tape = Tape("one", training=True)
    linear(tape, tape.input("x", 4, 16), 32, "layer", bias=False)
    fused = with_optimizer(tape.graph(), "adamw", "fused").nodes[0].backward
    assert [op_bytes(op) for op in fused] == [28 * 16 * 32]


def test_full_recomputation_runs_the_layers_again() -> None:
    graph = workload(load_model("llama-3.2-1b"), "train", 64, 2)
    again = recomputed(graph, "full")
    inside = graph_flops(graph, ("forward",)) - 2 * 2 * 64 * 2048 * 128256  # all but the output head
    assert graph_flops(again) - graph_flops(graph) == inside
    assert graph_flops(again, ("forward",)) == graph_flops(graph, ("forward",))


def test_selective_recomputation_runs_the_scores_again() -> None:
    """Scores and values, softmax and dropout: 4 B S**2 h FLOP for each layer (arXiv:2205.05198, section 5)."""
    batch, seq, config = 2, 64, load_model("gpt2-large")
    graph = workload(config, "train", seq, batch)
    again = recomputed(graph, "selective")
    assert graph_flops(again) - graph_flops(graph) == 36 * 4 * batch * seq * seq * 1280
    more = graph_kernels(again) - graph_kernels(graph)
    assert more == 36 * 8  # two products, two numbers, scale, mask, softmax, dropout
    assert recomputed(graph, "none") == graph


def test_a_step_has_loss_and_optimizer() -> None:
    config = load_model("gpt2")
    graph = training_step(config, 16, 2, optimizer="adam", implementation="fused", recompute="selective")
    assert graph.nodes[0].name == "optimizer.adam"
    loss = graph["loss"]
    assert loss.before == ("lm_head",)
    assert loss.forward[0].shape == {"rows": 32.0, "columns": 50257.0}
    assert not any(node.accumulate for node in graph.nodes)
    kept = training_step(config, 16, 2, accumulate=True)
    assert without_accumulation(kept) == training_step(config, 16, 2)
    assert any(node.accumulate for node in kept.nodes)


@given(rows=st.integers(1, 50), widths=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_tensors_of_a_net(rows: int, widths: list[int]) -> None:
    tape = Tape("net", training=True)
    x = tape.input("x", rows, 7)
    for width in widths:
        x = layer_norm(tape, linear(tape, x, width, "layer"), "norm")
    expected = [a * b for a, b in zip([7, *widths], widths, strict=False)] + [
        width for width in widths for _ in range(3)
    ]
    assert sorted(trained_tensors(tape.graph()).elements()) == sorted(expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"optimizer": "adamv"}, "Did you mean adam"),
        ({"implementation": "for_each"}, "for-loop, foreach, fused"),
        ({"recompute": "ful"}, "none, selective, full"),
        ({"dtype": "fp8"}, "fp32, tf32, bf16, fp16"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as raised:
        training_step(load_model("gpt2"), 16, 2, **arguments)  # pyright: ignore[reportArgumentType]
    assert words in str(raised.value)


def test_an_optimizer_needs_trained_tensors() -> None:
    with pytest.raises(InputError, match="no trained tensors; an optimizer needs the graph of mode train"):
        with_optimizer(workload(load_model("gpt2"), "inf", 16, 1))
