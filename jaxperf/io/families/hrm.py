"""HRM-Text: a stack of layers for the fast state and one for the slow one, each passed many times a token."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp
from jaxperf.models.config import Attention, Layer, ModelConfig


def _hrm(fields: Fields) -> ModelConfig:
    """Hierarchical reasoning (arXiv:2506.21734): `H_cycles` of `L_cycles` passes of the fast stack and one of the slow.

    Norms have no weights, attention is gated, and each pass keeps keys and values of its own. `num_hidden_layers` is
    that of a stack, or of all passes where `num_layers_per_stack` says how many a stack has.
    """
    slow, fast = fields.count_or("H_cycles", 2), fields.count_or("L_cycles", 3)
    passes = slow * (fast + 1)
    count = fields.optional_count("num_layers_per_stack") or fields.layer_count()
    heads, bias = fields.count("num_attention_heads"), fields.flag("attention_bias", False)
    attention = Attention(
        heads,
        heads,
        fields.count_or("head_dim", 128),
        qkv_bias=bias,
        output_bias=bias,
        gate_bias=bias,
        output_gate=True,
    )
    layer = Layer(attention, gated_mlp(fields, bias=fields.flag("mlp_bias", False)), norm_weight=False)
    again = dataclasses.replace(layer, shared=True)
    layers = (layer,) * count * 2 + (again,) * count * (passes - 2)  # in whatever order: all are alike
    if fields.flag("prefix_lm", True):
        fields.notes.append("Tokens of an instruction see each other both ways; attention is counted as causal.")
    return decoder(fields, layers, other_parameters=fields.count("hidden_size"))  # the fast state at first


FAMILIES = {"HrmTextForCausalLM": _hrm}

MODEL_TYPES = {"hrm_text": "HrmTextForCausalLM"}
