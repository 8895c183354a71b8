"""Nemotron-Labs Dory: layers that are passed twice with the same weights, each pass with its own keys and values."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import read_config
from jaxperf.models.parameters import kv_bytes_per_token, parameter_count

DORY: dict[str, Any] = {
    "architectures": ["DoryForCausalLM"],
    **dict(hidden_size=2560, intermediate_size=7168, num_hidden_layers=36, num_attention_heads=16, head_dim=256),
    **dict(num_key_value_heads=4, vocab_size=131_072, max_position_embeddings=8192, sliding_window=1024),
    **dict(n_input_layers=8, n_output_layers=8, n_recurrent_layers=20, n_recurrent_loops=2),
    **dict(tie_word_embeddings=False, torch_dtype="bfloat16"),
}
PAIRED = DORY | dict(num_hidden_layers=72, n_input_layers=16, n_output_layers=16, n_recurrent_layers=40)


@pytest.mark.parametrize("loops", [1, 2, 4])
def test_a_pass_more_has_no_more_weights(loops: int) -> None:
    """3,975,229,440 in transformers 5.24 ("4B")."""
    config = read_config(DORY | {"n_recurrent_loops": loops})
    assert config.assumptions == () and parameter_count(config) == 3_975_229_440
    assert len(config.layers) == 16 + 20 * loops and sum(layer.shared for layer in config.layers) == 20 * (loops - 1)
    assert kv_bytes_per_token(config, 2) == len(config.layers) * 2 * 4 * 256 * 2
    assert [layer.mixer.window for layer in config.layers[:4]] == [1024, 1024, 1024, None]


def test_released_configs_count_blocks() -> None:
    kinds = ["sliding_attention", "mlp"] * 3 + ["full_attention", "mlp"]
    assert read_config(PAIRED | {"layer_types": kinds * 9}).layers == read_config(DORY).layers


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recurrent_kv_cache_mode": "last_loop"}, 'recurrent_kv_cache_mode must be "per_loop"'),
        ({"n_recurrent_layers": 30}, "add up to 46; there are 36 layers"),
    ],
)
def test_mistakes(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(DORY | changes)
