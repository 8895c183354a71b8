"""Recurrences with gates: RecurrentGemma (arXiv:2404.07839) and xLSTM (arXiv:2503.13427)."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, grouped_attention
from jaxperf.models.checks import LARGEST_COUNT, show
from jaxperf.models.config import Layer, Mixer, Mlp, MLstm, ModelConfig, RgLru

PATTERN = ("recurrent", "recurrent", "attention")


def _recurrent_gemma(fields: Fields) -> ModelConfig:
    """`block_types` again and again: RG-LRU or attention in a window, each followed by a block of half as many units as
    `intermediate_size` says."""
    hidden, count = fields.count("hidden_size"), fields.layer_count()
    bias = fields.flag("attention_bias", False)
    attention = grouped_attention(fields, multi_head=True, qkv_bias=bias, output_bias=True)
    width, blocks = fields.optional_count("lru_width") or hidden, fields.count("num_attention_heads")
    if width % blocks:
        raise InputError(
            f"lru_width is {width}; the {blocks} blocks of its gates (num_attention_heads) must divide it."
        )
    mixers: dict[str, Mixer] = {
        "attention": dataclasses.replace(attention, window=fields.count_or("attention_window_size", 2048)),
        "recurrent": RgLru(blocks, width // blocks, fields.count_or("conv1d_width", 4)),
    }
    kinds = fields.listing("block_types", str) or list(PATTERN)
    if not set(kinds) <= set(mixers):
        raise InputError(f"block_types is {show(kinds)}; it may contain recurrent and attention.")
    block = Mlp(fields.count("intermediate_size") // 2, bias=True)
    layers = tuple(Layer(mixers[kinds[index % len(kinds)]], block) for index in range(count))
    return decoder(fields, layers, tied=True)


def _xlstm(fields: Fields) -> ModelConfig:
    """mLSTM and a gated block, each behind a norm."""
    data = {("num_hidden_layers" if key == "num_blocks" else key): value for key, value in fields.data.items()}
    fields = dataclasses.replace(fields, data=data | {key: fields.data[key] for key in fields.data if key in data})
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    keys, values = (_scaled(fields, name, usual, hidden) for name, usual in (("qk_dim", "0.5"), ("v_dim", "1")))
    if keys % heads or values % heads:
        raise InputError(f"the {heads} heads must divide the {keys} elements of keys and the {values} of values.")
    step = fields.count_or("ffn_round_up_to_multiple_of", 64)
    units = -(-_scaled(fields, "ffn_proj", "2.667", hidden) // step) * step
    bias = fields.flag("use_bias", False)
    layer = Layer(MLstm(heads, keys // heads, values // heads, bias), Mlp(units, bias=bias), norm_bias=bias)
    final = fields.flag("add_out_norm", True)
    return decoder(fields, (layer,) * fields.layer_count(), final_norm=final)


def _scaled(fields: Fields, name: str, usual: str, hidden: int) -> int:
    """The hidden size times `name`_factor, rounded down."""
    value = fields.data.get(f"{name}_factor", float(usual))
    if type(value) not in (int, float) or not 0.0 < value * hidden <= LARGEST_COUNT or value * hidden < 1.0:
        raise InputError(f"{name}_factor is {show(value)}; it must be a number above 0 that leaves at least 1 element.")
    return int(Fraction(str(value)) * hidden)


FAMILIES = {"RecurrentGemmaForCausalLM": _recurrent_gemma, "xLSTMForCausalLM": _xlstm}

MODEL_TYPES = {"recurrent_gemma": "RecurrentGemmaForCausalLM", "xlstm": "xLSTMForCausalLM"}
