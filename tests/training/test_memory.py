"""Memory against Korthikanti et al. 2022 (activations) and Rajbhandari et al. 2020 (states), evaluated by hand."""

from __future__ import annotations

import dataclasses

import pytest

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.layout import Layout, training_layout
from jaxperf.training.memory import kept_activations, layer_activations, stage_memory, stage_parameters
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape
from jaxperf.training.optimizer import optimizer_step

S, B, H, A = 2048, 4, 6144, 64  # the 22 B model of arXiv:2205.05198, table 3
GPT_22B = training_model_from_shape(48, H, A, A, H // A, 4 * H, False, 51200, tied=True, dropout=True)
ONE = as_float(1.0)
ASSUMED = assumed_training_efficiencies()


def layer(model: TrainingModel, **numbers: float) -> float:
    layout = training_layout(**{"sequence": S, "microbatch": B, "flash": 0, **numbers})
    return float(kept_activations(model, layout, ONE))


SCORES = 5 * A * S / H


@pytest.mark.parametrize("t", [1, 2, 8])
def test_activations_of_a_layer_are_those_of_korthikanti(t: int) -> None:
    sbh = S * B * H
    assert layer(GPT_22B, tensor=t, sequence_parallel=0) == pytest.approx(sbh * (10 + (24 + SCORES) / t), rel=1e-12)
    assert layer(GPT_22B, tensor=t, sequence_parallel=1) == pytest.approx(sbh / t * (34 + SCORES), rel=1e-12)
    assert layer(GPT_22B, tensor=t, recompute="selective") == pytest.approx(34 * sbh / t, rel=1e-12)
    assert layer(GPT_22B, tensor=t, recompute="full", sequence_parallel=0) == pytest.approx(2 * sbh, rel=1e-12)


def test_flash_attention_drops_the_scores() -> None:
    kept = layer(GPT_22B, tensor=8, flash=1)
    assert kept == pytest.approx((34 * S * B * H + 4 * A * S * B) / 8, rel=1e-12)  # and one fp32 sum a head


def test_a_gated_grouped_layer_tensor_by_tensor() -> None:
    """Llama-3-8B: inputs of norms and products 4 x 2 h, q and o 2 h, k and v 2 x h/4, gate, up and down 3 x 2 f."""
    model = training_model(load_model("llama-3-8b"))
    h, f, tokens = 4096, 14336, 8192
    expected = 4 * 2 * h + 2 * 2 * h + 2 * 2 * h / 4 + 3 * 2 * f + 4 * 32
    assert layer(model, sequence=8192, microbatch=1, flash=1) == pytest.approx(tokens * expected, rel=1e-12)


def test_experts_keep_their_routed_rows() -> None:
    """Mixtral: two routed copies of a token, in and out, beside the residual rows and a dense layer's attention."""
    model = training_model(load_model("mixtral-8x7b"))
    h, f, tokens = 4096, 14336, 4096
    attention = 4 * h + 2 * h + 2 * h + 2 * 2 * h / 4 + 4 * 32
    expected = attention + 4 * h + 2 * (4 * h + 3 * 2 * f)
    layout = training_layout(sequence=4096)
    assert float(layer_activations(model, layout, ONE)) == pytest.approx(tokens * expected, rel=1e-12)
    busier = float(layer_activations(model, layout, as_float(1.5)))
    assert busier == pytest.approx(tokens * (expected + 0.5 * 2 * (4 * h + 3 * 2 * f)), rel=1e-12)


@pytest.mark.parametrize("zero, expected", [(0, 16), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)])
def test_states_by_zero_stage(zero: int, expected: float) -> None:
    """Bytes a parameter of a 7.5 B model on 64 ranks: 120, 31.4, 16.6 and 1.9 GB (arXiv:1910.02054, figure 1)."""
    model = TrainingModel(layers=1, hidden=1, vocab=0, attention_layers=1, attention_weights=7.5e9)
    layout = training_layout(zero=zero, data=64, global_batch=64, gradient_bytes=2, sequence=1)
    memory = stage_memory(model, layout, ONE, as_float(0.0))
    states = float(memory.weights + memory.gradients + memory.optimizer)
    assert states == pytest.approx(7.5e9 * expected, rel=1e-12)
    assert states / 1e9 == pytest.approx({0: 120, 1: 31.4, 2: 16.6, 3: 1.9}[zero], rel=0.03)


