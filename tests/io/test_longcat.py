"""LongCat-Flash: published sizes, choices of the router that do nothing, one step of its kernels."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.config import Mlp, Moe
from jaxperf.models.flops import active_matrix_parameters
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import active_parameter_count, kv_bytes_per_token, parameter_breakdown, parameter_count
from tests.devices import H100, deployment
from tests.io.test_recent_families import PLAIN, without_table

LONGCAT: dict[str, Any] = PLAIN | {
    "architectures": ["LongcatFlashForCausalLM"],
    **dict(vocab_size=131072, hidden_size=6144, num_layers=28, num_attention_heads=64, ffn_hidden_size=12288),
    **dict(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
    **dict(n_routed_experts=512, zero_expert_num=256, moe_topk=12, expert_ffn_hidden_size=2048),
}


def test_longcat_flash_has_its_published_sizes() -> None:
    """560 B, about 27 B of them active, 18.6 to 31.3 as a token has it (arXiv:2509.01322). The class of transformers
    5.24 has 560,664,958,976 without the biases that choose, and without the up-projections that it gives zero experts.
    """
    config = read_config(LONGCAT)
    biases = 28 * 768
    assert parameter_count(config) == 560_664_958_976 + biases
    assert without_table(config) == pytest.approx(27e9, rel=0.01)
    assert kv_bytes_per_token(config, 2) == 56 * (512 + 64) * 2
    assert parameter_count(read_config(LONGCAT | {"num_layers": None, "num_hidden_layers": 56})) == parameter_count(
        config
    )


def test_half_of_the_layers_have_experts_that_do_nothing_beside_those_that_work() -> None:
    first, second = read_config(LONGCAT).layers[:2]
    assert isinstance(first.ffn, Moe) and second.ffn == Mlp(12288)
    assert (first.ffn.experts_per_token, first.ffn.choices, first.ffn.shared_intermediate) == (8, 768, 12288)
    all_work = read_config(LONGCAT | {"zero_expert_num": 0})
    assert isinstance(all_work.layers[0].ffn, Moe) and all_work.layers[0].ffn.experts_per_token == 12
    idle = active_parameter_count(all_work) - active_parameter_count(read_config(LONGCAT))
    assert idle == 28 * (4 * 3 * 2048 * 6144 - 256 * (6144 + 1))


def test_the_router_of_a_step_has_a_column_for_every_choice() -> None:
    config = read_config(LONGCAT)
    model, at = transformer(config), deployment(H100)
    router = model.groups[0].ffn
    assert router is not None and float(router.other_elements(as_float(6144), at.layout)) == 768 * 6144
    parts = parameter_breakdown(config)
    stored = float(group_weight_bytes(at, as_float(6144), model.groups))
    assert stored == pytest.approx(2 * (parameter_count(config) - parts["embedding"] - parts["output_head"]), rel=1e-4)
    visited = sum(parts[name] for name in ("attention", "mlp", "router", "shared_experts", "output_head"))
    assert active_matrix_parameters(config) == pytest.approx(visited + 28 * 8 * 3 * 2048 * 6144, rel=1e-4)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_layers": None, "num_hidden_layers": 55}, "num_hidden_layers is 55; it must be even"),
        ({"moe_topk": 769}, "moe_topk is 769; it must be at most the 768 choices"),
        ({"zero_expert_num": -1}, "zero_expert_num"),
    ],
)
def test_mistakes(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(LONGCAT | fields)
