"""Nemotron models found by Puzzle (arXiv:2411.19146): Llama layers with sizes of their own, or without one block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, divided_head_dim
from jaxperf.models.checks import LARGEST_COUNT, show
from jaxperf.models.config import Attention, Layer, Mlp, ModelConfig

MULTIPLE = 256  # of units that a feed-forward block has


def _nemotron_nas(fields: Fields) -> ModelConfig:
    """One entry of `block_configs` a layer; one with neither attention nor a feed-forward block is left out."""
    listed, count = fields.data.get("block_configs"), fields.layer_count()
    if not isinstance(listed, list) or len(listed) != count:
        raise InputError(f"block_configs must be a list of {count} objects, one for each layer.")
    layers = [layer for index, each in enumerate(listed) if (layer := _layer(fields, index, each)) is not None]
    if not layers:
        raise InputError("block_configs has no layer with attention or a feed-forward block; at least one is needed.")
    if len(layers) < count:
        fields.notes.append(f"{count - len(layers)} of the {count} layers do nothing (no_op) and are left out.")
    return decoder(fields, tuple(layers))


def _layer(fields: Fields, index: int, entry: Any) -> Layer | None:
    where = f"block_configs[{index}]"
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is {show(entry)}; it must be an object with attention and ffn.")
    own = Fields(entry, fields.name, fields.architecture, fields.notes)
    try:
        mixer, ffn = _attention(fields, own.nested("attention")), _mlp(fields, own.nested("ffn"))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if mixer is None and ffn is None:
        return None
    return Layer(mixer, ffn, norms=1 if mixer is None or ffn is None else 2)


INSTEAD = {
    "replace_with_linear": "a single matrix in the place of the block, as in Nemotron 51B, is not described",
    "sparsify": "blocks with zeros among their weights are not described",
}


def _skipped(block: Fields, name: str) -> bool:
    """Whether a layer does without this block; what takes its place otherwise is not described."""
    for unread, reason in INSTEAD.items():
        if block.data.get(unread):
            raise InputError(f"{name}.{unread} is {show(block.data[unread])}; only false is supported: {reason}.")
    return block.flag("no_op", False)


def _attention(fields: Fields, block: Fields) -> Attention | None:
    """`n_heads_in_group` query heads share a key and value head."""
    if _skipped(block, "attention"):
        return None
    heads, group = fields.count("num_attention_heads"), block.count("n_heads_in_group")
    if heads % group:
        raise InputError(f"n_heads_in_group is {group}; it must divide the {heads} attention heads.")
    width = fields.optional_count("head_dim") or divided_head_dim(fields.count("hidden_size"), heads)
    bias, window = fields.flag("attention_bias", False), block.optional_count("window_length")
    kv_heads = next(found for found in range(1, heads + 1) if found * group == heads)
    return Attention(heads, kv_heads, width, window=window, qkv_bias=bias, output_bias=bias)


def _mlp(fields: Fields, block: Fields) -> Mlp | None:
    """`ffn_mult` times two thirds of the hidden size, rounded up to a multiple of 256."""
    if _skipped(block, "ffn"):
        return None
    factor = block.data.get("ffn_mult")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0.0 < factor <= 1e6:
        raise InputError(f"ffn_mult is {show(factor)}; it must be a number above 0.")
    units = int(2 * factor * fields.count("hidden_size") / 3)
    units += -units % MULTIPLE
    if not 0 < units <= LARGEST_COUNT:
        raise InputError(f"ffn_mult is {show(factor)}, which gives {units:,} units; at most {LARGEST_COUNT:,} will do.")
    return Mlp(units, bias=fields.flag("mlp_bias", False))


FAMILIES = {"DeciLMForCausalLM": _nemotron_nas}

MODEL_TYPES = {"nemotron-nas": "DeciLMForCausalLM"}