@pytest.mark.parametrize(
    ("model", "ranks"),
    [
        ("llama-3-8b", {}),
        ("llama-3-8b", {"tensor": 4, "pipeline": 2}),
        ("llama-3-8b", {"data": 4, "shard_group": 1}),
        ("mixtral-8x7b", {}),
        ("mixtral-8x7b", {"tensor": 4, "expert": 4}),
    ],
)
def test_zero_3_gathers_nothing_where_nothing_is_split(model: str, ranks: dict[str, int]) -> None:
    described = training_model(load_model(model))
    none, all_split = (
        stage_memory(described, training_layout(**{"zero": zero, "global_batch": 16, **ranks}), ONE, as_float(0.0))
        for zero in (0, 3)
    )
    assert float(all_split.total) == float(none.total)


def test_zero_3_gathers_the_part_of_a_layer_that_is_split() -> None:
    """Of eight ranks each has the only copy of its expert, and all have one of the rest."""
    model = training_model(load_model("mixtral-8x7b"))
    layout = training_layout(data=8, global_batch=8, expert=8, zero=3)
    own = stage_parameters(model, layout, model.layers, ONE)
    assert float(own.split_layer(layout)) == float(own.layer)
    shared = dataclasses.replace(layout, expert=as_float(4.0))
    both = stage_parameters(model, shared, model.layers, ONE)
    assert float(both.split_layer(shared)) == float(both.layer + both.expert_layer)


@pytest.mark.parametrize(("vocab", "live"), [(1000, 2 * 12 * 512**2), (128000, 12 * 512**2 + 128000 * 512)])
def test_zero_3_gathers_a_layer_and_the_next_or_a_table(vocab: int, live: float) -> None:
    """At both ends of the model a layer's neighbor is the token table or the head, in 16 bits; middle stages have
    none."""
    model = training_model_from_shape(8, 512, 4, 4, 128, 2048, False, vocab)

    def buffers(zero: float) -> float:
        layout = training_layout(zero=zero, data=8, global_batch=64)
        return float(stage_memory(model, layout, ONE, as_float(0.0)).temporary)

    assert buffers(3) - buffers(1) == pytest.approx(2 * live, rel=5e-3)  # vectors aside
    middle = stage_memory(
        dataclasses.replace(model, table=as_float(0.0), head=as_float(0.0)),
        training_layout(zero=3, data=8, global_batch=64),
        ONE,
        as_float(0.0),
    )
    assert float(middle.temporary) == pytest.approx(2 * 2 * 12 * 512**2, rel=5e-3)


def test_zero_2_keeps_whole_gradients_in_a_pipeline() -> None:
    base = {"zero": 2, "data": 8, "global_batch": 64}
    assert float(training_layout(pipeline=4, **base).split_gradients) == 0
    assert float(training_layout(pipeline=1, **base).split_gradients) == 1


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_dualpipe_keeps_two_stages_and_splits_them_over_twice_the_ranks(zero: float) -> None:
    """The states of a step are the same in sum: what ZeRO splits has one more copy to be split over."""
    one, both = (
        stage_memory(GPT_22B, training_layout(schedule=name, pipeline=8, data=4, zero=zero, global_batch=64), ONE, ONE)
        for name in ("1f1b", "dualpipe")
    )
    split = {"optimizer": zero >= 1, "gradients": zero >= 3, "weights": zero >= 3}
    for kind, shared in split.items():
        assert float(getattr(both, kind)) == (1.0 if shared else 2.0) * float(getattr(one, kind)), kind


@pytest.mark.parametrize("name", ["llama-3-8b", "llama-3.2-1b"])
def test_the_first_rank_of_zb_v_has_both_ends(name: str) -> None:
    """The V of arXiv:2401.10241 runs back to it: embedding and head, of a tied model one table, and the logits."""
    model = training_model(load_model(name))
    layout = training_layout(schedule="zb-v", interleave=2, pipeline=4, zero=0, global_batch=16)
    memory = stage_memory(model, layout, ONE, as_float(0.0))
    own = (float(model.parameters) - float(model.tables * model.embedding)) / 4
    held = own + (1 if float(model.tied) else 2) * float(model.embedding)
    for kind, itemsize in (("weights", 2), ("gradients", 4), ("optimizer", 12)):
        assert float(getattr(memory, kind)) == pytest.approx(itemsize * held, rel=1e-12)
    assert float(memory.temporary) == 4096 * float(model.vocab) * (2 + 4)


