"""The share of a tensor-parallel device: its products, what all shares add up to, and what cannot be divided."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.feedforward import Mlp
from jaxperf.models.mixers import Attention
from jaxperf.models.workloads.catalog import workload
from jaxperf.models.workloads.counts import graph_flops
from jaxperf.models.workloads.shards import layer_reductions, tensor_shard


def gemms(config: ModelConfig, seq: int, batch: int) -> list[tuple[float, float, float]]:
    graph = workload(config, "inf", seq, batch)
    return [
        (op.shape["m"], op.shape["n"], op.shape["k"])
        for node in graph.nodes
        for op in node.forward
        if op.family == "gemm"
    ]


def test_the_products_of_a_device_are_those_of_megatron():
    """arXiv:1909.08053, section 3: the first product of a block is divided by columns, the second by rows; the rows of
    the token table are padded to a multiple of 128 for each device: 50257 to 4 x 12672 = 50688."""
    shard = tensor_shard(load_model("gpt2-large"), 4)
    rows, width = 4096.0, 1280.0
    assert gemms(shard, 1024, 4) == [
        (rows, 3 * width / 4, width),
        (rows, width, width / 4),
        (rows, width, width),  # 5120 / 4 = 1280 units
        (rows, width, width),
        (rows, 12672.0, width),
    ]


@given(ranks=st.sampled_from([1, 2, 3, 4, 6, 12]), seq=st.integers(1, 64), batch=st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_the_shares_add_up_to_the_model(ranks: int, seq: int, batch: int):
    model = dataclasses.replace(load_model("gpt2"), vocabulary=128 * 12 * 4)
    shares = graph_flops(workload(tensor_shard(model, ranks), "train", seq, batch))
    assert ranks * shares == graph_flops(workload(model, "train", seq, batch))


def test_one_device_holds_the_model_itself():
    model = load_model("bert-large")
    assert tensor_shard(model, 1) is model


def test_an_encoders_token_table_is_divided():
    shard = tensor_shard(load_model("bert-large"), 2).encoders[0]
    assert {table.name: table.rows for table in shard.tables}["tokens"] == 30720 / 2  # 30522 padded to 120 x 256
    assert {layer.mixer.heads for layer in shard.layers if isinstance(layer.mixer, Attention)} == {8}


@pytest.mark.parametrize(("ranks", "kept"), [(2, 4), (4, 2), (8, 1), (16, 1), (32, 1)])
def test_few_key_and_value_heads_are_held_by_several_devices(ranks: int, kept: int):
    mixer = tensor_shard(load_model("llama-3.1-8b"), ranks).layers[0].mixer  # 32 heads, 8 of keys and values
    assert isinstance(mixer, Attention)
    assert (mixer.heads, mixer.kv_heads) == (32 // ranks, kept)


def test_experts_are_divided_by_their_units():
    shard = tensor_shard(load_model("mixtral-8x7b"), 8)
    ffn = shard.layers[0].ffn
    assert ffn is not None and ffn.intermediate == 14336 / 8


@pytest.mark.parametrize(("name", "blocks"), [("gpt2", 2), ("falcon-7b", 1), ("t5-small", 3)])
def test_a_reduction_for_every_block_that_writes_to_the_stream(name: str, blocks: int):
    assert {layer_reductions(layer) for layer in load_model(name).layers} == {blocks}


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("gpt2", 5, "gpt2 over 5 tensor-parallel devices: heads: 12 is not a multiple of 5"),
        ("qwen2.5-0.5b", 7, "key and value heads: 2 is not a multiple of 7"),
        ("mamba-130m", 2, "the token mixer Mamba1 is not divided yet"),
    ],
)
def test_what_cannot_be_divided_says_so(name: str, ranks: int, message: str):
    with pytest.raises(InputError, match=message):
        tensor_shard(load_model(name), ranks)


def test_units_that_do_not_divide_say_so():
    model = load_model("gpt2")
    layer = dataclasses.replace(model.layers[0], ffn=Mlp(3070, gated=False, bias=True))
    with pytest.raises(InputError, match="feed-forward units: 3070 is not a multiple of 4"):
        tensor_shard(dataclasses.replace(model, layers=(layer,)), 4)


@pytest.mark.parametrize(
    "name", ["nemotron-h-8b", "falcon-h1-0.5b", "qwen3-next-80b-a3b", "minimax-text-01", "lfm2-350m"]
)
def test_layers_with_a_state_are_divided_by_heads_or_channels(name: str):
    """All products of two devices are those of the model; scores of shared groups and of the router each has whole."""
    model = load_model(name)
    model = dataclasses.replace(model, vocabulary=128 * 2 * 50)
    shares, whole = (graph_flops(workload(each, "inf", 64, 1)) for each in (tensor_shard(model, 2), model))
    assert whole <= 2 * shares < 1.03 * whole
