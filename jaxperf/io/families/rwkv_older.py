"""RWKV-4 (arXiv:2305.13048), RWKV-5 and RWKV-6 (arXiv:2404.05892), as their Hugging Face classes describe them."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder
from jaxperf.models.config import Layer, Mixer, Mlp, ModelConfig, Rwkv4, Rwkv6

WIDE = 4096  # hidden size of the models whose bottlenecks are twice as wide
RANKS = (32, 64)  # of a mixture and of the decays; no field gives them


def _rwkv4(fields: Fields) -> ModelConfig:
    hidden = fields.count("hidden_size")
    width = fields.optional_count("attention_hidden_size") or hidden
    return _model(fields, Rwkv4(width), 4 * hidden)


def _rwkv5(fields: Fields) -> ModelConfig:
    return _model(fields, Rwkv6(*_heads(fields)), _units(fields))


def _rwkv6(fields: Fields) -> ModelConfig:
    mixing, decays = (rank * (2 if fields.count("hidden_size") == WIDE else 1) for rank in RANKS)
    return _model(fields, Rwkv6(*_heads(fields), mixing, decays), _units(fields))


def _model(fields: Fields, mixer: Mixer, units: int) -> ModelConfig:
    """Time mixing and channel mixing, each behind a LayerNorm, the first layer behind one more.

    Channel mixing has a gate of the hidden width, which is a matrix beside its block, and two mixtures of tokens.
    """
    hidden, count = fields.count("hidden_size"), fields.layer_count()
    block = Mlp(fields.optional_count("intermediate_size") or units, gated=False)
    gate = ((hidden, hidden),)
    first, later = (
        Layer(mixer, block, norm_bias=True, other_parameters=2 * hidden + before, projections=gate)
        for before in (2 * hidden, 0)
    )
    return decoder(fields, (first, *(later,) * (count - 1)))


def _heads(fields: Fields) -> tuple[int, int]:
    """Heads and their width, `head_size`; `num_attention_heads` of these configs is not the number of heads."""
    width = fields.optional_count("attention_hidden_size") or fields.count("hidden_size")
    size = fields.count_or("head_size", 64)
    if width % size:
        raise InputError(f"head_size is {size}; it must divide the {width} elements of time mixing.")
    return width // size, size


def _units(fields: Fields) -> int:
    """3.5 times the hidden size, down to a multiple of 32."""
    return 7 * fields.count("hidden_size") // 2 // 32 * 32


FAMILIES = {
    "RwkvForCausalLM": _rwkv4,
    "Rwkv5ForCausalLM": _rwkv5,
    "RWKV5ForCausalLM": _rwkv5,
    "Rwkv6ForCausalLM": _rwkv6,
}

MODEL_TYPES = {"rwkv": "RwkvForCausalLM", "rwkv5": "Rwkv5ForCausalLM", "rwkv6": "Rwkv6ForCausalLM"}