def test_a_shard_group_splits_over_its_own_ranks_only() -> None:
    model = TrainingModel(layers=1, hidden=1, vocab=0, attention_layers=1, attention_weights=1e9)

    def weights(group: float) -> float:
        layout = training_layout(zero=3, data=64, shard_group=group, global_batch=64)
        return float(stage_memory(model, layout, ONE, as_float(0.0)).weights)

    assert weights(8) == 8 * weights(0) == pytest.approx(2e9 / 8)


def test_experts_are_split_over_their_own_ranks() -> None:
    """DeepSeek-V3 on 2048 devices, 16 stages, 64 experts' ranks: 656 B of experts / 1024 a rank (arXiv:2412.19437)."""
    model = training_model(load_model("deepseek-v3"))
    layout = training_layout(pipeline=16, data=128, expert=64)
    own = stage_parameters(model, layout, as_float(61.0), as_float(0.0))
    assert float(own.experts) == pytest.approx(58 * 256 * 3 * 7168 * 2048 / 64)
    assert float(own.dense + own.experts * 64) == pytest.approx(671.03e9 - 2 * 129280 * 7168, rel=1e-4)


def test_offloaded_and_recomputed_activations_leave() -> None:
    base = {"sequence": S, "microbatch": B, "tensor": 8, "global_batch": 64}
    kept = float(stage_memory(GPT_22B, training_layout(**base), ONE, as_float(0.0)).activations)
    half = float(stage_memory(GPT_22B, training_layout(offload=0.5, **base), ONE, as_float(0.0)).activations)
    assert half == pytest.approx(0.5 * kept)
    partly = training_layout(recompute="full", recomputed_share=0.25, **base)
    full = training_layout(recompute="full", **base)
    memory = [float(stage_memory(GPT_22B, each, ONE, as_float(0.0)).activations) for each in (partly, full)]
    assert memory[0] == pytest.approx(0.75 * kept + 0.25 * memory[1])


def test_lora_trains_adapters_only() -> None:
    """Rank 16 on all linear layers of Llama-3-8B: q, k, v are one adapted layer, gate and up another."""
    model = training_model(load_model("llama-3-8b"))
    layout = training_layout(lora_rank=16, frozen=1)
    memory = stage_memory(model, layout, ONE, as_float(0.0))
    h, f = 4096, 14336
    adapters = 16 * 32 * ((h + 1.5 * h) + (h + h) + (h + 2 * f) + (f + h))
    assert float(memory.optimizer) == pytest.approx(12 * adapters)
    assert float(memory.gradients) == pytest.approx(4 * adapters)
    assert float(memory.weights) == pytest.approx(2 * (float(model.parameters) + adapters))


def test_adapters_of_experts_are_split_as_their_experts() -> None:
    """Rank 2 on a layer of h = 8 (heads 2 x 4) with 4 experts of 6, on 4 x 2 ranks: a tensor rank has half of the
    attention's adapters, four copies; an expert rank two of the experts', four copies."""
    model = training_model_from_shape(1, 8, 2, 2, 4, 16, True, 32, 4, 2, 6)
    layout = training_layout(zero=2, tensor=2, data=4, expert=2, global_batch=4, lora_rank=2, frozen=1)
    dense, experts = 2 * ((8 + 3 * 8) + (8 + 8)) / 2, 2 * 4 * ((8 + 2 * 6) + (6 + 8)) / 2
    own = stage_parameters(model, layout, ONE, ONE)
    assert (float(own.dense_adapters), float(own.expert_adapters)) == (dense, experts)
    memory = stage_memory(model, layout, ONE, as_float(0.0))
    assert float(memory.optimizer) == 12 * (dense / 4 + experts / 4)
    assert float(memory.gradients) == 4 * (dense / 4 + experts / 4)
    whole = stage_memory(model, dataclasses.replace(layout, lora_rank=as_float(0.0)), ONE, as_float(0.0))
    assert float(memory.weights - whole.weights) == 2 * (dense + experts)


