"""Models of state-space layers alone: Mamba, Mamba-2, Falcon-Mamba; and the pieces hybrids share with them."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder
from jaxperf.models.config import Layer, Mamba1, Mamba2, ModelConfig


def mamba1(fields: Fields, inner: int, inner_norms: bool = False) -> Mamba1:
    """Selective state space of `inner` channels; a rank of "auto" is the hidden size over 16, rounded up."""
    rank = fields.find("time_step_rank")
    automatic = -(-fields.count("hidden_size") // 16)
    return Mamba1(
        inner=inner,
        state=fields.count_or("state_size", 16),
        dt_rank=automatic if rank is not None and rank[1] == "auto" else fields.count_or("time_step_rank", automatic),
        conv=fields.count_or("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("mamba_proj_bias", False),
        inner_norms=inner_norms,
    )


def mamba2(fields: Fields, heads: int, head_dim: int, gated_norm: bool = True) -> Mamba2:
    """State space of `heads` heads, with the other sizes from the fields."""
    groups = fields.count_or("n_groups", 1)
    if heads % groups:
        raise InputError(f"the {heads} heads of the state space are not a multiple of the {groups} groups.")
    return Mamba2(
        heads=heads,
        head_dim=head_dim,
        groups=groups,
        state=fields.count_or("state_size", 128),
        conv=fields.count_or("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("mamba_proj_bias", False),
        gated_norm=gated_norm,
    )


def _mamba(fields: Fields) -> ModelConfig:
    inner = fields.optional_count("intermediate_size")
    if inner is None:
        inner = fields.count_or("expand", 2) * fields.count("hidden_size")
    layer = Layer(mamba1(fields, inner), None, norms=1)
    return decoder(fields, (layer,) * fields.layer_count(), tied=True)


def _mamba2(fields: Fields) -> ModelConfig:
    heads = fields.optional_count("num_heads")
    head_dim = fields.count_or("head_dim", 64)
    inner = fields.count_or("expand", 2) * fields.count("hidden_size")
    if heads is None:
        heads = inner // head_dim
    if heads * head_dim != inner:
        raise InputError(
            f"num_heads x head_dim is {heads * head_dim} and expand x hidden_size is {inner}; make them agree."
        )
    layer = Layer(mamba2(fields, heads, head_dim), None, norms=1)
    return decoder(fields, (layer,) * fields.layer_count())


FAMILIES = {"MambaForCausalLM": _mamba, "FalconMambaForCausalLM": _mamba, "Mamba2ForCausalLM": _mamba2}

MODEL_TYPES = {
    "mamba": "MambaForCausalLM",
    "falcon_mamba": "FalconMambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
}
