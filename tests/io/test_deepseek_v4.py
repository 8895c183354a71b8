"""DeepSeek V4: published sizes and cache, what each layer sees, formats of the checkpoint, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.block_formats import own_formats
from jaxperf.models.blocks.compressed import compressed_mixer
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.config import CompressedAttention, Indexer, Moe
from jaxperf.models.deployment import Parallelism
from jaxperf.models.flops import flops_per_token, mixer_flops
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes, kv_cache_bytes
from jaxperf.models.parameters import parameter_breakdown, parameter_count
from jaxperf.models.step import prefill_cost
from jaxperf.models.storage import stored_bytes
from jaxperf.training.flops import attended_tokens, step_flops
from jaxperf.training.layout import training_layout
from jaxperf.training.model_build import training_model, training_notes
from tests.devices import H100, deployment
from tests.io.test_recent_families import PLAIN, without_table

ROOMY = H100.replace(memory_capacity=4e12)

V4 = PLAIN | {
    "architectures": ["DeepseekV4ForCausalLM"],
    **dict(vocab_size=129280, max_position_embeddings=2**20, head_dim=512, qk_rope_head_dim=64, sliding_window=128),
    **dict(n_shared_experts=1, num_experts_per_tok=6, num_hash_layers=3, hc_mult=4, num_nextn_predict_layers=1),
    **dict(index_n_heads=64, index_head_dim=128, o_lora_rank=1024),
}
V4_FLASH = V4 | {
    **dict(hidden_size=4096, moe_intermediate_size=2048, num_hidden_layers=43, num_attention_heads=64),
    **dict(q_lora_rank=1024, n_routed_experts=256, o_groups=8, index_topk=512),
    "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0],
}
V4_PRO = V4 | {
    **dict(hidden_size=7168, moe_intermediate_size=3072, num_hidden_layers=61, num_attention_heads=128),
    **dict(q_lora_rank=1536, n_routed_experts=384, o_groups=16, index_topk=1024),
    "compress_ratios": [128, 128] + [4, 128] * 29 + [4, 0],
}


def test_deepseek_v4_has_its_published_sizes_and_cache() -> None:
    """V4-Flash 284 B, 13 active; V4-Pro 1.6 T, 49 active; a million tokens of the Pro keep 9.62 GiB in 16 bits (model
    cards of deepseek-ai). With the layers of its class transformers 5.24 counts 284,325,879,255 for the Flash."""
    flash, pro = read_config(V4_FLASH), read_config(V4_PRO)
    kinds = ["heavily_compressed_attention"] * 2
    kinds += [f"{'compressed_sparse' if index % 2 else 'heavily_compressed'}_attention" for index in range(41)]
    assert parameter_count(read_config(V4_FLASH | {"layer_types": kinds})) == 284_325_879_255
    assert parameter_count(flash) == pytest.approx(284e9, rel=0.002)
    assert parameter_count(pro) == pytest.approx(1.6e12, rel=0.02)
    assert without_table(flash) == pytest.approx(13e9, rel=0.03) and without_table(pro) == pytest.approx(49e9, rel=0.01)
    at = deployment(H100)
    cache = kv_cache_bytes(at, transformer(pro), as_float(1), as_float(2**20))
    assert float(cache) / 2**30 == pytest.approx(9.62, abs=0.005)


def test_layers_of_deepseek_v4() -> None:
    """Window alone, then compressed 4 to 1 with a choice and 128 to 1 without; the first experts are hashed."""
    model = read_config(V4_FLASH)
    window, sparse, heavy = (model.layers[index].mixer for index in (0, 2, 3))
    assert window == CompressedAttention(64, 512, 64, 1024, 128, 8, 1024)
    assert sparse == dataclasses.replace(window, ratio=4, indexer=Indexer(64, 128, 512))  # type: ignore[type-var]
    assert heavy == dataclasses.replace(window, ratio=128)  # type: ignore[type-var]
    assert [layer.mixer for layer in model.layers] == [window, window, *[sparse, heavy] * 20, sparse]
    corrected = [isinstance(layer.ffn, Moe) and layer.ffn.correction_bias for layer in model.layers]
    assert corrected == [False] * 3 + [True] * 40 and model.mtp_layers[0].mixer == window
    assert mixer_flops(sparse, 2**20) == 4 * 64 * 512 * (128 + 512) + 2 * 64 * 128 * 2**18
    assert mixer_flops(heavy, 2**20) == 4 * 64 * 512 * (128 + 2**13)


def test_training_of_deepseek_v4_by_hand() -> None:
    """All weights; of 4096 tokens a query sees 128 (but for the first ones), in 20 of 43 layers 1 in 128 of those
    before it, in 21 one in 4 of the last 4 x 512; forward and backward are three times the inference's FLOP."""
    config = read_config(V4_FLASH)
    model, sequence = training_model(config), as_float(4096)
    assert float(model.parameters) == pytest.approx(parameter_count(config), rel=1e-12) and float(model.streams) == 4.0
    window, choice = 128 - 128**2 / 2 / 4096, (2048 - 2048**2 / 2 / 4096) / 4
    assert float(attended_tokens(model, sequence)) == pytest.approx(window + 20 / 43 * 2048 / 128 + 21 / 43 * choice)
    useful, _ = step_flops(model, training_layout(global_batch=1, sequence=4096))
    mean = sum(flops_per_token(config, 1 + 128 * index) for index in range(33)) / 33
    streams = 43 * 2 * 24 * 4 * 4096 * 2 + 4 * 4 * 4096 * 2
    assert float(useful) == pytest.approx(3 * 4096 * (mean - streams), rel=0.003)
    assert training_notes(config)[0].startswith(
        "the projections that streams of the residual are mixed by are left out"
    )


