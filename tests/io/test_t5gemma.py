"""T5Gemma at the sizes of its class, and with an encoder that is wider than the decoder."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.phase import Prefill
from jaxperf.models.layers import transformer
from jaxperf.models.memory import group_weight_bytes
from jaxperf.models.parameters import kv_bytes_per_token, parameter_breakdown, parameter_count
from jaxperf.models.transformer import layer_kernels, norm_kernels
from tests.devices import H100, deployment

SIDE: dict[str, Any] = dict(
    vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8
) | dict(num_key_value_heads=4, head_dim=256, sliding_window=4096, max_position_embeddings=8192)
WIDE = SIDE | dict(
    hidden_size=3584, intermediate_size=14336, num_hidden_layers=42, num_attention_heads=16, num_key_value_heads=8
)


def t5gemma(encoder: dict[str, Any], decoder: dict[str, Any]) -> dict[str, Any]:
    top = {"architectures": ["T5GemmaForConditionalGeneration"], "torch_dtype": "bfloat16", "tie_word_embeddings": True}
    return top | {"encoder": encoder, "decoder": decoder}


def test_t5gemma_2b_2b_counts_as_its_class() -> None:
    """5,596,853,760 in transformers 5.24, 5.6 B: two Gemma 2 of 2.6 B each and cross-attention in 26 layers."""
    config = read_config(t5gemma(SIDE, SIDE))
    assert parameter_count(config) == 5_596_853_760
    own, seen = config.layers[0], config.encoders[0].layers
    assert (own.norms, own.mixer.window, own.mixer.causal, seen[0].norms) == (6, 4096, True, 4)
    assert [layer.mixer.window for layer in seen[:2]] == [4096, None] and not seen[0].mixer.causal
    assert kv_bytes_per_token(config, 2) == 26 * 2 * 4 * 256 * 2


def test_a_wider_encoder_is_read_by_cross_attention() -> None:
    config = read_config(t5gemma(WIDE, SIDE))
    assert config.layers[0].cross.kv_input == config.encoders[0].hidden == 3584 and config.hidden == 2304
    more = parameter_breakdown(config)["attention"] - parameter_breakdown(read_config(t5gemma(SIDE, SIDE)))["attention"]
    assert more == 26 * 2 * 4 * 256 * (3584 - 2304)
    group, at = transformer(config).groups[0], deployment(H100)
    kernels = group.cross.kernels(at, as_float(2304), Prefill(2, 1, 0, 100))
    assert float(kernels["cross_kv_projection"].flops) == 2 * 2 * 100 * 2 * 4 * 256 * 3584
    assert set(norm_kernels(at, as_float(2304), group, as_float(2))) >= {"cross_attention_norm", "post_ffn_norm"}


def test_a_side_that_is_missing() -> None:
    with pytest.raises(InputError, match="the required field hidden_size"):
        read_config({"architectures": ["T5GemmaForConditionalGeneration"], "decoder": SIDE})


def t5gemma2(**sizes: int) -> dict[str, Any]:
    side = SIDE | sizes
    top = {
        "architectures": ["T5Gemma2ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    }
    return top | {"encoder": {"text_config": side}, "decoder": side}


SMALLEST: dict[str, Any] = dict(
    hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4
) | {"num_key_value_heads": 1}


@pytest.mark.parametrize(
    ("sizes", "parameters", "tolerance"),
    [
        (dict(vocab_size=262_208), 4_653_191_936, 0.0),  # the class of transformers 5.24 without its image encoder
        (SMALLEST | dict(vocab_size=262_144), 370e6, 0.01),  # 270M-270M, "~370M" without it (Google's post, recalled)
    ],
)
def test_t5gemma_2_has_one_set_of_weights_for_both_attentions(
    sizes: dict[str, int], parameters: float, tolerance: float
) -> None:
    config = read_config(t5gemma2(**sizes))
    assert parameter_count(config) == pytest.approx(parameters, rel=tolerance, abs=0)
    assert [layer.mixer.window for layer in config.layers[4:7]] == [4096, None, 4096]
    assert config.assumptions == ("The image encoder of T5Gemma 2 is not described here: its weights are not counted.",)


def test_merged_attention_reads_both_and_multiplies_once() -> None:
    config, at = read_config(t5gemma2()), deployment(H100)
    group, hidden, phase = transformer(config).groups[0], as_float(2304), Prefill(2, 1, 0, 100)
    kernels = layer_kernels(at, hidden, group, phase)
    assert float(kernels["cross_kv_projection"].flops) == 2 * 2 * 100 * 2 * 4 * 256 * 2304
    assert float(kernels["cross_attention"].flops) > 0.0
    assert not {"cross_query_projection", "cross_output_projection", "cross_attention_norm"} & set(kernels)
    assert "cross_attention_all_reduce" not in kernels and "attention_all_reduce" in kernels
    both = group_weight_bytes(at, hidden, transformer(config).groups)
    alone = tuple(dataclasses.replace(layer, cross=None) for layer in config.layers)
    plain = group_weight_bytes(at, hidden, transformer(dataclasses.replace(config, layers=alone)).groups)
    assert float(both) == float(plain)


def test_sides_of_other_widths_cannot_share_keys() -> None:
    fields = t5gemma2() | {"decoder": SIDE | {"hidden_size": 2560}}
    with pytest.raises(InputError, match="the hidden_size of encoder and decoder differ"):
        read_config(fields)
