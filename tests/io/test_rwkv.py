"""RWKV-7: the published sizes, its state, kernels by hand, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.blocks.rwkv7 import rwkv7_mixer
from jaxperf.models.config import Mlp, Rwkv7
from jaxperf.models.flops import mixer_flops
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes, kv_cache_bytes
from jaxperf.models.parameters import kv_bytes_per_token, parameter_breakdown, parameter_count, state_bytes
from jaxperf.training.model_build import training_model
from tests.devices import H100, deployment

WORLD: dict[str, Any] = {
    "architectures": ["RWKV7ForCausalLM"],
    **dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=24, head_dim=64, vocab_size=65536),
    **dict(decay_low_rank_dim=96, a_low_rank_dim=96, v_low_rank_dim=64, gate_low_rank_dim=256),
    **dict(tie_word_embeddings=False, torch_dtype="bfloat16", attn=None),
}
LARGER = WORLD | dict(hidden_size=2560, intermediate_size=10240, num_hidden_layers=32, gate_low_rank_dim=320)


@pytest.mark.parametrize(("fields", "published"), [(WORLD, 1_527_404_544), (LARGER, 2_947_735_040)])
def test_world_3_has_its_published_sizes(fields: dict[str, Any], published: int) -> None:
    """1.5 B and 2.9 B: 2 D V + 4 D + L D (12 D + 2 (d_w + d_a + d_v + d_g) + 19) - (2 D d_v + D) (arXiv:2503.14456,
    formula and totals recalled)."""
    config = read_config(fields)
    width, depth = fields["hidden_size"], fields["num_hidden_layers"]
    ranks = 96 + 96 + 64 + fields["gate_low_rank_dim"]
    formula = 2 * width * 65536 + 4 * width + depth * width * (12 * width + 2 * ranks + 19) - (2 * 64 + 1) * width
    assert parameter_count(config) == formula == published
    assert float(training_model(config).parameters) == published


def test_a_sequence_keeps_a_state_of_constant_size() -> None:
    """In each of 24 layers 32 heads of 64 x 64 numbers, and the token before each of the two blocks."""
    config = read_config(WORLD)
    assert kv_bytes_per_token(config, 2) == 0
    assert state_bytes(config, 2) == 24 * (32 * 64 * 64 + 2 * 2048) * 2
    held = [kv_cache_bytes(deployment(H100), transformer(config), as_float(3), as_float(n)) for n in (1, 10**6)]
    assert float(held[0]) == float(held[1]) == 3 * 24 * (32 * 64 * 64 * 4 + 2 * 2048 * 2)


def test_kernels_by_hand() -> None:
    mixer, hidden = Rwkv7(32, 64, 96, 96, 256, 64), as_float(2048)
    step, prompt = (
        rwkv7_mixer(mixer).kernels(deployment(H100, tensor=2), hidden, phase) for phase in (Decode(5, 9), Prefill(1, 5))
    )
    for kernels in (step, prompt):
        assert float(kernels["rkv_projection"].flops) == 5 * 2 * 3 * 2048 * 1024
        assert float(kernels["low_rank_projection"].flops) == 5 * 2 * 512 * (2048 + 1024)
        assert float(kernels["output_projection"].flops) == 5 * 2 * 1024 * 2048
        assert float(kernels["token_shift"].bytes_moved) == 5 * 7 * 2048 * 2
    assert float(step["wkv"].flops) == 5 * 9 * 16 * 64 * 64
    assert float(step["wkv"].bytes_moved) == 5 * (2 * 4 * 16 * 64 * 64 + 4 * 1024 * 2 + 2 * 1024 * 4)
    assert mixer_flops(mixer, 10) == mixer_flops(mixer, 10**6) == 9 * 32 * 64 * 64 + 2 * 2 * 2 * 2048


def test_one_rank_holds_all_weights() -> None:
    config = read_config(WORLD)
    parts = parameter_breakdown(config)
    layers = parameter_count(config) - parts["embedding"] - parts["output_head"]
    stored = group_weight_bytes(deployment(H100), as_float(2048), transformer(config).groups)
    assert float(stored) == pytest.approx(2 * layers, rel=1e-3)


def test_defaults_and_mistakes() -> None:
    absent = {key: value for key, value in WORLD.items() if key != "intermediate_size"}
    assert read_config(absent).layers[1].ffn == Mlp(8192, gated=False)
    for changes, said in (
        ({"attn": {"layers": [3]}}, "RWKV-7 with layers of attention is not supported"),
        ({"head_dim": 60}, "the hidden size 2048 is not 34 heads of 60"),
    ):
        with pytest.raises(InputError, match=said):
            read_config(WORLD | changes)
