"""Pipeline stages: together they are the model, each has its end of it, and what cannot be cut says so."""

from __future__ import annotations

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.models.workloads.counts import graph_flops, parameter_bytes
from jaxperf.models.workloads.stages import layer_places, stage_graph, stage_layers
from jaxperf.models.workloads.training import training_step

MODELS = ("gpt2", "opt-125m", "llama-3.2-1b", "gemma-3-1b", "bert-base")
TIED_TABLE = {"gpt2": 50257 * 768, "opt-125m": 50272 * 768, "llama-3.2-1b": 128256 * 2048, "gemma-3-1b": 262144 * 1152}


@pytest.mark.parametrize("name", MODELS)
def test_the_stages_add_up_to_the_model(name: str):
    """A tied head on the last stage has a table of its own."""
    model = load_model(name)
    whole = stage_graph(model, 16, 2)
    parts = [stage_graph(model, 16, 2, stage, 2) for stage in range(2)]
    assert sum(map(graph_flops, parts)) == graph_flops(whole)
    assert sum(map(parameter_bytes, parts)) == parameter_bytes(whole) + 4 * TIED_TABLE.get(name, 0)


def test_one_stage_is_the_training_graph_before_its_update():
    model = load_model("gpt2")
    step = training_step(model, 16, 2, accumulate=True)
    assert stage_graph(model, 16, 2).nodes == step.nodes[1:]  # the first is the optimizer


def test_each_stage_has_its_end_of_the_model():
    model = load_model("llama-3.2-1b")
    names = [{node.name for node in stage_graph(model, 16, 1, stage, 4).nodes} for stage in range(4)]
    assert ["decoder.embed_tokens" in own for own in names] == [True, False, False, False]
    assert [{"lm_head", "loss"} <= own for own in names] == [False, False, False, True]
    assert all("decoder.rotary.cos" in own and "decoder.mask.causal" in own for own in names)
    assert names[1] == names[2]


def test_the_places_of_the_layers():
    graph = stage_graph(load_model("gpt2"), 16, 1)
    first, last = layer_places(graph)
    assert graph.nodes[first].name == "decoder.layers0.input" and graph.nodes[first].output_bytes == 4 * 16 * 768
    assert graph.nodes[last + 1].name == "decoder.final_norm"


@pytest.mark.parametrize(
    ("name", "stages", "message"),
    [
        ("gpt2", 5, "gpt2 has 12 layers, which 5 stages do not divide"),
        ("gpt2", 24, "12 layers, which 24 stages"),
        ("t5-small", 2, "t5-small has an encoder and a decoder"),
    ],
)
def test_what_cannot_be_cut_says_so(name: str, stages: int, message: str):
    with pytest.raises(InputError, match=message):
        stage_layers(load_model(name), stages)
