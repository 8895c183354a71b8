"""Multi-token prediction against counts by hand: DeepSeek-V3's one layer, with its projection, norms and visit of the
head."""

from __future__ import annotations

import dataclasses

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.parameters import mtp_parameter_count, parameter_count
from jaxperf.training.compute import ends_compute
from jaxperf.training.efficiencies import assumed_training_efficiencies
from jaxperf.training.flops import step_flops
from jaxperf.training.layout import training_layout
from jaxperf.training.memory import stage_memory
from jaxperf.training.model_build import further_layers, training_model, training_model_from_shape
from jaxperf.training.products import sustained_rates
from jaxperf.training.schedules import stage_layers
from jaxperf.training.stages import rank_stages
from tests.devices import H100

CONFIG = load_model("deepseek-v3")
PLAIN, FURTHER = training_model(CONFIG), training_model(CONFIG, mtp=1)
ONE, NOTHING = as_float(1.0), as_float(0.0)
H, VOCAB, TOKENS = 7168, 129280, 4096
ATTENTION = 1536 * (H + 128 * 192) + H * (512 + 64) + 512 * 128 * 256 + 128 * 128 * H


def test_parameters_are_those_of_the_checkpoint() -> None:
    """671 B of the model and 11.5 B of the layer, norms and projection (the 14 B published count copies of tables)."""
    expected = parameter_count(CONFIG) + mtp_parameter_count(CONFIG)
    assert float(FURTHER.parameters) == pytest.approx(expected, rel=1e-12)
    assert float(FURTHER.layers) == 62


def test_flops_are_6_a_weight_of_the_layer_the_projection_and_the_head() -> None:
    layout = training_layout(sequence=TOKENS)
    more = float(step_flops(FURTHER, layout)[0] - step_flops(PLAIN, layout)[0])
    visited = ATTENTION + H * (9 * 3 * 2048 + 256) + 2 * H * H + VOCAB * H
    core = 2 * 128 * (192 + 128) * TOKENS / 2
    assert more == pytest.approx(TOKENS * (6 * visited + 3 * core), rel=1e-9)


def test_the_head_is_visited_once_more_and_both_rows_are_joined() -> None:
    rates = sustained_rates(H100, training_layout(), assumed_training_efficiencies("high"))
    plain, more = (ends_compute(model, training_layout(sequence=TOKENS), rates) for model in (PLAIN, FURTHER))
    joined = 3 * 2 * TOKENS * 2 * H * H / 989.4e12
    streams = TOKENS * H * 2 * (3 * 6 + 5) / 3.35e12  # three norms forward and backward, and the table
    assert float(more.head - 2 * plain.head) == pytest.approx(joined + streams, rel=1e-9)
    assert float(more.embedding) == float(plain.embedding)


def test_the_last_stage_has_a_table_the_projection_and_more_logits() -> None:
    layout = training_layout(pipeline=8, global_batch=8, sequence=TOKENS)
    tables = [float(rank_stages(model, layout)[2].tables(model)) for model in (PLAIN, FURTHER)]
    assert tables == pytest.approx([1, 2 + 2 * H / VOCAB])
    alone = training_layout(sequence=TOKENS)
    assert float(rank_stages(FURTHER, alone)[0].tables(FURTHER)) == pytest.approx(2 + 2 * H / VOCAB)
    plain, more = (stage_memory(model, alone, ONE, NOTHING).temporary for model in (PLAIN, FURTHER))
    assert float(more - plain) == pytest.approx(TOKENS * (VOCAB * 6 + 4 * H * 2), rel=1e-9)


def test_the_last_stage_has_fewer_layers_for_its_second_head() -> None:
    """61 layers and one more on 16 stages of 4: two are missing, both on the last; without the head nothing changes."""
    layout = training_layout(pipeline=16, global_batch=64)
    stages = [stage_layers(model, layout) for model in (PLAIN, FURTHER)]
    assert [[float(n) for n in (one.first, one.middle, one.last)] for one in stages] == [[3, 4, 2], [4, 4, 2]]
    few = stage_layers(FURTHER, training_layout(pipeline=32, global_batch=64))  # of 2 layers each, two missing
    assert [float(n) for n in (few.first, few.middle, few.last)] == [1, 2, 1]


def test_a_part_of_the_model_without_the_head_predicts_nothing_further() -> None:
    part = dataclasses.replace(FURTHER, head=NOTHING)
    assert float(part.further) == float(part.further_weights) == 0.0


def test_more_tokens_than_are_described_repeat_the_last_layer() -> None:
    assert further_layers(CONFIG, 3) == CONFIG.mtp_layers * 3
    assert further_layers(load_model("llama-3-8b"), 1) == load_model("llama-3-8b").layers[-1:]
    shape = training_model_from_shape(8, 512, 8, 8, 64, 2048, True, 32000, mtp=2)
    assert (float(shape.layers), float(shape.further_weights)) == (10, 2 * 2 * 512**2)
    with pytest.raises(InputError, match="mtp is -1"):
        further_layers(CONFIG, -1)
