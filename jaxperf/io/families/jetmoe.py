"""JetMoE (arXiv:2404.07413): experts of units, and experts that project queries and outputs."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, routed
from jaxperf.models.config import Attention, Layer, ModelConfig


def _jetmoe(fields: Fields) -> ModelConfig:
    """Each expert has a head for every key; what the experts of either block put out has a bias."""
    moe, keys = routed(fields, "intermediate_size"), fields.count("num_key_value_heads")
    chosen = moe.experts_per_token
    heads = fields.optional_count("num_attention_heads") or chosen * keys
    if heads != chosen * keys:
        raise InputError(
            f"num_attention_heads is {heads}; it must be num_experts_per_tok x num_key_value_heads, {chosen * keys}."
        )
    attention = Attention(heads, keys, fields.count_or("head_dim", 128), experts=moe.experts)
    biases = 2 * fields.count("hidden_size")
    layer = Layer(attention, moe, other_parameters=biases)
    return decoder(fields, (layer,) * fields.layer_count(), tied=True)


FAMILIES = {"JetMoeForCausalLM": _jetmoe}

MODEL_TYPES = {"jetmoe": "JetMoeForCausalLM"}
