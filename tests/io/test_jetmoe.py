"""JetMoE: published sizes, and the experts of its queries by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.flops import active_matrix_parameters
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import active_parameter_count, parameter_breakdown, parameter_count
from jaxperf.models.storage import stored_bytes
from jaxperf.training.model_build import training_model
from tests.devices import H100, deployment

JETMOE: dict[str, Any] = {
    "architectures": ["JetMoeForCausalLM"],
    **dict(hidden_size=2048, num_hidden_layers=24, num_key_value_heads=16, kv_channels=128, intermediate_size=5632),
    **dict(num_local_experts=8, num_experts_per_tok=2, vocab_size=32000, max_position_embeddings=4096),
    **dict(tie_word_embeddings=True, torch_dtype="bfloat16"),
}
HEADS = 16 * 128 * 2048  # elements of one expert's queries, or outputs


def test_jetmoe_8b_has_its_published_sizes() -> None:
    """8.52 B in all, 2.2 B in use without the tables (arXiv:2404.07413, recalled)."""
    config = read_config(JETMOE)
    assert config.assumptions == () and config.layers[0].mixer.heads == 32
    assert parameter_count(config) == pytest.approx(8.52e9, rel=0.01)
    assert active_parameter_count(config) - 2 * 32000 * 2048 == pytest.approx(2.2e9, rel=0.01)
    assert parameter_breakdown(config)["attention"] == 24 * (2 * 8 * HEADS + 2 * HEADS + 8 * 2048)
    assert float(training_model(config).parameters) == parameter_count(config)


def test_a_token_uses_two_experts_and_memory_holds_all() -> None:
    config = read_config(JETMOE)
    at, group, hidden = deployment(H100), transformer(config).groups[0], as_float(2048)
    kernels = group.mixer.kernels(at, hidden, Decode(1, 100))
    assert float(kernels["query_projection"].flops) == float(kernels["output_projection"].flops) == 2 * 2 * HEADS
    assert float(kernels["kv_projection"].flops) == 2 * 2 * HEADS
    read = float(kernels["query_projection"].bytes_moved)
    assert read == pytest.approx(2 * 2 * HEADS + 2 * (2 * 2048 + 4096), rel=1e-3)
    many = group.mixer.kernels(at, hidden, Decode(256, 100))["query_projection"]
    assert float(many.bytes_moved) > 0.99 * 2 * 8 * HEADS  # all experts are read
    layers = parameter_count(config) - 32000 * 2048 - 2048
    stored = [float(group_weight_bytes(deployment(H100, tensor=ranks), hidden, (group,))) for ranks in (1, 2)]
    assert stored[0] == pytest.approx(2 * layers, rel=1e-3)
    assert stored[1] == pytest.approx(stored[0] / 2, rel=1e-3)
    used = 24 * (6 * HEADS + 8 * 2048 + 2 * 3 * 5632 * 2048 + 8 * 2048) + 32000 * 2048
    assert active_matrix_parameters(config) == used


def test_quantized_experts_of_queries_are_stored_small() -> None:
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    plain, small = read_config(JETMOE), read_config(JETMOE | {"quantization_config": fp8})
    matrices = 24 * (2 * 8 * HEADS + 2 * HEADS + 8 * 2048 + 8 * 3 * 5632 * 2048)
    assert stored_bytes(plain) - stored_bytes(small) == matrices


def test_heads_that_are_not_of_the_chosen_experts() -> None:
    with pytest.raises(InputError, match="must be num_experts_per_tok x num_key_value_heads, 32"):
        read_config(JETMOE | {"num_attention_heads": 16})
