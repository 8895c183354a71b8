"""RWKV-4 to RWKV-6, RecurrentGemma and xLSTM: the published sizes, their states, kernels by hand, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.catalog import mixer_of
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.config import MLstm, RgLru, Rwkv4, Rwkv6
from jaxperf.models.flops import mixer_flops
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes, kv_cache_bytes
from jaxperf.models.mixer_parameters import mixer_matrices
from jaxperf.models.mixers import Mixer
from jaxperf.models.parameters import kv_bytes_per_token, parameter_breakdown, parameter_count, state_bytes
from jaxperf.training.model_build import training_model
from tests.devices import H100, deployment

COMMON: dict[str, Any] = dict(tie_word_embeddings=False, torch_dtype="bfloat16")


def rwkv(version: int, hidden: int, layers: int, vocabulary: int = 65536) -> dict[str, Any]:
    name = "Rwkv" if version == 4 else f"Rwkv{version}"
    sizes = dict(hidden_size=hidden, num_hidden_layers=layers, vocab_size=vocabulary, attention_hidden_size=hidden)
    heads = {} if version == 4 else {"head_size": 64, "num_attention_heads": 64}
    return COMMON | sizes | heads | {"architectures": [f"{name}ForCausalLM"], "intermediate_size": None}


def griffin(hidden: int, heads: int, layers: int) -> dict[str, Any]:
    sizes = dict(hidden_size=hidden, intermediate_size=6 * hidden, lru_width=hidden, num_attention_heads=heads)
    given = dict(num_hidden_layers=layers, head_dim=256, num_key_value_heads=1, vocab_size=256_000, conv1d_width=4)
    kinds = dict(attention_window_size=2048, block_types=["recurrent", "recurrent", "attention"])
    own = {"architectures": ["RecurrentGemmaForCausalLM"], "tie_word_embeddings": True}
    return COMMON | own | sizes | given | kinds


XLSTM: dict[str, Any] = COMMON | {
    "architectures": ["xLSTMForCausalLM"],
    **dict(embedding_dim=4096, hidden_size=4096, num_blocks=32, num_heads=8, vocab_size=50304, use_bias=False),
    **dict(qk_dim_factor=0.5, v_dim_factor=1.0, ffn_proj_factor=2.667, ffn_round_up_to_multiple_of=64),
}
PUBLISHED = [
    # arXiv:2305.13048, table 2 (recalled): 2 V D + 13 D^2 L + D (11 L + 4)
    (rwkv(4, 768, 12, 50277), 169_342_464, 0.0),
    (rwkv(4, 4096, 32, 50277), 7_392_649_216, 0.0),
    (rwkv(4, 5120, 40, 50277), 14.2e9, 0.01),
    # arXiv:2404.05892, table 2 (recalled): 2 V D + 13 D^2 L + D (14 L + 4), and 464 for 14 in RWKV-6
    (rwkv(5, 2048, 24), 2 * 65536 * 2048 + 13 * 2048**2 * 24 + 2048 * (14 * 24 + 4), 0.0),
    (rwkv(5, 4096, 32), 7_518_044_160, 0.0),
    (rwkv(6, 2048, 24), 2 * 65536 * 2048 + 13 * 2048**2 * 24 + 2048 * (464 * 24 + 4), 0.0),
    (rwkv(6, 2560, 32), 3.1e9, 0.01),
    (rwkv(6, 4096, 32), 7_635_746_816, 0.0),  # Hugging Face, RWKV/v6-Finch-7B-HF (recalled)
    # arXiv:2404.07839, table 1 (recalled)
    (griffin(2560, 10, 26), 2.68e9, 0.01),
    (griffin(4096, 16, 38), 8.58e9, 0.01),
    (XLSTM, 6_865_424_896, 0.0),  # NX-AI/xLSTM-7b, as its class counts it too
]
FIRST = [PUBLISHED[0][0], PUBLISHED[3][0], PUBLISHED[5][0], PUBLISHED[8][0], XLSTM]


@pytest.mark.parametrize(("fields", "published", "tolerance"), PUBLISHED)
def test_published_sizes(fields: dict[str, Any], published: float, tolerance: float) -> None:
    config = read_config(fields)
    assert parameter_count(config) == pytest.approx(published, rel=tolerance, abs=0)
    assert float(training_model(config).parameters) == parameter_count(config)
    of_windows = ["max_position_embeddings is absent; the context was taken to have no limit."]
    assert list(config.assumptions) == (of_windows if "lru_width" in fields else [])


@pytest.mark.parametrize("fields", FIRST, ids=lambda fields: fields["architectures"][0])
def test_one_rank_holds_all_weights_and_tensor_ranks_a_share(fields: dict[str, Any]) -> None:
    config = read_config(fields)
    parts = parameter_breakdown(config)
    layers = parameter_count(config) - parts["embedding"] - parts.get("output_head", 0)
    one, two = (
        float(group_weight_bytes(deployment(H100, tensor=ranks), as_float(config.hidden), transformer(config).groups))
        for ranks in (1, 2)
    )
    assert one == pytest.approx(2 * layers, rel=2e-3)
    assert 0.5 * one <= two < 0.55 * one


def test_a_sequence_keeps_a_state_of_constant_size() -> None:
    for fields, elements, shifted in (
        (FIRST[0], 12 * 3 * 768, 12 * 2 * 768),
        (FIRST[1], 24 * 32 * 64 * 64, 24 * 2 * 2048),
        (FIRST[2], 24 * 32 * 64 * 64, 24 * 2 * 2048),
        (XLSTM, 32 * 8 * (256 * 512 + 256 + 1), 0),
    ):
        config = read_config(fields)
        assert kv_bytes_per_token(config, 2) == 0
        assert state_bytes(config, 2) == 2 * (elements + shifted)
        held = kv_cache_bytes(deployment(H100), transformer(config), as_float(3), as_float(10**6))
        assert float(held) == 3 * (4 * elements + 2 * shifted)


def test_griffin_keeps_windows_and_channels() -> None:
    """26 layers, each third of which attends to the last 2,048 tokens."""
    config = read_config(FIRST[3])
    assert [type(layer.mixer) is RgLru for layer in config.layers] == [index % 3 != 2 for index in range(26)]
    held = kv_cache_bytes(deployment(H100), transformer(config), as_float(1), as_float(10**6))
    assert float(held) == 8 * 2048 * 2 * 256 * 2 + 18 * 2560 * (4 + 3 * 2)


MIXERS = [
    (Rwkv4(1024), "wkv", 23 * 512, 2 * 4 * 3 * 512 + 3 * 512 * 2),
    (Rwkv6(16, 64), "wkv", 7 * 8 * 64 * 64, 2 * 4 * 8 * 64 * 64 + 4 * 512 * 2),
    (Rwkv6(16, 64, 32, 64), "wkv", 7 * 8 * 64 * 64, 2 * 4 * 8 * 64 * 64 + 4 * 512 * 2 + 512 * 4),
    (RgLru(16, 64, 4), "rg_lru", 15 * 512, 2 * 4 * 512 + 4 * 512 * 2),
    (MLstm(16, 32, 64), "linear_attention", 5 * 8 * 32 * 64, 2 * 4 * 8 * 32 * 64 + 2 * 8 * (32 + 64) * 2 + 2 * 8 * 4),
]


@pytest.mark.parametrize(("mixer", "kernel", "flops", "moved"), MIXERS)
def test_kernels_by_hand(mixer: Mixer, kernel: str, flops: int, moved: int) -> None:
    """On two ranks five sequences of one new token, or one of five."""
    at, hidden = deployment(H100, tensor=2), as_float(1024)
    step, prompt = (mixer_of(mixer).kernels(at, hidden, phase) for phase in (Decode(5, 9), Prefill(1, 5)))
    assert float(step[kernel].flops) == 5 * flops
    assert float(step[kernel].bytes_moved) == 5 * moved
    assert float(prompt[kernel].flops) > 0.0
    held = mixer_of(mixer).matrix_elements(hidden, at.layout)
    for kernels in (step, prompt):
        projected = sum(float(cost.flops) for name, cost in kernels.items() if name.endswith("projection"))
        assert projected == 5 * 2 * float(held)
    whole = mixer_of(mixer).matrix_elements(hidden, deployment(H100).layout)
    assert float(whole) == mixer_matrices(mixer, 1024)
    assert mixer_flops(mixer, 10) == mixer_flops(mixer, 10**6) >= 2 * flops


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (rwkv(6, 2048, 24) | {"head_size": 60}, "head_size is 60; it must divide the 2048 elements"),
        (FIRST[3] | {"block_types": ["recurrent", "mamba"]}, "it may contain recurrent and attention"),
        (FIRST[3] | {"lru_width": 2561}, "lru_width is 2561; the 10 blocks of its gates"),
        (XLSTM | {"num_heads": 7}, "the 7 heads must divide the 2048 elements of keys and the 4096 of values"),
        (XLSTM | {"qk_dim_factor": "half"}, "qk_dim_factor is"),
        (rwkv(6, 2048, 24) | {"architectures": ["RWKV6ForCausalLM"]}, "has other projections"),
    ],
)
def test_mistakes_are_one_sentence(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(fields)
