"""HRM-Text: two stacks that are stored once and passed many times, each pass with its own keys and values."""

from __future__ import annotations

from typing import Any

import pytest

from jaxperf.io.huggingface import read_config
from jaxperf.models.parameters import kv_bytes_per_token, parameter_count

HRM: dict[str, Any] = {
    **{"architectures": ["HrmTextForCausalLM"], "model_type": "hrm_text", "torch_dtype": "bfloat16"},
    **{"vocab_size": 65536, "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16},
    **{"num_attention_heads": 12, "head_dim": 128, "max_position_embeddings": 2048, "tie_word_embeddings": False},
    **{"H_cycles": 2, "L_cycles": 3, "prefix_lm": False},
}


@pytest.mark.parametrize(("cycles", "passes"), [({}, 8), ({"H_cycles": 1, "L_cycles": 1}, 2), ({"L_cycles": 5}, 12)])
def test_a_pass_more_has_no_more_weights(cycles: dict[str, int], passes: int) -> None:
    config = read_config(HRM | cycles)
    assert config.assumptions == () and len(config.layers) == passes * 16
    assert parameter_count(config) == 2 * 65536 * 1536 + 2 * 16 * (5 * 1536**2 + 3 * 1536 * 4096) + 1536
    assert kv_bytes_per_token(config, 2) == passes * 16 * 2 * 1536 * 2


def test_saved_configs_count_all_passes_as_layers() -> None:
    saved = HRM | {"num_hidden_layers": 128, "num_layers_per_stack": 16}
    assert read_config(saved).layers == read_config(HRM).layers


def test_what_is_not_timed_is_said() -> None:
    (note,) = read_config(HRM | {"prefix_lm": True}).assumptions
    assert "counted as causal" in note
