"""RWKV-7 (arXiv:2503.14456), as the configs of flash-linear-attention describe it."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder
from jaxperf.models.config import Layer, Mlp, ModelConfig, Rwkv7

RANKS = {"decay_low_rank_dim": 64, "a_low_rank_dim": 64, "gate_low_rank_dim": 128, "v_low_rank_dim": 16}


def _rwkv7(fields: Fields) -> ModelConfig:
    """Time mixing and channel mixing, each behind a LayerNorm, the first layer behind one more."""
    if fields.data.get("attn") is not None:
        raise InputError("attn is given; RWKV-7 with layers of attention is not supported.")
    hidden = fields.count("hidden_size")
    decay, rate, gate, value = (fields.count_or(name, usual) for name, usual in RANKS.items())
    heads, head_dim = _heads(fields, hidden)
    first = Rwkv7(heads, head_dim, decay, rate, gate)
    block, bias = Mlp(_units(fields, hidden), gated=False), fields.flag("norm_bias", True)
    later = Layer(Rwkv7(heads, head_dim, decay, rate, gate, value), block, norm_bias=bias, other_parameters=hidden)
    before = 0 if not fields.flag("norm_first", True) else hidden * (1 + bias)
    layers = (
        Layer(first, block, norm_bias=bias, other_parameters=hidden + before),
        *(later,) * (fields.layer_count() - 1),
    )
    return decoder(fields, layers)


def _heads(fields: Fields, hidden: int) -> tuple[int, int]:
    """Heads and their width: `head_dim`, else `num_heads`, divides the hidden size."""
    given = fields.optional_count("head_dim")
    heads = hidden // given if given else fields.count("num_attention_heads")
    width = given or hidden // heads
    if heads * width != hidden:
        raise InputError(f"the hidden size {hidden} is not {heads} heads of {width}; give sizes that divide.")
    return heads, width


def _units(fields: Fields, hidden: int) -> int:
    """`intermediate_size`, else `hidden_ratio` (4) times the hidden size, up to a multiple of 32."""
    width = fields.optional_count("intermediate_size")
    return width or 32 * -(-(fields.count_or("hidden_ratio", 4) * hidden) // 32)


FAMILIES = {"RWKV7ForCausalLM": _rwkv7}

MODEL_TYPES = {"rwkv7": "RWKV7ForCausalLM", "rwkv7_fla": "RWKV7ForCausalLM"}
