"""Hybrids of attention and recurrent layers: Jamba, Bamba, Granite 4, Nemotron-H, Falcon-H1."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import (
    biased_attention,
    decoder,
    every,
    gated_mlp,
    grouped_attention,
    indices,
    layer_kinds,
    routed,
    sparse_where,
    stack,
)
from jaxperf.io.families.experts import predicted_layers
from jaxperf.io.families.state_space import mamba1, mamba2
from jaxperf.models.checks import MOST_LAYERS, check_count, show
from jaxperf.models.config import FeedForward, Layer, Mamba2, Mixer, Mlp, ModelConfig

ATTENTION = ("attention", "full_attention")  # how configs name the two kinds of layer
MAMBA = ("mamba", "linear_attention")


def _mamba2(fields: Fields, gated_norm: bool = True) -> Mamba2:
    """Heads of the state space; "auto" is what fills `mamba_expand` times the hidden size."""
    heads = fields.count("mamba_num_heads")
    found = fields.find("mamba_head_dim")
    if found is None or found[1] == "auto":
        width = fields.count_or("mamba_expand", 2) * fields.count("hidden_size")
        if width % heads:
            raise InputError(f"the {heads} heads of the state space do not divide its {width} channels.")
        return mamba2(fields, heads, width // heads, gated_norm)
    return mamba2(fields, heads, fields.count("mamba_head_dim"), gated_norm)


def _jamba(fields: Fields) -> ModelConfig:
    """One layer in `attn_layer_period` attends, without positions; one in `expert_layer_period` has experts."""
    count = fields.layer_count()
    width = fields.count_or("mamba_expand", 2) * fields.count("hidden_size")
    mamba, attention = mamba1(fields, width, inner_norms=True), grouped_attention(fields, rotary=False)
    period = fields.count_or("attn_layer_period", 8)
    attends = every(period, count, fields.count_or("attn_layer_offset", 4, smallest=0))
    step = fields.count_or("expert_layer_period", 2)
    sparse = every(step, count, fields.count_or("expert_layer_offset", 1, smallest=0))
    blocks = sparse_where(fields, routed(fields, "intermediate_size"), sparse)
    return decoder(fields, stack([attention if one else mamba for one in attends], blocks))


def _bamba(fields: Fields) -> ModelConfig:
    attends = indices(fields, "attn_layer_indices")
    attention, mamba = biased_attention(fields), _mamba2(fields)
    mixers: list[Mixer] = [attention if index in attends else mamba for index in range(fields.layer_count())]
    block = gated_mlp(fields, bias=fields.flag("mlp_bias", False))
    return decoder(fields, stack(mixers, (block,) * len(mixers)))


def _granite_hybrid(fields: Fields) -> ModelConfig:
    """Granite 4: experts beside a shared block, or that block alone where `num_local_experts` is 0."""
    kinds = layer_kinds(fields, (*ATTENTION, *MAMBA)) or ["mamba"] * fields.layer_count()
    shared = fields.count_or("shared_expert_intermediate_size", 1024)
    sparse = fields.count("num_experts", smallest=0) > 0
    block: FeedForward = routed(fields, "intermediate_size", shared_intermediate=shared) if sparse else Mlp(shared)
    attention = biased_attention(fields, rotary=fields.data.get("position_embedding_type") == "rope")
    mamba = _mamba2(fields)
    mixers = [attention if kind in ATTENTION else mamba for kind in kinds]
    return decoder(fields, stack(mixers, (block,) * len(mixers)))


LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
BLOCKS = (*ATTENTION, *MAMBA, "mlp", "moe")


def _nemotron_kinds(fields: Fields, listed_in: str, pattern_in: str) -> list[str] | None:
    """One block a layer: a text such as "M-M*E", or a list of words; None where a config has neither."""
    listed = fields.listing(listed_in, str)
    if listed is None:
        pattern = fields.data.get(pattern_in)
        if not isinstance(pattern, str) or not pattern:
            return None
        listed = [LETTERS.get(letter, letter) for letter in pattern]
    check_count("The number of layers in the pattern", len(listed), largest=MOST_LAYERS)
    unknown = [kind for kind in listed if kind not in BLOCKS]
    if unknown:
        raise InputError(f"the pattern of layers contains {show(unknown[0])}; it may contain M, *, - and E.")
    return listed


def _nemotron_layers(fields: Fields) -> list[str]:
    listed = _nemotron_kinds(fields, "layers_block_type", "hybrid_override_pattern")
    if listed is None:
        raise InputError("hybrid_override_pattern is missing; it must have one letter (M, *, - or E) a layer.")
    count = fields.find("num_hidden_layers")
    if count is not None and count[1] != len(listed):
        raise InputError(f"{count[0]} is {show(count[1])} and the pattern has {len(listed)} layers; make them agree.")
    return listed


def _nemotron_h(fields: Fields) -> ModelConfig:
    """Nemotron-H and Nemotron 3 (arXiv:2504.03624): every layer is one norm and one block."""
    kinds, further = _nemotron_layers(fields), _further_kinds(fields)
    attention, mamba = biased_attention(fields, rotary=False), _mamba2(fields)
    blocks = _nemotron_blocks(fields, {*kinds, *further})
    mixers: dict[str, Mixer] = {kind: attention if kind in ATTENTION else mamba for kind in (*ATTENTION, *MAMBA)}
    layers = tuple(Layer(mixers.get(kind), blocks.get(kind), norms=1) for kind in kinds)
    predicted = predicted_layers(fields, (_joined(further, mixers, blocks),)) if further else ()
    return decoder(fields, layers, mtp_layers=predicted)


def _further_kinds(fields: Fields) -> list[str]:
    """The blocks that predict one further token, none where the model predicts none."""
    if not fields.optional_count("num_nextn_predict_layers", smallest=0):
        return []
    return _nemotron_kinds(fields, "mtp_layers_block_type", "mtp_hybrid_override_pattern") or ["attention", "moe"]


def _nemotron_blocks(fields: Fields, kinds: set[str]) -> dict[str, FeedForward]:
    blocks: dict[str, FeedForward] = {}
    if "mlp" in kinds:
        bias = fields.flag("mlp_bias", False)
        blocks["mlp"] = Mlp(fields.count("intermediate_size"), gated=False, bias=bias)
    if "moe" in kinds:
        shared = fields.count_or("num_shared_experts", 1, smallest=0)
        width = fields.count("shared_expert_intermediate_size") if shared else 0
        latent = fields.optional_count("moe_latent_size")
        blocks["moe"] = routed(
            fields, gated=False, shared_intermediate=shared * width, correction_bias=True, latent=latent
        )
    return blocks


def _joined(kinds: list[str], mixers: dict[str, Mixer], blocks: dict[str, FeedForward]) -> Layer:
    """What predicts one further token: a mixer and a feed-forward block, each with its norm, as one layer."""
    if len(kinds) == 2 and kinds[0] in mixers and kinds[1] in blocks:
        return Layer(mixers[kinds[0]], blocks[kinds[1]])
    if len(kinds) == 1:
        return Layer(mixers.get(kinds[0]), blocks.get(kinds[0]), norms=1)
    raise InputError(
        "the blocks that predict a further token must be a mixer, a feed-forward block, or one after the other."
    )


def _falcon_h1(fields: Fields) -> ModelConfig:
    """Attention and Mamba-2 read the same norm and are added (arXiv:2507.22448)."""
    norm = fields.flag("mamba_rms_norm", False)
    inner = fields.optional_count("mamba_d_ssm")
    mamba = _mamba2(fields, norm)
    if inner is not None and inner != mamba.heads * mamba.head_dim:
        raise InputError(
            f"mamba_d_ssm is {inner} and mamba_n_heads x mamba_d_head is {mamba.heads * mamba.head_dim}; "
            "make them agree."
        )
    layer = Layer(biased_attention(fields), gated_mlp(fields, bias=fields.flag("mlp_bias", False)), beside=mamba)
    return decoder(fields, (layer,) * fields.layer_count())


FAMILIES = {
    "JambaForCausalLM": _jamba,
    "BambaForCausalLM": _bamba,
    "GraniteMoeHybridForCausalLM": _granite_hybrid,
    "NemotronHForCausalLM": _nemotron_h,
    "FalconH1ForCausalLM": _falcon_h1,
}

MODEL_TYPES = {
    "jamba": "JambaForCausalLM",
    "bamba": "BambaForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
}
