"""Pieces that families share: from checked fields to attention, feed-forward blocks, layers and the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.quantization.config import stored_format
from jaxperf.models.checks import LARGEST_COUNT, check_count, show
from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.feedforward import FeedForward, Mlp, Moe, check_groups
from jaxperf.models.mixers import Attention, Mixer

Family = Callable[[Fields], ModelConfig]
Windows = tuple[int | None, ...]


# --- attention --------------------------------------------------------------------------------------------------------


def divided_head_dim(hidden: int, heads: int, remedy: str = "give sizes that divide") -> int:
    """`hidden / heads`, which must be whole; `remedy` ends the message when it is not."""
    if hidden % heads:
        raise InputError(f"the hidden size {hidden} is not a multiple of the {heads} attention heads; {remedy}.")
    return hidden // heads


def grouped_attention(fields: Fields, head_dim: int | None = None, multi_head: bool = False, **kind: Any) -> Attention:
    """Grouped-query attention from the usual fields.

    **Arguments:** `head_dim`: the default of the configuration class when it is a number; otherwise the heads share
    the hidden size; `multi_head`: an absent `num_key_value_heads` means one for each head; `kind`: other fields of
    `Attention`.
    """
    heads = fields.count("num_attention_heads")
    if fields.find("head_dim") is not None:
        width = fields.count("head_dim")
    elif head_dim is not None:
        width = fields.count_or("head_dim", head_dim)
    else:
        width = divided_head_dim(fields.count("hidden_size"), heads, "give head_dim, or sizes that divide")
        fields.notes.append(f"head_dim is absent; hidden_size / num_attention_heads = {width} was used.")
    return Attention(heads, kv_head_count(fields, heads, multi_head), width, **kind)


def biased_attention(fields: Fields, multi_head: bool = True, **given: Any) -> Attention:
    """`grouped_attention`, with `attention_bias`, false where it is absent, on all of its projections."""
    bias = fields.flag("attention_bias", False)
    return grouped_attention(fields, multi_head=multi_head, qkv_bias=bias, output_bias=bias, **given)


def full_heads(fields: Fields, kv_heads: int | None = None, **kind: Any) -> Attention:
    """Heads that share the hidden size, in classes without `head_dim`; as many key and value heads unless given."""
    heads = fields.count("num_attention_heads")
    width = divided_head_dim(fields.count("hidden_size"), heads)
    given = fields.find("head_dim")
    if given is not None and given[1] != width:
        fields.notes.append(f"{given[0]} = {show(given[1])} was ignored; hidden_size / num_attention_heads = {width}.")
    return Attention(heads, heads if kv_heads is None else kv_heads, width, **kind)


def kv_head_count(fields: Fields, heads: int, multi_head: bool) -> int:
    """`num_key_value_heads`, which must divide the heads; one for each head if `multi_head` and it is absent."""
    if multi_head and fields.find("num_key_value_heads") is None:
        fields.notes.append(f"num_key_value_heads is absent; one for each attention head ({heads}) was used.")
        return heads
    kv_heads = fields.count("num_key_value_heads")
    if heads % kv_heads:
        raise InputError(
            f"num_attention_heads is {heads} and num_key_value_heads is {kv_heads}; "
            "the key and value heads must divide the attention heads."
        )
    return kv_heads


def layer_kinds(fields: Fields, allowed: Sequence[str]) -> list[str] | None:
    """`layer_types`, one of `allowed` for each layer, or `None` where the config has none."""
    kinds = fields.listing("layer_types", str, fields.layer_count())
    unknown = sorted(set(kinds or ()) - set(allowed))
    if unknown:
        names = " and ".join(", ".join(allowed).rsplit(", ", 1))
        raise InputError(f"layer_types contains {show(unknown[0])}; only {names} layers are supported.")
    return kinds


def windows(fields: Fields, usual: Windows) -> Windows:
    """The attention window of each layer: `layer_types` where the config has it, else what the family does."""
    kinds = layer_kinds(fields, ("full_attention", "sliding_attention"))
    if kinds is None:
        return usual
    if "sliding_attention" not in kinds:
        return (None,) * len(kinds)
    if not fields.flag("use_sliding_window", True):
        raise InputError("layer_types has sliding_attention layers but use_sliding_window is false; make them agree.")
    window = fields.count("sliding_window")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def varied(attention: Attention, **columns: Sequence[Any]) -> list[Mixer]:
    """The same attention for each layer, with the fields named changed layer by layer."""
    rows = zip(*columns.values(), strict=True)
    return [dataclasses.replace(attention, **dict(zip(columns, row, strict=True))) for row in rows]


def every(step: int, count: int, offset: int = -1) -> list[bool]:
    """True for the layers whose index is `offset` modulo `step`; by default the last of each `step`."""
    return [index % step == offset % step for index in range(count)]


def rotary_layers(fields: Fields) -> list[bool]:
    """The layers with rotary positions: `no_rope_layers`, in which 1 means that they do, or all but each fourth."""
    count = fields.layer_count()
    listed = fields.listing("no_rope_layers", int, count if fields.data.get("no_rope_layers") else None)
    if listed:
        return [check_count("An item of no_rope_layers", item, 0, 1) == 1 for item in listed]
    return [not without for without in every(fields.optional_count("no_rope_layer_interval") or 4, count)]


def one_window(fields: Fields) -> Windows:
    """The same window for every layer; none where the config has none."""
    return (fields.optional_count("sliding_window"),) * fields.layer_count()


def full_every(fields: Fields, step: int, window: int | None) -> Windows:
    """Windows where the last of each `step` layers attends to everything, unless `layer_types` says otherwise."""
    usual = tuple(None if full else window for full in every(step, fields.layer_count()))
    return windows(fields, usual)


# --- feed-forward -----------------------------------------------------------------------------------------------------


def gated_mlp(fields: Fields, **kind: Any) -> Mlp:
    """A gated block of `intermediate_size` units."""
    return Mlp(fields.count("intermediate_size"), **kind)


def top_k(fields: Fields, experts: int) -> int:
    """Experts a token visits, at most all of them."""
    chosen = fields.count("num_experts_per_tok")
    if chosen > experts:
        raise InputError(
            f"num_experts_per_tok is {chosen} and the number of experts is {experts}; "
            "a token cannot visit more experts than there are."
        )
    return chosen


def routed(fields: Fields, width: str = "moe_intermediate_size", **kind: Any) -> Moe:
    """Experts from the usual fields; `width` names the field with the units of one expert."""
    experts = fields.count("num_experts")
    chosen = top_k(fields, experts)
    return Moe(experts, chosen, fields.count(width), **kind, **_groups(fields, experts, chosen))


def _groups(fields: Fields, experts: int, chosen: int) -> dict[str, Any]:
    """The groups of experts and those that a token uses; none where a config lacks the names, or says that the choice
    does not look at groups (`topk_method` greedy, DeepSeek V2 Lite)."""
    groups, allowed = fields.optional_count("n_group"), fields.optional_count("topk_group")
    if (groups is None) != (allowed is None):
        fields.notes.append("Of n_group and topk_group only one is given; tokens may use all groups of experts.")
    if groups is None or allowed is None or fields.data.get("topk_method") == "greedy":
        return {}
    check_groups(experts, chosen, groups, allowed, ("n_group", "topk_group"))
    return {"groups": groups, "groups_per_token": allowed}


def sparse_where(fields: Fields, moe: Moe, sparse: Sequence[bool], **dense: Any) -> tuple[FeedForward, ...]:
    """`moe` in the layers where `sparse` is true, a gated block of `intermediate_size` units in the others."""
    if all(sparse):
        return (moe,) * len(sparse)
    block = gated_mlp(fields, **dense)
    return tuple(moe if is_sparse else block for is_sparse in sparse)


def indices(fields: Fields, field: str) -> list[int]:
    """A list of layer numbers, empty when the field is absent."""
    listed = fields.listing(field, int) or []
    for index in listed:
        check_count(f"An item of {field}", index, smallest=0, largest=fields.layer_count() - 1)
    return listed


# --- the model --------------------------------------------------------------------------------------------------------


def tied_embeddings(fields: Fields, default: bool) -> bool:
    """`tie_word_embeddings`, with a note when it is absent."""
    if fields.find("tie_word_embeddings") is None:
        spelled = show(default)
        fields.notes.append(
            f"tie_word_embeddings is absent; {spelled}, the default of {fields.architecture}, was used."
        )
    return fields.flag("tie_word_embeddings", default)


# Kinds of `rope_scaling` that stretch the limit, in words; those of Llama 3 and LongRoPE state the stretched one.
STRETCHES = {"yarn": "YaRN", "linear": "linear", "dynamic": "dynamic"}


def context_limit(fields: Fields) -> int | None:
    """`max_position_embeddings`, or what `rope_scaling` stretches the positions to, if that is more.

    YaRN (arXiv:2309.00071) stretches the original positions, linear and dynamic scaling the limit: model cards have
    `rope_scaling` added and leave the limit as it is, and engines then serve `factor` x as much (vLLM but for Gemma 3,
    whose limit is of after its linear scaling).
    """
    limit = fields.optional_count("max_position_embeddings")
    for name in ("rope_parameters", "rope_scaling"):
        scaling = fields.data.get(name)
        if limit is None or not isinstance(scaling, Mapping) or fields.architecture.startswith("Gemma3"):
            continue
        kind = next((each for each in STRETCHES if each in map(scaling.get, ("rope_type", "type"))), None)
        if kind is None:
            continue
        original = fields.nested(name).optional_count("original_max_position_embeddings") if kind == "yarn" else None
        factor = 1.0 if scaling.get("factor") is None else scaling["factor"]
        if type(factor) not in (int, float) or not 1.0 <= factor <= LARGEST_COUNT:
            raise InputError(f"{name}.factor is {show(factor)}; {STRETCHES[kind]} scaling needs a number from 1.")
        stretched = min(int((original or limit) * factor), LARGEST_COUNT)
        if stretched > limit:
            fields.notes.append(
                f"{name} stretches the context from {limit:,} to {stretched:,} tokens ({STRETCHES[kind]})."
            )
            return stretched
    return limit


def stack(mixers: Iterable[Mixer | None], blocks: Iterable[FeedForward | None], **kind: Any) -> tuple[Layer, ...]:
    """One `Layer` for each mixer and block; `kind` are the other fields of `Layer`, the same in all."""
    return tuple(Layer(mixer, block, **kind) for mixer, block in zip(mixers, blocks, strict=True))


def decoder(fields: Fields, layers: tuple[Layer, ...], tied: bool = False, **parts: Any) -> ModelConfig:
    """The model around the layers, from the usual fields.

    **Arguments:** `tied`: the default of the configuration class; `parts`: fields of `ModelConfig` that differ from
    rotary positions, a final norm like the norms of the layers and a token table as wide as the layers.
    """
    hidden = fields.count("hidden_size")
    weight_format, quantization = stored_format(fields)
    limit = context_limit(fields)
    if limit is None and any(getattr(layer.mixer, "rotary", False) for layer in layers):
        fields.notes.append("max_position_embeddings is absent; the context was taken to have no limit.")
    usual: dict[str, Any] = dict(
        name=fields.name,
        architecture=fields.architecture,
        hidden=hidden,
        vocabulary=fields.count("vocab_size"),
        layers=layers,
        tied_embeddings=tied_embeddings(fields, tied),
        positions=0,
        embedding_width=hidden,
        final_norm=True,
        norm_bias=layers[0].norm_bias,
        norm_weight=layers[0].norm_weight,
        max_context=limit,
        weight_format=weight_format,
        quantization=quantization,
    )
    return ModelConfig(**(usual | parts))


def rotary_model(
    fields: Fields,
    attention: Attention,
    blocks: FeedForward | Sequence[FeedForward],
    widths: Windows | None = None,
    tied: bool = False,
    **kind: Any,
) -> ModelConfig:
    """A model with rotary positions: the same attention in each layer except for its window.

    **Arguments:** `blocks`: the feed-forward block, or one for each layer; `widths`: windows without `layer_types`,
    none if absent; `tied`: as in `decoder`; `kind`: fields of `Layer`.
    """
    count = fields.layer_count()
    each = (blocks,) * count if isinstance(blocks, FeedForward) else blocks
    usual = windows(fields, (None,) * count if widths is None else widths)
    return decoder(fields, stack(varied(attention, window=usual), each, **kind), tied)
