"""Nemotron models found by Puzzle (arXiv:2411.19146): Llama layers with sizes of their own, without one block, or with
a single matrix in its place."""

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
    each = [_layers(fields, index, entry) for index, entry in enumerate(listed)]
    layers = [layer for own in each for layer in own]
    if not layers:
        raise InputError("block_configs has no layer with attention or a feed-forward block; at least one is needed.")
    idle = sum(not own for own in each)
    if idle:
        fields.notes.append(f"{idle} of the {count} layers do nothing (no_op) and are left out.")
    if any(isinstance(entry, Mapping) and _replaced(entry) for entry in listed):
        fields.notes.append("A matrix in the place of a block (replace_with_linear) is timed as two of half its size.")
    return decoder(fields, tuple(layers))


def _replaced(entry: Mapping[str, Any]) -> bool:
    parts = (entry.get("attention"), entry.get("ffn"))
    return any(isinstance(part, Mapping) and part.get("replace_with_linear") is True for part in parts)


def _layers(fields: Fields, index: int, entry: Any) -> list[Layer]:
    """The layer, in two where a matrix stands for its attention; none where it does nothing."""
    where = f"block_configs[{index}]"
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is {show(entry)}; it must be an object with attention and ffn.")
    own = Fields(entry, fields.name, fields.architecture, fields.notes)
    try:
        mixing, ffn = _attention(fields, own.nested("attention")), _mlp(fields, own.nested("ffn"))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if isinstance(mixing, Mlp):
        return [Layer(None, mixing, norms=1), *([Layer(None, ffn, norms=1)] if ffn else [])]
    if mixing is None and ffn is None:
        return []
    return [Layer(mixing, ffn, norms=1 if mixing is None or ffn is None else 2)]


def _skipped(block: Fields, name: str) -> bool:
    """Whether a layer does without this block."""
    if block.data.get("sparsify"):
        reason = "blocks with zeros among their weights are not described"
        raise InputError(f"{name}.sparsify is {show(block.data['sparsify'])}; only false is supported: {reason}.")
    return block.flag("no_op", False)


def _matrix(fields: Fields) -> Mlp:
    """As many weights and as much work as a matrix from the hidden width to itself."""
    hidden = fields.count("hidden_size")
    if hidden % 2:
        raise InputError(f"replace_with_linear needs an even hidden_size; it is {hidden}.")
    return Mlp(hidden // 2, gated=False)


def _attention(fields: Fields, block: Fields) -> Attention | Mlp | None:
    """`n_heads_in_group` query heads share a key and value head; a matrix where the config replaces them by one."""
    if _skipped(block, "attention"):
        return None
    if block.flag("replace_with_linear", False):
        return _matrix(fields)
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
    if block.flag("replace_with_linear", False):
        return _matrix(fields)
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
