"""Zamba: attention whose weights several layers share, counted once and computed each time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.attention import attention_mixer
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.config import Attention, Mamba1, Mamba2
from jaxperf.models.flops import flops_per_token
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import kv_bytes_per_token, layer_parameters, parameter_breakdown, parameter_count
from jaxperf.models.transformer import group_kernels
from tests.devices import H100, deployment
from tests.io.test_recent_families import PLAIN

KINDS = [*["mamba"] * 6, "hybrid"] * 7 + [*["mamba"] * 4, "hybrid", "mamba"] * 2
ZAMBA2: dict[str, Any] = PLAIN | {
    "architectures": ["Zamba2ForCausalLM"],
    **dict(vocab_size=32000, hidden_size=2560, num_hidden_layers=len(KINDS), num_attention_heads=32),
    **dict(num_key_value_heads=32, intermediate_size=10240, n_mamba_heads=80, mamba_ngroups=1, mamba_d_state=64),
    **dict(num_mem_blocks=2, adapter_rank=128, mamba_d_conv=4, mamba_expand=2, tie_word_embeddings=True),
    "layers_block_type": KINDS,
}
ZAMBA: dict[str, Any] = PLAIN | {
    "architectures": ["ZambaForCausalLM"],
    **dict(vocab_size=32000, hidden_size=3712, num_hidden_layers=76, num_attention_heads=16, num_key_value_heads=16),
    **dict(intermediate_size=14848, attn_layer_period=6, attn_layer_offset=4, mamba_d_state=16, mamba_dt_rank="auto"),
    **dict(mamba_d_conv=4, mamba_expand=2, tie_word_embeddings=True),
}


def test_zamba_7b_counts_as_its_class() -> None:
    """7,232,490,496 in transformers 5.24, one block of weights for thirteen uses, each with keys and values."""
    config = read_config(ZAMBA)
    assert parameter_count(config) == 7_232_490_496
    uses = [layer for layer in config.layers if isinstance(layer.mixer, Attention)]
    assert [use.shared for use in uses] == [False] + [True] * 12
    assert len([layer for layer in config.layers if isinstance(layer.mixer, Mamba1)]) == 76
    assert kv_bytes_per_token(config, 2) == 13 * 2 * 16 * 464 * 2


def test_two_blocks_take_turns_and_each_use_has_adapters() -> None:
    config = read_config(ZAMBA2)
    uses = [layer for layer in config.layers if isinstance(layer.mixer, Attention)]
    assert [use.shared for use in uses] == [False] * 2 + [True] * 7
    one = read_config(ZAMBA2 | {"num_mem_blocks": 1})
    assert parameter_count(config) - parameter_count(one) == layer_parameters(uses[0], 2560)
    after = 2560 * 2560 + 128 * (2560 + 2 * 10240)
    assert parameter_breakdown(config)["other"] == 9 * after + 2 * 2560
    wider = read_config(ZAMBA2 | {"use_shared_attention_adapter": True})
    assert parameter_count(wider) - parameter_count(config) == 9 * 3 * 128 * 4 * 2560
    assert isinstance(config.layers[0].mixer, Mamba2) and config.layers[0].mixer.head_dim == 64


def test_the_matrix_and_adapters_of_each_use_are_timed_and_in_memory() -> None:
    """After 9 of the 54 layers a matrix and the adapters of a block with gates, by every rank whole."""
    config = read_config(ZAMBA2)
    arrays, elements = transformer(config), 9 * (2560 * 2560 + 128 * (2560 + 2 * 10240))
    bare = dataclasses.replace(config, layers=tuple(dataclasses.replace(one, projections=()) for one in config.layers))
    assert flops_per_token(config, 10) - flops_per_token(bare, 10) == 2 * elements
    for ranks in (1, 2):
        at = deployment(H100, tensor=ranks)
        kernels = group_kernels(at, as_float(2560), arrays.groups, Decode(as_float(3), as_float(10)))
        assert float(kernels["layer_projections"].flops) == 3 * 2 * elements
        stored = [group_weight_bytes(at, as_float(2560), each.groups) for each in (arrays, transformer(bare))]
        assert float(stored[0] - stored[1]) == 2 * elements


def test_the_projections_read_twice_the_width() -> None:
    config, at = read_config(ZAMBA2), deployment(H100, tensor=2)
    attention = next(layer.mixer for layer in config.layers if isinstance(layer.mixer, Attention))
    kernels = attention_mixer(attention).kernels(at, as_float(2560), Decode(as_float(3), as_float(10)))
    assert float(kernels["qkv_projection"].flops) == 3 * 2 * 5120 * 3 * 5120 / 2
    assert float(kernels["output_projection"].flops) == 3 * 2 * 5120 * 2560 / 2
    stored = float(group_weight_bytes(deployment(H100), as_float(2560), transformer(config).groups))
    assert stored == pytest.approx(2 * (parameter_count(config) - 32000 * 2560), rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (ZAMBA2 | {"layers_block_type": None}, "layers_block_type is missing"),
        (ZAMBA2 | {"layers_block_type": ["mamba"] * 60 + ["other"]}, "neither hybrid nor mamba"),
        (ZAMBA2 | {"n_mamba_heads": 77}, "5120 is not a multiple of the 77"),
    ],
)
def test_mistakes(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(fields)
