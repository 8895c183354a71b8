"""A described model as arrays, and its shards."""

from __future__ import annotations

import math
import typing

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.blocks import catalog
from jaxperf.models.blocks.compressed import CompressedMixer
from jaxperf.models.config import FeedForward, Mamba2, Mixer, Moe
from jaxperf.models.deployment import Parallelism
from jaxperf.models.layers import AttentionMixer, DenseFfn, MoeFfn, transformer
from tests.devices import deployment, model
from tests.models.shipped import one_of_each


@pytest.mark.parametrize("name", one_of_each())
def test_the_arrays_hold_every_layer_of_the_description(name: str) -> None:
    described, arrays = load_model(name), transformer(load_model(name))
    assert float(arrays.num_layers) == len(described.layers)
    assert float(arrays.hidden) == described.hidden and float(arrays.vocabulary) == described.vocabulary
    assert float(arrays.output_tables) == float(not described.tied_embeddings)
    assert float(arrays.max_context) == (described.max_context or math.inf)
    kinds = [isinstance(layer.ffn, Moe) for layer in described.layers]
    counted = sum(float(group.repeats) for group in arrays.groups if isinstance(group.ffn, MoeFfn))
    assert counted == sum(kinds)
    windows = sum((getattr(layer.mixer, "window", None) or 0) for layer in described.layers)
    windowed = [group for group in arrays.groups if isinstance(group.mixer, (AttentionMixer, CompressedMixer))]
    assert sum(float(group.repeats * group.mixer.window) for group in windowed) == windows
    for tower, encoder in zip(arrays.towers, described.encoders, strict=True):
        assert sum(float(group.repeats) for group in tower.groups) == len(encoder.layers)


def test_a_kind_of_layer_that_is_not_timed_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MIXERS", {kind: one for kind, one in catalog.MIXERS.items() if kind is not Mamba2})
    with pytest.raises(InputError, match="token mixer Mamba2 is not timed by this version; timed are Attention, Mla"):
        transformer(load_model("nemotron-h-8b"))


def test_every_described_kind_is_timed() -> None:
    assert set(catalog.MIXERS) == set(typing.get_args(Mixer)) and set(catalog.FFNS) == set(typing.get_args(FeedForward))


@pytest.mark.parametrize(("ranks", "heads", "kv_heads"), [(1, 64, 8), (2, 32, 4), (8, 8, 1), (16, 4, 1), (64, 1, 1)])
def test_heads_are_split_and_kv_heads_replicated_once_too_few(ranks: int, heads: int, kv_heads: int) -> None:
    shard = AttentionMixer(64, 8, 128, 0, True).shard(as_float(ranks))
    assert (float(shard.heads), float(shard.kv_heads), float(shard.head_dim)) == (heads, kv_heads, 128)


def test_mixtral_has_experts_without_a_shared_one_and_llama_has_none() -> None:
    (experts,) = {type(group.ffn) for group in model("mixtral-8x7b").groups}
    assert experts is MoeFfn
    ffn = model("mixtral-8x7b").groups[0].ffn
    assert isinstance(ffn, MoeFfn)
    assert (float(ffn.experts), float(ffn.chosen), float(ffn.shared_intermediate), float(ffn.gates)) == (8, 2, 0, 1)
    dense = model("opt-1.3b").groups[0].ffn
    assert isinstance(dense, DenseFfn) and float(dense.gates) == 0.0
    assert not model("opt-1.3b").groups[0].mixer.rotary


def test_devices_are_counted_over_every_split_but_that_of_experts() -> None:
    layout = Parallelism(tensor_parallel=4, pipeline_parallel=3, expert_parallel=8, data_parallel=2)
    assert float(layout.num_devices) == 24.0
    assert float(layout.expert_tensor_parallel) == 1.0
    assert float(Parallelism().num_devices) == 1.0


def test_a_tensor_group_sees_the_links_of_its_ranks() -> None:
    assert float(deployment(tensor=4, pipeline=2).tensor_fabric.local_ranks) == 4.0
