"""MiniMax M3: published sizes, the blocks of tokens its layers choose, what a step of them reads and multiplies."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.attention import attention_mixer
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.config import Attention, Indexer, Mlp, Moe
from jaxperf.models.flops import mixer_flops
from jaxperf.models.parameters import active_parameter_count, kv_bytes_per_token, parameter_breakdown, parameter_count
from jaxperf.training.flops import attended_tokens
from jaxperf.training.model_build import training_model, training_notes
from jaxperf.training.search.plan import Request
from tests.devices import H100, deployment
from tests.io.test_recent_families import PLAIN

FIRST = [0] * 3 + [1] * 57
CHOICE = dict(sparse_num_index_heads=4, sparse_index_dim=128, sparse_topk_blocks=16, sparse_block_size=128)
M3: dict[str, Any] = PLAIN | {
    "architectures": ["MiniMaxM3SparseForCausalLM"],
    **dict(vocab_size=200064, hidden_size=6144, num_hidden_layers=60, head_dim=128, num_attention_heads=64),
    **dict(num_key_value_heads=4, intermediate_size=3072, dense_intermediate_size=12288, n_shared_experts=1),
    **dict(shared_intermediate_size=3072, num_local_experts=128, num_experts_per_tok=4, moe_layer_freq=FIRST),
    "sparse_attention_config": CHOICE | {"sparse_attention_freq": FIRST, "use_sparse_attention": True},
}
MIXER = Attention(64, 4, 128, qk_norm=True, indexer=Indexer(4, 128, 2048, block=128))
HIDDEN = as_float(6144)


def kernels(ranks: int, phase: Decode | Prefill) -> dict[str, Any]:
    return attention_mixer(MIXER).kernels(deployment(H100, tensor=ranks), HIDDEN, phase)


def test_minimax_m3_has_the_values_of_its_checkpoint() -> None:
    """427,040,140,160 values, 865,567,232 of them of images (transformers 5.24); 428 B and 23 B active on the card."""
    config = read_config(M3)
    assert parameter_count(config) == 427_040_140_160 - 865_567_232
    parts = parameter_breakdown(config)
    assert active_parameter_count(config) - parts["embedding"] - parts["output_head"] == pytest.approx(23.5e9, rel=1e-3)
    assert kv_bytes_per_token(config, 2) == (60 * 4 * 2 * 128 + 57 * 128) * 2
    assert [layer.mixer == MIXER for layer in config.layers] == [False] * 3 + [True] * 57
    assert config.layers[0].ffn == Mlp(12288) and isinstance(config.layers[3].ffn, Moe)


def test_the_names_of_the_class_mean_the_same() -> None:
    kinds = {"layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57, "sparse_attention_config": None}
    sizes = dict(index_n_heads=4, index_head_dim=128, index_topk_blocks=16, index_block_size=128)
    sorts = {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 57, "moe_layer_freq": None}
    assert read_config(M3 | kinds | sizes | sorts).layers == read_config(M3).layers
    whole = {"sparse_attention_config": CHOICE | {"sparse_attention_freq": FIRST, "use_sparse_attention": False}}
    assert {layer.mixer.indexer for layer in read_config(M3 | whole).layers} == {None}


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_token_sees_sixteen_blocks_and_scores_every_token(ranks: int) -> None:
    """Queries, keys and scores are divided over the ranks with the heads of keys; the key of the indexer is not."""
    context = 32768
    step = kernels(ranks, Decode(as_float(8), as_float(context)))
    assert float(step["attention"].flops) * ranks == pytest.approx(8 * 4 * 64 * 128 * 2048, rel=0.02)  # and softmax
    assert float(step["indexer"].flops) * ranks == 8 * 4 * (2 * 128 + 3) * context
    assert float(step["indexer"].bytes_moved) == pytest.approx(8 * context * 128 * 2, rel=0.03)
    assert float(step["indexer_projection"].flops) == 8 * 2 * 6144 * (4 / ranks + 1) * 128
    near = mixer_flops(MIXER, context) - mixer_flops(dataclasses.replace(MIXER, indexer=None), 2048)
    assert near == 2 * 4 * 128 * context
    mixer, at = attention_mixer(MIXER), deployment(H100, tensor=ranks)
    assert float(mixer.cached_elements(at.layout, as_float(context))) == context * (2 * 4 * 128 / ranks + 128)
    assert float(mixer.other_elements(HIDDEN, at.layout)) == 6144 * (4 / ranks + 1) * 128


def test_a_prompt_sees_all_before_it_until_the_blocks_are_full() -> None:
    short, long = (float(kernels(1, Prefill(as_float(1), as_float(n)))["attention"].flops) for n in (1024, 8192))
    pairs = [n * (n + 1) // 2 if n <= 2048 else 2048 * 2049 // 2 + (n - 2048) * 2048 for n in (1024, 8192)]
    assert short == pytest.approx(4 * 64 * 128 * pairs[0], rel=0.02)
    assert long / short == pytest.approx(pairs[1] / pairs[0], rel=1e-6)


def test_training_counts_attention_to_the_chosen_tokens() -> None:
    """57 of 60 layers see min(i, 2048) tokens, in the mean of 8192 queries w - w^2 / 2 s; the others half of them."""
    model = read_config(M3)
    plain = read_config(M3 | {"sparse_attention_config": None})
    weights = 57 * (6144 * 5 * 128 + 2 * 128)
    assert float(training_model(model).parameters - training_model(plain).parameters) == pytest.approx(
        weights, rel=1e-4
    )
    seen = attended_tokens(training_model(model), as_float(8192))
    assert float(seen) == pytest.approx((57 * (2048 - 2048**2 / 2 / 8192) + 3 * 4096) / 60)
    assert [training_notes(each) for each in (model, plain)] == [(), ()]
    request = Request("m3", training_model(model), 8, 4096, max_context=2048, remarks=("a remark",))
    assert request.notes == ("sequences of 4,096 tokens are longer than the 2,048 of m3.", "a remark.")


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"Indexer.top_k is 100; it must be whole blocks of 64"):
        Indexer(4, 128, 100, block=64)
    with pytest.raises(InputError, match="Attention.indexer needs causal attention to keys of its own"):
        dataclasses.replace(MIXER, window=128)
    with pytest.raises(InputError, match="mlp_layer_types has an item that is neither dense nor sparse"):
        read_config(M3 | {"mlp_layer_types": ["dense"] * 59 + ["other"]})
    with pytest.raises(InputError, match="sparse_attention_freq has 3 items; it must have 60"):
        read_config(M3 | {"sparse_attention_config": {"sparse_attention_freq": [0, 0, 1]}})
