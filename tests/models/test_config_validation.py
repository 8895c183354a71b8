"""The host-side description refuses impossible models and groups its layers faithfully."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.models.config import (
    LARGEST_COUNT,
    Attention,
    Encoder,
    GatedDelta,
    Indexer,
    KimiDelta,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mla,
    Mlp,
    ModelConfig,
    Moe,
    ShortConv,
    Table,
    layer_groups,
)

ATTENTION = Attention(heads=8, kv_heads=2, head_dim=64)
LAYER = Layer(ATTENTION, Mlp(2048))
WINDOWED = Layer(dataclasses.replace(ATTENTION, window=1024), Mlp(2048))
MODEL = ModelConfig("tiny", "LlamaForCausalLM", 512, 1000, (LAYER,) * 4, True, 0, 512, True, False, 4096, "bf16")
MLA = Mla(heads=4, q_rank=24, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=8, indexer=Indexer(2, 8, 64))
MAMBA2 = Mamba2(heads=8, head_dim=16, groups=2, state=32, conv=4)
DELTA = GatedDelta(key_heads=2, value_heads=4, key_dim=8, value_dim=16, conv=4)
TOWER = Encoder("vision", "image", 256, (LAYER,) * 2, length=50)

BAD_SIZES = [0, -1, LARGEST_COUNT + 1, "32", 32.0, float("nan"), True, None, [32], 10**5000]


@pytest.mark.parametrize("value", BAD_SIZES, ids=range(len(BAD_SIZES)))
def test_sizes_must_be_positive_integers(value: Any) -> None:
    for owner, field in (
        (ATTENTION, "heads"),
        (ATTENTION, "kv_heads"),
        (ATTENTION, "head_dim"),
        (Mlp(8), "intermediate"),
        (Moe(8, 2, 64), "experts"),
        (Moe(8, 2, 64), "experts_per_token"),
        (MLA, "heads"),
        (MLA, "kv_rank"),
        (MLA.indexer, "top_k"),
        (Mamba1(64, 16, 4, 4), "dt_rank"),
        (MAMBA2, "state"),
        (DELTA, "value_dim"),
        (KimiDelta(4, 8, 4), "conv"),
        (LightningAttention(4, 8), "block"),
        (ShortConv(64, 3), "conv"),
        (Table("types", 2, 64), "rows"),
        (TOWER, "hidden"),
        (MODEL, "hidden"),
        (MODEL, "vocabulary"),
    ):
        with pytest.raises(InputError, match=f"{type(owner).__name__}.{field} is .*must be an integer from 1"):
            dataclasses.replace(owner, **{field: value})


@pytest.mark.parametrize(
    ("owner", "changes", "message"),
    [
        (ATTENTION, {"kv_heads": 3}, "must divide the query heads"),
        (ATTENTION, {"window": 0}, "Attention.window is 0"),
        (ATTENTION, {"rotary": 1}, "Attention.rotary is 1; it must be true or false"),
        (Moe(8, 2, 64), {"experts_per_token": 9}, "cannot visit more experts than there are"),
        (Moe(8, 2, 64), {"shared_intermediate": -1}, "integer from 0"),
        (Moe(8, 2, 64), {"shared_gate": True}, "needs a shared expert"),
        (ATTENTION, {"window": 8, "chunk": 8}, "both given"),
        (ATTENTION, {"value_dim": 0}, "Attention.value_dim is 0"),
        (ATTENTION, {"relative_buckets": -1}, "Attention.relative_buckets is -1"),
        (ATTENTION, {"keys_as_values": True, "value_dim": 32}, "must be head_dim or None"),
        (ATTENTION, {"sinks": 1}, "Attention.sinks is 1; it must be true or false"),
        (MLA, {"nope_dim": 0, "rope_dim": 0}, "both 0"),
        (MLA, {"indexer": 4}, "Mla.indexer is 4; it must be an Indexer or None"),
        (MAMBA2, {"groups": 3}, "the groups must divide the heads"),
        (DELTA, {"key_heads": 3}, "the key heads must divide the value heads"),
        (Moe(8, 2, 64), {"latent": 0}, "Moe.latent is 0"),
        (Moe(8, 2, 64), {"router_bias": None}, "Moe.router_bias is null"),
        (LAYER, {"mixer": None, "ffn": None}, "both None"),
        (LAYER, {"mixer": Mlp(8)}, "Layer.mixer is a value of type Mlp"),
        (LAYER, {"ffn": ATTENTION}, "Layer.ffn is a value of type Attention"),
        (LAYER, {"cross": MAMBA2}, "Layer.cross is a value of type Mamba2"),
        (LAYER, {"beside": Mlp(8)}, "Layer.beside is a value of type Mlp"),
        (LAYER, {"ffn": None, "parallel": True}, "needs a mixer and a feed-forward"),
        (LAYER, {"shared": 1}, "Layer.shared is 1"),
        (Table("types", 2, 64), {"name": ""}, "Table.name"),
        (TOWER, {"kind": "video"}, 'must be "text", "image" or "audio"'),
        (TOWER, {"layers": ()}, "number of Encoder.layers is 0"),
        (TOWER, {"tables": [1]}, "must be a tuple of Table"),
        (TOWER, {"merge": 0}, "Encoder.merge is 0"),
        (MODEL, {"encoders": [TOWER]}, "must be a tuple of Encoder"),
        (MODEL, {"tables": (1,)}, "must be a tuple of Table"),
        (MODEL, {"mtp_layers": (1,)}, "must be a tuple of Layer"),
        (MODEL, {"vocabulary": 0}, "ModelConfig.vocabulary is 0"),
        (MODEL, {"quantization": "int4"}, "must be a Quantization or None"),
        (LAYER, {"norms": -1}, "Layer.norms is -1"),
        (MODEL, {"layers": ()}, "number of ModelConfig.layers is 0"),
        (MODEL, {"layers": [LAYER]}, "must be a tuple of Layer"),
        (MODEL, {"layers": (LAYER, None)}, "must be a tuple of Layer"),
        (MODEL, {"name": " "}, "ModelConfig.name"),
        (MODEL, {"weight_format": 16}, "ModelConfig.weight_format is 16"),
        (MODEL, {"positions": -1}, "ModelConfig.positions is -1"),
        (MODEL, {"max_context": 0}, "ModelConfig.max_context is 0"),
        (MODEL, {"tied_embeddings": "yes"}, "ModelConfig.tied_embeddings"),
        (MODEL, {"assumptions": "one"}, "must be a tuple of texts"),
    ],
)
def test_impossible_descriptions_are_refused(owner: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(owner, **changes)


def test_a_model_may_be_an_encoder_alone() -> None:
    alone = dataclasses.replace(MODEL, layers=(), vocabulary=0, encoders=(TOWER,))
    assert layer_groups(alone) == []


def test_a_layer_may_lack_one_block() -> None:
    assert Layer(MAMBA2, None, norms=1).ffn is None and Layer(None, Mlp(8), norms=1).mixer is None


def test_descriptions_are_immutable_and_hashable() -> None:
    assert hash(MODEL) == hash(dataclasses.replace(MODEL))
    with pytest.raises(dataclasses.FrozenInstanceError):
        MODEL.hidden = 1  # type: ignore[misc]


@given(
    st.lists(
        st.sampled_from([LAYER, WINDOWED, Layer(MLA, Moe(8, 2, 64)), Layer(MAMBA2, None)]), min_size=1, max_size=40
    )
)
def test_layer_groups_keep_every_layer_in_order_of_first_appearance(layers: list[Layer]) -> None:
    groups = layer_groups(dataclasses.replace(MODEL, layers=tuple(layers)))
    assert sum(count for _, count in groups) == len(layers)
    assert [layer for layer, _ in groups] == list(dict.fromkeys(layers))
    assert all(count == layers.count(layer) for layer, count in groups)
