"""Zamba (arXiv:2405.16712) and Zamba 2 (arXiv:2411.15242): state-space layers, and before some of them attention and a
feed-forward block whose weights these uses share."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, divided_head_dim, gated_mlp, kv_head_count
from jaxperf.io.families.state_space import mamba1, mamba2
from jaxperf.models.config import Attention, Layer, Mixer, ModelConfig

Projections = tuple[tuple[int, int], ...]  # inputs and outputs of each

NAMES = {"mamba": "linear_attention"}  # of layers in older configs


def _zamba(fields: Fields) -> ModelConfig:
    """Mamba with `n_mamba_heads` for the sizes of steps, which weigh and take as much as one."""
    inner = fields.count_or("mamba_expand", 2) * fields.count("hidden_size")
    return _hybrid(fields, mamba1(fields, inner), blocks=1, rotary=False, adapters=())


def _zamba2(fields: Fields) -> ModelConfig:
    """`num_mem_blocks` blocks in turn, with adapters of `adapter_rank` for each use."""
    hidden, inner = fields.count("hidden_size"), fields.count_or("mamba_expand", 2) * fields.count("hidden_size")
    heads, rank = fields.count("n_mamba_heads"), fields.count_or("adapter_rank", 128)
    mixer = mamba2(fields, heads, divided_head_dim(inner, heads))
    units = fields.optional_count("intermediate_size") or 4 * hidden
    adapters = [(hidden, rank), (rank, 2 * units)]
    if fields.flag("use_shared_attention_adapter", False):
        adapters += [(2 * hidden, rank), (rank, 2 * hidden)] * 3
    blocks = fields.count_or("num_mem_blocks", 1)
    return _hybrid(fields, mixer, blocks, fields.flag("use_mem_rope", False), tuple(adapters))


def _hybrid(fields: Fields, mixer: Mixer, blocks: int, rotary: bool, adapters: Projections) -> ModelConfig:
    """Attention reads what the layer reads beside the token table's row; each use has a matrix after its block, which
    is counted with the state-space layer that follows, as adapters are."""
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    kv_heads = kv_head_count(fields, heads, multi_head=True)
    attention = Attention(heads, kv_heads, divided_head_dim(2 * hidden, heads), rotary=rotary, input_width=2 * hidden)
    mlp = gated_mlp(fields)
    layers: list[Layer] = []
    uses = 0
    for kind in _kinds(fields):
        after: Projections = ()
        if kind == "hybrid":  # its first norm is twice as wide
            layers.append(Layer(attention, mlp, other_parameters=hidden, shared=uses >= blocks))
            uses, after = uses + 1, ((hidden, hidden), *adapters)
        layers.append(Layer(mixer, None, norms=1, projections=after))
    return decoder(fields, tuple(layers), tied=True)


def _kinds(fields: Fields) -> list[str]:
    """`layers_block_type`, by name of layer; in Zamba also by period and offset, the third and from the fourth on."""
    count = fields.layer_count()
    listed = fields.listing("layers_block_type", str, count)
    if listed is None and fields.find("attn_layer_period") is None:
        raise InputError("layers_block_type is missing; it must have hybrid or mamba for each layer.")
    if listed is None:
        period, offset = fields.count("attn_layer_period"), fields.count("attn_layer_offset", smallest=0)
        listed = ["mamba", "mamba", "hybrid"][:count]
        listed += ["hybrid" if index % period == offset else "mamba" for index in range(count - len(listed))]
    kinds = [NAMES.get(kind, kind) for kind in listed]
    if set(kinds) - {"linear_attention", "hybrid"}:
        raise InputError("layers_block_type has an item that is neither hybrid nor mamba; give one of them.")
    return kinds


FAMILIES = {"ZambaForCausalLM": _zamba, "Zamba2ForCausalLM": _zamba2}

MODEL_TYPES = {"zamba": "ZambaForCausalLM", "zamba2": "Zamba2ForCausalLM"}