@pytest.mark.parametrize(
    ("tensor", "expert", "expert_tensor"), [(1, 1, 1), (1, 8, 1), (1, 32, 1), (4, 1, 1), (4, 8, 1), (4, 8, 4)]
)
def test_fully_sharded_states_of_adapters_do_not_depend_on_the_layout(
    tensor: int, expert: int, expert_tensor: int
) -> None:
    """Rank 64 on Qwen3-30B-A3B over 32 ranks: 48 layers of attention and 128 experts of 768."""
    model = training_model(load_model("qwen3-30b-a3b"))
    layout = training_layout(
        zero=3,
        tensor=tensor,
        data=32 // tensor,
        expert=expert,
        expert_tensor=expert_tensor,
        global_batch=256,
        lora_rank=64,
        frozen=1,
    )
    h, q, kv, f = 2048, 4096, 512, 768
    adapters = 64 * 48 * ((h + q + 2 * kv) + (q + h) + 128 * ((h + 2 * f) + (f + h)))
    memory, bandwidth = stage_memory(model, layout, ONE, as_float(0.0)), as_float(3.35e12)
    assert float(memory.optimizer) == pytest.approx(12 * adapters / 32)
    assert float(memory.gradients) == pytest.approx(4 * adapters / 32)
    own = stage_parameters(model, layout, model.layers, as_float(2.0))
    update = float(optimizer_step(own, layout, bandwidth, ASSUMED).time)
    assert update == pytest.approx((24 + 8 + 2) * adapters / 32 / 3.35e12)


def test_the_fullest_stage_may_be_behind_a_first_one_with_fewer_layers() -> None:
    """22 B on 32 stages: 2 layers on each of 14 to 16 of them, and on the second, with one micro-batch less than the
    32 of the first, nearly twice what that has with its one layer; 16 stages of 3 layers keep them all on the first."""
    base = {"tensor": 8, "global_batch": 256, "sequence": S, "microbatch": B}
    deep, even = training_layout(pipeline=32, **base), training_layout(pipeline=16, **base)
    layer = float(kept_activations(GPT_22B, deep, ONE))
    second, first = (stage_memory(GPT_22B, each, ONE, as_float(0.0)) for each in (deep, even))
    assert float(second.activations) == pytest.approx(2 * 31 * layer)
    assert float(second.weights) == pytest.approx(2 * 2 * float(GPT_22B.dense_layer_parameters) / 8, rel=1e-3)
    assert float(first.activations) == pytest.approx(3 * 16 * layer)


def test_the_fullest_stage_is_first_or_last() -> None:
    deep = training_layout(pipeline=8, tensor=8, global_batch=64, sequence=S, microbatch=B)
    shallow = training_layout(pipeline=8, tensor=8, global_batch=1, sequence=S, microbatch=1)
    first = stage_memory(GPT_22B, deep, ONE, as_float(0.0))
    assert float(first.activations) == pytest.approx(8 * 6 * float(kept_activations(GPT_22B, deep, ONE)))
    last = stage_memory(GPT_22B, shallow, ONE, as_float(0.0))
    assert float(last.temporary) > 0  # the logits
    assert isinstance(deep, Layout)


def test_shared_experts_have_adapters_as_dense_blocks_have() -> None:
    """Rank 16 on DeepSeek-V2-Lite's shape: 26 layers with 2 shared experts of 1,408, gated, beside 64 routed ones."""
    sizes = (26, 2048, 16, 16, 128, 10944, True, 102400, 64, 6, 1408)
    layout = training_layout(lora_rank=16, frozen=1)
    alone, shared = (
        stage_parameters(training_model_from_shape(*sizes, count), layout, as_float(26.0), ONE) for count in (0, 2)
    )
    adapters = 16 * 26 * ((2048 + 2 * 2816) + (2816 + 2048))
    assert float(shared.dense_adapters - alone.dense_adapters) == pytest.approx(adapters)
    assert float(shared.expert_adapters) == float(alone.expert_adapters)
