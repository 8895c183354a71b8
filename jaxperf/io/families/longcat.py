"""LongCat-Flash (arXiv:2509.01322): two sublayers a layer, experts beside the dense block of the first of them."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, gated_mlp
from jaxperf.io.families.experts import predicted_layers
from jaxperf.io.families.latent import latent_attention
from jaxperf.models.checks import MOST_LAYERS
from jaxperf.models.config import Layer, ModelConfig, Moe


def _longcat_flash(fields: Fields) -> ModelConfig:
    """Each of `num_layers` is latent attention, dense block, attention, dense block. Experts read what the first dense
    block reads; what they return skips the second half, behind which an engine may hide their messages."""
    attention, dense = latent_attention(fields), gated_mlp(fields)
    halves = (Layer(attention, _experts(fields, dense.intermediate)), Layer(attention, dense))
    fields.notes.append("The shortcut around the second half of a layer hides no time of the experts.")
    return decoder(fields, halves * _pairs(fields), mtp_layers=predicted_layers(fields, halves))


def _pairs(fields: Fields) -> int:
    """`num_layers`; `num_hidden_layers`, where that is all there is, counts both halves."""
    pairs = fields.optional_count("num_layers", largest=MOST_LAYERS // 2)
    if pairs is not None:
        return pairs
    halves = fields.layer_count()
    if halves % 2:
        raise InputError(f"num_hidden_layers is {halves}; it must be even, two for each of num_layers.")
    return halves // 2


def _experts(fields: Fields, dense: int) -> Moe:
    """`moe_topk` of all choices, of which `zero_expert_num` hand the token on as it is: the others work in the mean as
    often as there are such, which the published counts of active parameters say too (a bias per choice sees to it)."""
    experts, idle = fields.count("num_experts"), fields.count_or("zero_expert_num", 256, smallest=0)
    drawn, choices = fields.count("num_experts_per_tok"), experts + idle
    if drawn > choices:
        raise InputError(f"moe_topk is {drawn}; it must be at most the {choices} choices of the router.")
    working = max(round(drawn * experts / choices), 1)
    if idle:
        fields.notes.append(
            f"{idle} of the {choices} choices of the router do nothing: of the {drawn} of a token {working} are taken "
            "to be experts, as many as in the mean."
        )
    return Moe(
        experts,
        working,
        fields.count("moe_intermediate_size"),
        shared_intermediate=dense,
        router_bias=fields.flag("router_bias", False),
        correction_bias=True,
        zero_experts=idle,
    )


FAMILIES = {"LongcatFlashForCausalLM": _longcat_flash}

MODEL_TYPES = {"longcat_flash": "LongcatFlashForCausalLM"}
