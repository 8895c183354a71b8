"""Models as numbers: weights, active weights and widths against the exact integers of the description."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model
from jaxperf.models.flops import active_matrix_parameters
from jaxperf.models.parameters import active_parameter_count, parameter_count
from jaxperf.training.model import TrainingModel
from jaxperf.training.model_build import training_model, training_model_from_shape, training_notes

MODELS = (
    "gpt3-175b",
    "llama-3-70b",
    "llama-3.1-405b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gpt-oss-120b",
    "qwen3-235b-a22b",
    "nemotron-h-8b",
    "nemotron-3-nano-30b-a3b",
    "falcon-h1-7b",
    "gemma-3-27b",
    "bert-large",
)


@pytest.mark.parametrize("name", MODELS)
def test_stored_and_active_weights_are_those_of_the_description(name: str) -> None:
    config = load_model(name)
    model = training_model(config)
    assert float(model.parameters) == parameter_count(config)
    if config.layers:
        matrices = float(model.layers * model.active_layer_parameters + model.embedding)
        assert matrices == pytest.approx(active_matrix_parameters(config), rel=1e-9)
        # biases of idle experts (gpt-oss) are the only difference
        assert float(model.active_parameters) == pytest.approx(active_parameter_count(config), rel=0.01)


def test_kinds_of_layers_are_counted_where_they_are() -> None:
    deepseek = training_model(load_model("deepseek-v3"))
    assert [float(n) for n in (deepseek.layers, deepseek.dense_layers, deepseek.moe_layers)] == [61, 3, 58]
    assert float(deepseek.score_width) == 128 * 192 and float(deepseek.value_width) == 128 * 128
    assert float(deepseek.latent_width) == 1536 + 512 + 64  # arXiv:2412.19437, section 4.2
    hybrid = training_model(load_model("nemotron-h-8b"))
    assert float(hybrid.attention_layers + hybrid.mixer_layers + hybrid.dense_layers) == float(hybrid.layers)
    oss = training_model(load_model("gpt-oss-120b"))
    assert float(oss.window) == 128 and float(oss.window_layers) == 18  # every other of 36 layers
    assert float(training_model(load_model("bert-large")).causal) == 0


@given(
    layers=st.integers(1, 100),
    heads=st.integers(1, 64),
    head_dim=st.sampled_from([64, 128]),
    ffn=st.integers(1, 40000),
    vocab=st.integers(1, 200000),
    gated=st.booleans(),
)
def test_a_shape_has_the_weights_of_its_matrices(
    layers: int, heads: int, head_dim: int, ffn: int, vocab: int, gated: bool
) -> None:
    hidden = heads * head_dim
    model = training_model_from_shape(layers, hidden, heads, heads, head_dim, ffn, gated, vocab)
    norms = (2 * layers + 1) * hidden * (1 if gated else 2)
    matrices = layers * (4 * hidden * hidden + (3 if gated else 2) * hidden * ffn) + 2 * vocab * hidden
    assert float(model.parameters) == matrices + norms


def test_gpt3_has_the_parameters_of_narayanan() -> None:
    """P = 12 l h^2 (1 + 13/12h + (V + s)/12lh) (arXiv:2104.04473, section 3.1): 174.6 B, biases 0.02 % of them."""
    layers, hidden, vocab, positions = 96, 12288, 51200, 2048
    model = training_model_from_shape(
        layers, hidden, 96, 96, 128, 4 * hidden, False, vocab, tied=True, positions=positions
    )
    formula = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (vocab + positions) / (12 * layers * hidden))
    biases = 9 * layers * hidden  # of the linear layers, which the shape leaves out; the formula leaves out a last norm
    assert float(model.parameters) == pytest.approx(formula - biases + 2 * hidden, rel=1e-12)


def test_experts_of_a_shape() -> None:
    model = training_model_from_shape(4, 512, 8, 2, 64, 2048, True, 1000, 16, 4, 256, 1, dense_layers=1)
    assert isinstance(model, TrainingModel)
    assert [float(n) for n in (model.dense_layers, model.moe_layers, model.shared_width)] == [1, 3, 256]
    assert float(model.expert_layer_parameters) == 3 * 16 * 3 * 512 * 256 / 4


@pytest.mark.parametrize(
    "change, field",
    [
        ({"layers": 0}, "layers"),
        ({"kv_heads": 3}, "kv_heads"),
        ({"hidden": -1}, "hidden"),
        ({"ffn": 1.5}, "intermediate"),
        ({"experts": 4, "topk": 8, "moe_ffn": 16}, "experts_per_token"),
    ],
)
def test_a_wrong_size_is_refused_by_name(change: dict[str, float], field: str) -> None:
    shape = dict(layers=2, hidden=512, heads=8, kv_heads=8, head_dim=64, ffn=2048, gated=True, vocab=1000)
    with pytest.raises(InputError, match=field):
        training_model_from_shape(**{**shape, **change})


def test_what_a_step_is_not_told_of_is_said() -> None:
    plain = load_model("llama-3-8b")
    layer = dataclasses.replace(plain.layers[0], streams=4, stream_weights=24, projections=((4096, 16),))
    streamed = dataclasses.replace(plain, layers=(layer, *plain.layers[1:]))
    assert training_notes(plain) == ()
    assert training_notes(streamed) == (
        "the projections that streams of the residual are mixed by are left out, as they are small",
    )
    assert training_notes(load_model("deepseek-v3")) == ("layers that predict further tokens (mtp) are left out",)
    assert training_notes(load_model("deepseek-v3"), mtp=1) == ()


def test_an_encoder_decoder_is_refused() -> None:
    with pytest.raises(InputError, match="encoder-decoder"):
        training_model(load_model("flan-t5-xl"))