def test_four_streams_of_the_residual_are_mixed_around_every_block() -> None:
    """4 x 4096 elements a token: read for the weights and for the sum; read with the block's output and written."""
    config = dataclasses.replace(read_config(V4_FLASH), layers=(read_config(V4_FLASH).layers[0],) * 2)
    one = dataclasses.replace(config, layers=tuple(dataclasses.replace(each, streams=1) for each in config.layers))
    at, tokens = deployment(ROOMY, pipeline=2), as_float(512)
    mixed, plain = (prefill_cost(at, transformer(model), as_float(1), tokens, as_float(0)) for model in (config, one))
    activations, blocks, own = 512 * 4096 * 2, 2, 24 * 4 * 4096 * 2
    for block in ("attention", "ffn"):
        moved = {name: float(cost.bytes_moved) for name, cost in mixed.kernels.items() if name.startswith(block)}
        weights_of_streams = blocks * (4 * activations + own + 512 * 24 * 2)
        assert moved[f"{block}_streams_projection"] == pytest.approx(weights_of_streams, rel=0.05)  # sums in parts
        assert moved[f"{block}_streams_collapse"] == blocks * 5 * activations
        assert moved[f"{block}_streams_expand"] == blocks * 9 * activations
        assert moved[f"{block}_norm"] == blocks * 2 * activations
        assert float(plain.kernels[f"{block}_norm"].bytes_moved) == blocks * 4 * activations
    sends = [float(each.kernels["pipeline_send"].bytes_moved) for each in (mixed, plain)]
    assert sends[0] == 4 * sends[1] == 4 * activations
    assert float(mixed.memory.activations - plain.memory.activations) == 3 * activations
    final = mixed.kernels["final_streams_collapse"]
    assert float(final.bytes_moved) == 5 * 4096 * 2 and float(mixed.time) > float(plain.time)


def test_deepseek_v4_stores_its_experts_in_4_bits_and_the_rest_in_8() -> None:
    """`expert_dtype` "fp4" beside the FP8 of all else: 277.0 B of the 284.3 are of routed experts."""
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    model = read_config(V4_FLASH | {"expert_dtype": "fp4", "quantization_config": fp8})
    assert own_formats(model, 5) == (("mixer", "fp8"), ("shared", "fp8"))
    parts = parameter_breakdown(model)
    plain = parameter_count(model) - parts["experts"] - parts["attention"] - parts["shared_experts"]
    rest = parts["attention"] + parts["shared_experts"]
    assert stored_bytes(model) == pytest.approx(parts["experts"] * 4.25 / 8 + rest + plain * 2, rel=1e-3)


@pytest.mark.parametrize("ranks", [8, 16, 32])
def test_ranks_divide_the_projection_of_a_group_where_there_are_more_of_them_than_groups(ranks: float) -> None:
    """8 groups of 8 heads; each rank has one of them, or its share of one, whose outputs all of them project on."""
    mixer = compressed_mixer(read_config(V4_FLASH).layers[0].mixer)
    phase, hidden = Decode(as_float(3), as_float(10)), as_float(4096)
    one, shard = (mixer.kernels(deployment(H100, tensor=each), hidden, phase) for each in (1, ranks))
    for name in ("query_projection", "output_down_projection"):
        assert float(shard[name].flops) * ranks == float(one[name].flops)
    assert float(shard["output_projection"].flops) == 3 * 2 * 1024 * 4096
    held = 4096 * (1024 + 512) + (1024 + 1024) * 64 / ranks * 512 + 1024 * 4096
    assert float(mixer.matrix_elements(hidden, Parallelism(ranks))) == held


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (V4_FLASH | {"compress_ratios": [8] * 43}, "compress_ratios contains 8; it may contain 0, 4, 128"),
        (V4_FLASH | {"compress_ratios": None}, "layer_types and compress_ratios are missing"),
        (V4_FLASH | {"o_groups": 7}, "they must divide the 64 heads"),
    ],
)
def test_mistakes(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_config(fields)


def test_a_rank_holds_the_weights_of_its_heads_and_of_what_all_share() -> None:
    """All weights on one rank are those that are counted, but for vectors and learned positions."""
    model = read_config(V4_FLASH)
    parts = parameter_breakdown(model)
    stored = float(group_weight_bytes(deployment(H100), as_float(4096), transformer(model).groups))
    ends = parts["embedding"] + parts["output_head"] + 4 * (4 * 4096 + 1) + 1
    assert stored == pytest.approx(2 * (parameter_count(model) - ends), rel=1e-4)
