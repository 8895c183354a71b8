"""Encoders of text, BERT (arXiv:1810.04805) and what is built like it, and those of sound in `audio`.

Nothing is generated, so there is no KV cache.
The model is one `Encoder` of kind "text"; the weights of its head, which the class name tells, are other parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families import audio
from jaxperf.io.families.common import Family, layer_kinds
from jaxperf.io.families.encoder_parts import (
    dense,
    encoder_model,
    label_count,
    plain_layers,
    renamed,
    two_way_attention,
)
from jaxperf.models.config import Encoder, Layer, ModelConfig, Table
from jaxperf.models.feedforward import Mlp

# --- heads: what each class adds to the encoder -----------------------------------------------------------------------

# Class name without the family -> its pieces; `pooled` reads the first token, `span` marks an answer.
BERT_HEADS: Mapping[str, tuple[str, ...]] = {
    "Model": ("pooled",),
    "ForMaskedLM": ("masked",),
    "ForPreTraining": ("pooled", "masked", "pair"),
    "ForSequenceClassification": ("pooled", "labels"),
    "ForTokenClassification": ("labels",),
    "ForQuestionAnswering": ("span",),
}
ROBERTA_HEADS = {name: pieces for name, pieces in BERT_HEADS.items() if name != "ForPreTraining"}
POOLERLESS_HEADS = ROBERTA_HEADS | {"Model": ()}
MODERNBERT_HEADS = {name: ("pooled", *pieces) for name, pieces in ROBERTA_HEADS.items()} | {
    "Model": (),
    "ForMaskedLM": ("masked",),
    "ForSequenceClassification": ("pooled", "labels"),
}
ELECTRA_HEADS = POOLERLESS_HEADS | {"ForPreTraining": ("pooled", "score")}


def _head(fields: Fields, pieces: Iterable[str], width: int, bias: bool = True) -> int:
    """Weights of the head; `width` of the token table, which the masked-word head shares; `bias` of its transform."""
    hidden = fields.count("hidden_size")
    norm = 2 * width if bias else width
    weights: Mapping[str, Callable[[], int]] = {
        "pooled": lambda: dense(hidden, hidden, bias) + (0 if bias else hidden),  # ModernBERT has a norm, no bias
        "masked": lambda: dense(hidden, width, bias) + norm + fields.count("vocab_size"),
        "pair": lambda: dense(hidden, 2),
        "span": lambda: dense(hidden, 2),
        "score": lambda: dense(hidden, 1),
        "labels": lambda: dense(hidden, label_count(fields)),
    }
    return sum(weights[piece]() for piece in pieces)


# --- one function per family ------------------------------------------------------------------------------------------


def _bert(fields: Fields, pieces: tuple[str, ...], token_types: int = 2) -> ModelConfig:
    """Also RoBERTa (arXiv:1907.11692), DistilBERT (arXiv:1910.01108) and ELECTRA (arXiv:2003.10555)."""
    hidden, context = fields.count("hidden_size"), fields.count("max_position_embeddings")
    width = fields.optional_count("embedding_size") or hidden
    types = fields.optional_count("type_vocab_size", smallest=0)
    rows = {
        "tokens": fields.count("vocab_size"),
        "positions": context,
        "types": token_types if types is None else types,
    }
    tables = tuple(Table(name, count, width) for name, count in rows.items() if count)
    narrow = 0 if width == hidden else dense(width, hidden) + 2 * width  # ELECTRA-small: its norm is narrow too
    encoder = Encoder(
        "encoder",
        "text",
        hidden,
        plain_layers(fields),
        tables=tables,
        norms=0 if narrow else 1,
        norm_bias=True,
        other_parameters=narrow,
    )
    return encoder_model(fields, [encoder], context, _head(fields, pieces, width))


def _albert(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """ALBERT (arXiv:1909.11942): a narrow token table, and layers of a group that share one set of weights."""
    config = _bert(fields, pieces)
    encoder, groups = config.encoders[0], fields.count_or("num_hidden_groups", 1)
    count = len(encoder.layers)
    if groups > count:
        raise InputError(f"num_hidden_groups is {groups} and num_hidden_layers is {count}; a group needs a layer.")
    if fields.count_or("inner_group_num", 1) != 1:
        raise InputError("inner_group_num is not 1; only ALBERT with one layer in a group is supported.")
    owners = {next(index for index in range(count) if index * groups // count == group) for group in range(groups)}
    layers = tuple(dataclasses.replace(layer, shared=index not in owners) for index, layer in enumerate(encoder.layers))
    return dataclasses.replace(config, encoders=(dataclasses.replace(encoder, layers=layers),))


def _mpnet(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """MPNet (arXiv:2004.09297): no token types, a table of relative positions with a column for each head."""
    config = _bert(fields, pieces, 0)
    buckets = fields.count_or("relative_attention_num_buckets", 32)
    relative = Table("relative positions", buckets, fields.count("num_attention_heads"))
    encoder = dataclasses.replace(config.encoders[0], tables=(*config.encoders[0].tables, relative))
    return dataclasses.replace(config, encoders=(encoder,))


def _roberta(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """The position table has two rows before the first position."""
    config = _bert(fields, pieces, 1)
    return dataclasses.replace(config, max_context=fields.count("max_position_embeddings", smallest=3) - 2)


def _prenorm_roberta(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """Norms before the blocks, and one after the last layer beside that of the tables."""
    config = _roberta(fields, pieces)
    return dataclasses.replace(config, encoders=(dataclasses.replace(config.encoders[0], norms=2),))


def _ernie(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """BERT, with a table of tasks where `use_task_id` is true (arXiv:1907.12412)."""
    config = _bert(fields, pieces)
    if not fields.flag("use_task_id", False):
        return config
    tasks = Table("tasks", fields.count_or("task_type_vocab_size", 3), config.hidden)
    encoder = dataclasses.replace(config.encoders[0], tables=(*config.encoders[0].tables, tasks))
    return dataclasses.replace(config, encoders=(encoder,))


def _distilbert(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    return _bert(renamed(fields, {"dim": "hidden_size", "hidden_dim": "intermediate_size"}), pieces, 0)


def _deberta(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """Disentangled attention (arXiv:2006.03654, arXiv:2111.09543): one table of relative positions for all layers."""
    hidden, context = fields.count("hidden_size"), fields.count("max_position_embeddings")
    width = fields.optional_count("embedding_size") or hidden
    absolute = fields.flag("position_biased_input", True)
    relative = fields.flag("relative_attention", False)
    span = fields.find("max_relative_positions")
    reach = fields.count("max_relative_positions") if span and span[1] != -1 else context
    buckets = fields.find("position_buckets")
    reach = fields.count("position_buckets") if buckets and buckets[1] != -1 else reach
    rows = {
        "tokens": fields.count("vocab_size"),
        "positions": context if absolute else 0,
        "types": fields.optional_count("type_vocab_size", smallest=0) or 0,
    }
    tables = [Table(name, count, width) for name, count in rows.items() if count]
    tables += [Table("relative positions", 2 * reach, hidden)] if relative else []
    layers = plain_layers(fields)
    if relative and not fields.flag("share_att_key", False):
        found = fields.find("pos_att_type")
        kinds = found[1].split("|") if found and isinstance(found[1], str) else found[1] if found else []
        extra = sum(dense(hidden, hidden) for kind in ("c2p", "p2c") if kind in kinds)
        layers = tuple(dataclasses.replace(layer, other_parameters=extra) for layer in layers)
    taps = fields.optional_count("conv_kernel_size", smallest=0) or 0
    other = (dense(taps * hidden, hidden) + 2 * hidden if taps else 0) + (0 if width == hidden else width * hidden)
    normed = relative and "layer_norm" in str((fields.find("norm_rel_ebd") or ("", ""))[1])
    encoder = Encoder(
        "encoder",
        "text",
        hidden,
        layers,
        tables=tuple(tables),
        norms=2 if normed else 1,
        norm_bias=True,
        other_parameters=other,
    )
    return encoder_model(fields, [encoder], context, _head(fields, pieces, width))


def _modernbert(fields: Fields, pieces: tuple[str, ...]) -> ModelConfig:
    """Rotary positions, gated blocks, two of three layers in a window (arXiv:2412.13663); one norm fewer at first."""
    count, hidden = fields.layer_count(), fields.count("hidden_size")
    step, window = fields.count_or("global_attn_every_n_layers", 3), fields.count_or("local_attention", 128)
    usual = ["sliding_attention" if index % step else "full_attention" for index in range(count)]
    kinds = layer_kinds(fields, ("full_attention", "sliding_attention")) or usual
    bias, norm_bias = fields.flag("attention_bias", False), fields.flag("norm_bias", False)
    block = Mlp(fields.count("intermediate_size"), bias=fields.flag("mlp_bias", False))
    full = two_way_attention(fields.count("num_attention_heads"), hidden, bias, rotary=True)
    windowed = dataclasses.replace(full, window=window)
    layers = tuple(
        Layer(windowed if kind == "sliding_attention" else full, block, norms=2 if index else 1, norm_bias=norm_bias)
        for index, kind in enumerate(kinds)
    )
    vocabulary = fields.count("vocab_size")
    encoder = Encoder("encoder", "text", hidden, layers, vocabulary=vocabulary, norms=2, norm_bias=norm_bias)
    other = _head(fields, pieces, hidden, bias=False)
    return encoder_model(fields, [encoder], fields.optional_count("max_position_embeddings"), other)


def _with_heads(
    prefix: str, heads: Mapping[str, tuple[str, ...]], read: Callable[..., ModelConfig]
) -> dict[str, Family]:
    return {prefix + suffix: partial(read, pieces=pieces) for suffix, pieces in heads.items()}


FAMILIES: dict[str, Family] = {
    **audio.FAMILIES,
    **_with_heads("Bert", BERT_HEADS, _bert),
    **_with_heads("Roberta", ROBERTA_HEADS, _roberta),
    **_with_heads("XLMRoberta", ROBERTA_HEADS, _roberta),
    **_with_heads("Camembert", ROBERTA_HEADS, _roberta),
    **_with_heads("Data2VecText", ROBERTA_HEADS, _roberta),
    **_with_heads("XLMRobertaXL", ROBERTA_HEADS, _roberta),  # its norm is behind the layers, not before them
    **_with_heads("RobertaPreLayerNorm", ROBERTA_HEADS, _prenorm_roberta),
    **_with_heads("Ernie", BERT_HEADS, _ernie),
    **_with_heads("MegatronBert", BERT_HEADS, _bert),  # its norm is behind the layers, not before them
    **_with_heads("Albert", BERT_HEADS, _albert),
    **_with_heads("MPNet", ROBERTA_HEADS, _mpnet),
    **_with_heads("DistilBert", POOLERLESS_HEADS, _distilbert),
    **_with_heads("Electra", ELECTRA_HEADS, _bert),
    **_with_heads("DebertaV2", POOLERLESS_HEADS, _deberta),
    **_with_heads("ModernBert", MODERNBERT_HEADS, _modernbert),
}

MODEL_TYPES: dict[str, str] = {
    **audio.MODEL_TYPES,
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "camembert": "CamembertModel",
    "data2vec-text": "Data2VecTextModel",
    "xlm-roberta-xl": "XLMRobertaXLModel",
    "roberta-prelayernorm": "RobertaPreLayerNormModel",
    "ernie": "ErnieModel",
    "megatron-bert": "MegatronBertModel",
    "albert": "AlbertModel",
    "mpnet": "MPNetModel",
    "distilbert": "DistilBertModel",
    "electra": "ElectraModel",
    "deberta-v2": "DebertaV2Model",
    "modernbert": "ModernBertModel",
}
