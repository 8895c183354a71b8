"""FLOP and time of compute against published formulas and hand sums."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.training.communication import layout_groups, stage_send
from jaxperf.training.compute import ends_compute, layer_compute
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.flops import attended_tokens, step_flops
from jaxperf.training.layout import training_layout
from jaxperf.training.memory import kept_activations
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape
from jaxperf.training.products import product_time, sustained_rates
from tests.devices import H100
from tests.io.test_latent_streams import GLM53

ROOFLINE = assumed_training_efficiencies("high")  # datasheet rates, no waves and no ramps
PEAK = 989.4e12


def narayanan(layers: int, hidden: int, vocab: int) -> TrainingModel:
    return training_model_from_shape(layers, hidden, hidden // 128, hidden // 128, 128, 4 * hidden, False, vocab)


@pytest.mark.parametrize("layers, hidden, batch", [(24, 2304, 512), (96, 12288, 1536), (128, 25600, 3072)])
def test_flops_are_those_of_narayanan(layers: int, hidden: int, batch: int) -> None:
    """F = 96 B s l h^2 (1 + s/6h + V/16lh) with full recomputation and attention to all tokens (arXiv:2104.04473,
    equation 3)."""
    model = dataclasses.replace(narayanan(layers, hidden, 51200), causal=as_float(0.0))
    layout = training_layout(sequence=2048, global_batch=batch, recompute="full")
    _, issued = step_flops(model, layout)
    formula = 96 * batch * 2048 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden))
    assert float(issued) == pytest.approx(formula, rel=1e-12)


def test_model_and_hardware_flops_of_korthikanti() -> None:
    """72 B L s h^2 (1 + s/6h + V/12hL) and, with selective recomputation, 1 + s/3h in it (arXiv:2205.05198, appendix
    A)."""
    layers, h, s, batch = 48, 6144, 2048, 4
    model = dataclasses.replace(narayanan(layers, h, 51200), causal=as_float(0.0))
    useful, issued = step_flops(model, training_layout(sequence=s, global_batch=batch, recompute="selective"))
    base, head = 72 * batch * layers * s * h**2, 51200 / (12 * h * layers)
    assert float(useful) == pytest.approx(base * (1 + s / (6 * h) + head), rel=1e-12)
    assert float(issued) == pytest.approx(base * (1 + s / (6 * h) * 4 / 3 + head), rel=1e-12)


def test_useful_flops_of_a_mixture_are_6_a_visited_weight() -> None:
    model = training_model(load_model("mixtral-8x7b"))
    useful, issued = step_flops(model, training_layout(global_batch=8))
    matrices = model.layers * model.active_layer_parameters + model.embedding
    attention = 3 * 32 * 2 * 2 * 4096 * 2048  # causal half of 4096 tokens
    assert float(useful) == float(issued) == pytest.approx(8 * 4096 * (6 * float(matrices) + attention), rel=1e-12)


def test_frozen_weights_cost_4_instead_of_6() -> None:
    model = training_model(load_model("llama-3-8b"))
    full, lora = (
        float(step_flops(model, training_layout(**fields))[0]) for fields in ({}, {"lora_rank": 16, "frozen": 1})
    )
    attention = 3 * 32 * 2 * 2 * 4096 * 2048 * 4096
    adapters = 6 * 16 * 32 * (2.5 * 4096 + 2 * 4096 + 4096 + 2 * 14336 + 14336 + 4096) * 4096
    assert lora - adapters - attention == pytest.approx((full - attention) * 4 / 6, rel=1e-9)


def test_adapters_of_a_mixture_cost_6_where_a_token_visits_them() -> None:
    """Two layers of h = 8 (heads 2 x 4), one with a feed-forward of 16, one with top 2 of 4 experts of 6; rank 2."""
    model = training_model_from_shape(2, 8, 2, 2, 4, 16, True, 32, 4, 2, 6, dense_layers=1)
    layout = training_layout(sequence=16, global_batch=4, lora_rank=2, frozen=1)
    attention, ffn, expert = (8 + 3 * 8) + (8 + 8), (8 + 2 * 16) + (16 + 8), (8 + 2 * 6) + (6 + 8)
    adapters = 2 * (2 * attention + ffn + 2 * expert)
    weights = 2 * 4 * 8 * 8 + 3 * 8 * 16 + 4 * 8 + 2 * 3 * 8 * 6 + 32 * 8  # the fourth is the router, the last the head
    core = 2 * 2 * (8 + 8) * 16 / 2
    assert float(step_flops(model, layout)[0]) == 4 * 16 * (4 * weights + 6 * adapters + 3 * core)


@pytest.mark.parametrize("fields", [{}, {"lora_rank": 64, "frozen": 1}])
@pytest.mark.parametrize(
    "split",
    [
        {"tensor": 4},
        {"data": 8, "expert": 8},
        {"tensor": 4, "data": 2, "expert": 8},
        {"tensor": 8, "data": 2, "expert": 4, "expert_tensor": 4, "pipeline": 4},
    ],
)
def test_one_workload_has_one_count_however_it_is_laid_out(split: dict, fields: dict) -> None:
    model = training_model(load_model("qwen3-30b-a3b"))
    whole, laid_out = (step_flops(model, training_layout(global_batch=256, **each, **fields)) for each in ({}, split))
    assert tuple(map(float, laid_out)) == tuple(map(float, whole))


def test_adapters_cost_less_than_gradients_of_all_weights() -> None:
    model = training_model(load_model("qwen3-30b-a3b"))
    fields = ({"frozen": 1}, {"frozen": 1, "lora_rank": 64}, {})
    frozen, lora, full = (float(step_flops(model, training_layout(**each))[0]) for each in fields)
    assert frozen < lora < full


def test_wide_adapters_take_the_time_of_their_products() -> None:
    """Narrow ones hide behind their streams; wide ones end no sooner than their FLOP at the rate of products."""
    model = training_model(load_model("llama-3.1-8b"))
    rates = sustained_rates(H100, training_layout(), ROOFLINE)
    none, narrow, wide, wider = (
        layer_compute(model, training_layout(frozen=1, lora_rank=rank), rates, as_float(1.0))
        for rank in (0, 16, 2048, 4096)
    )
    assert float(narrow.gemm.total) == float(none.gemm.total)
    more = 3 * 4096 * 2 * 2048 * float(model.active_layer_adapters) / float(rates.matrix)
    assert float(wider.gemm.total - wide.gemm.total) == pytest.approx(more)
    took = wide.total.total - none.total.total
    assert float(took) == pytest.approx(more)


@given(sequence=st.integers(1, 300), window=st.integers(1, 400))
def test_mean_attended_tokens(sequence: int, window: int) -> None:
    """Half a token less than the integer mean over the queries, where each sees itself in full."""
    model = TrainingModel(layers=2, hidden=8, vocab=8, attention_layers=2, heads=1, window=window, window_layers=1)
    counts = np.arange(1, sequence + 1)
    w = min(window, sequence)
    exact = 0.5 * np.mean(counts) + 0.5 * np.mean(np.minimum(counts, window))
    halves = 0.5 * 0.5 + 0.5 * w / sequence * 0.5
    assert float(attended_tokens(model, as_float(sequence))) == pytest.approx(exact - halves, rel=1e-9)


def test_time_at_datasheet_rates_is_flop_over_peak() -> None:
    """A compute-bound dense layer: products forward and twice backward, attention 2 and 5 products."""
    model = training_model(load_model("llama-3-70b"))
    layout = training_layout(tensor=2, sequence=8192, microbatch=2)
    found = layer_compute(model, layout, sustained_rates(H100, layout, ROOFLINE), as_float(1.0))
    tokens, weights = 2 * 8192, float(model.active_layer_parameters)
    assert float(found.gemm.forward) == pytest.approx(2 * tokens * weights / 2 / PEAK, rel=1e-12)
    assert float(found.gemm.total) == pytest.approx(6 * tokens * weights / 2 / PEAK, rel=1e-12)
    core = 2 * tokens / 2 * 4096 * 8192 / PEAK
    assert float(found.attention.forward) == pytest.approx(2 * core, rel=1e-12)
    assert float(found.attention.backward) == pytest.approx(5 * core, rel=1e-12)


def test_narrow_formats_speed_up_the_layers_products_only() -> None:
    model = training_model(load_model("llama-3-70b"))
    times = {}
    for dtype in ("bf16", "fp8"):
        layout = training_layout(dtype, sequence=8192)
        rates = sustained_rates(H100, layout, ROOFLINE)
        times[dtype] = (layer_compute(model, layout, rates, as_float(1.0)), ends_compute(model, layout, rates))
    (wide, wide_ends), (narrow, narrow_ends) = times["bf16"], times["fp8"]
    assert float(wide.gemm.total / narrow.gemm.total) == pytest.approx(1978.9 / 989.4)
    assert float(narrow.attention.total) == float(wide.attention.total)
    assert float(narrow_ends.head) == float(wide_ends.head)
    assert float(narrow.vector.forward) > float(wide.vector.forward)  # casts


def test_unfused_attention_moves_its_scores() -> None:
    model = training_model(load_model("gpt3-13b"))
    fused, eager = training_layout(sequence=2048), training_layout(sequence=2048, flash=0)
    rates = sustained_rates(H100, fused, ROOFLINE)
    a, b = (layer_compute(model, each, rates, as_float(1.0)).attention for each in (fused, eager))
    scores = 40 * 2048 * 2048
    assert float(b.forward - 2 * a.forward) == pytest.approx(scores * 13 / 3.35e12, rel=1e-9)


def product(m: float, n: float, k: float, efficiencies=ROOFLINE, groups: float = 1) -> float:
    rates = sustained_rates(H100, training_layout(), efficiencies)
    return float(product_time(rates, rates.matrix, *map(as_float, (m, n, k, groups)), (as_float(2.0),) * 3))


def test_a_product_of_few_rows_reads_its_weights() -> None:
    assert product(1, 8192, 8192) == pytest.approx(2 * (8192 + 8192 + 8192 * 8192) / 3.35e12, rel=1e-12)


def test_waves_and_ramps_by_hand() -> None:
    nominal = assumed_training_efficiencies()
    outputs = 4096 * 4096 + 0.25 * 132 * 128 * 128
    expected = 2 * outputs * (4096 + 128) / (0.75 * PEAK)
    assert product(4096, 4096, 4096, nominal) == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096))
def test_a_product_split_in_two_is_never_faster(m: int, n: int, k: int) -> None:
    nominal = assumed_training_efficiencies()
    assert 2 * product(m, n, k, nominal) >= product(2 * m, n, k, nominal) * (1 - 1e-12)
    assert product(m, n, k, nominal, groups=2) <= 2 * product(m, n, k, nominal) * (1 + 1e-12)


def test_parts_of_a_hybrid_are_all_there() -> None:
    model = training_model(load_model("nemotron-3-nano-30b-a3b"))
    layout = training_layout(data=8, expert=8)
    found = layer_compute(model, layout, sustained_rates(H100, layout, ROOFLINE), as_float(1.0))
    assert all(float(leaf) >= 0 for leaf in jax.tree.leaves(found))
    recurrent = dataclasses.replace(model, attention_layers=as_float(0.0))
    scan = layer_compute(recurrent, layout, sustained_rates(H100, layout, ROOFLINE), as_float(1.0)).attention.forward
    per_token = float(model.state_flops * model.mixer_layers / model.layers)
    assert float(scan) == pytest.approx(4096 * per_token / float(H100.vector_flops), rel=1e-12)


def test_several_streams_of_the_residual_by_hand() -> None:
    """Of 4 streams each of two blocks touches 4 (4 + 1) rows instead of 5, backward twice as many; it keeps 4 and what
    it reads; full recomputation keeps 4, and 4 are sent to the next stage."""
    plain = training_model(load_model("llama-3-8b"))
    streamed = dataclasses.replace(plain, streams=as_float(4.0))
    layout = training_layout(pipeline=2)
    rates = sustained_rates(H100, layout, ROOFLINE)
    row = 4096 * 2  # bytes
    found, one = (layer_compute(each, layout, rates, as_float(1.0)).vector for each in (streamed, plain))
    more = float(layout.tokens) * 2 * (20 - 5) * row / float(rates.memory)
    assert float(found.forward - one.forward) == pytest.approx(more, rel=1e-9)
    assert float(found.backward - one.backward) == pytest.approx(2 * more, rel=1e-9)
    for recompute, kept in (("none", 2 * 4), ("full", 3)):
        at = training_layout(recompute=recompute)
        held = [float(kept_activations(each, at, as_float(1.0))) for each in (streamed, plain)]
        assert held[0] - held[1] == pytest.approx(float(at.tokens) * kept * row, rel=1e-9)
    groups = layout_groups(H100, layout, ROOFLINE)
    sent = [float(stage_send(each, layout, groups)) for each in (streamed, plain)]
    assert sent[0] > sent[1]
    assert float(training_model(read_config(GLM53)).streams) == 4.0


# Model -> indexer's heads, their elements, tokens to a scored one, and in how many of its attention layers.
CHOOSERS = {"deepseek-v3.2": (64, 128, 1, 61, 61), "deepseek-v4-flash": (64, 128, 4, 21, 43)}


@pytest.mark.parametrize("name", CHOOSERS)
def test_an_indexer_scores_every_token_before_a_query(name: str) -> None:
    """DeepSeek V3.2 scores all tokens, V4 compressed ones in every second layer: 2 FLOP an element of a head and pair,
    twice that backward; a score is written and read in fp32."""
    heads, dim, ratio, choosing, layers = CHOOSERS[name]
    model, layout = training_model(load_model(name)), training_layout(sequence=32768)
    blind = dataclasses.replace(model, choosing_flops=as_float(0.0), choosing_scores=as_float(0.0))
    assert float(model.attention_layers) == layers
    pairs = 32768 * 16384 / ratio
    flops = choosing * 2 * heads * dim * pairs
    useful, without = (float(step_flops(each, layout)[0]) for each in (model, blind))
    assert useful - without == pytest.approx(3 * flops, rel=1e-9)
    rates = sustained_rates(H100, layout, ROOFLINE)
    found, other = (layer_compute(each, layout, rates, as_float(1.0)).attention for each in (model, blind))
    scores = choosing * pairs * 8 / 3.35e12
    assert float(model.layers * (found.forward - other.forward)) == pytest.approx(flops / PEAK + scores, rel=1e-9)
    assert float(model.layers * (found.backward - other.backward)) == pytest.approx(2 * flops / PEAK, rel=1e-9)


def test_matrices_beside_the_blocks_are_multiplied_on_every_rank() -> None:
    """4096 x 4096 in one of 32 layers, the whole of it on each of two tensor ranks."""
    plain = load_model("llama-3-8b")
    beside = dataclasses.replace(plain.layers[0], projections=((4096, 4096),))
    one, more = (
        training_model(dataclasses.replace(plain, layers=(each, *plain.layers[1:])))
        for each in (plain.layers[0], beside)
    )
    layout = training_layout(tensor=2)
    rates = sustained_rates(H100, layout, ROOFLINE)
    gemms = [layer_compute(model, layout, rates, as_float(1.0)).gemm.total for model in (one, more)]
    flops = 3 * 2 * 4096 * 4096**2
    assert float(32 * (gemms[1] - gemms[0])) == pytest.approx(flops / PEAK, rel=1e-6)
    assert float(step_flops(more, layout)[0] - step_flops(one, layout)[0]) == pytest.approx(flops, rel=1e-9)
    assert float(more.parameters - one.parameters) == 4096**2
