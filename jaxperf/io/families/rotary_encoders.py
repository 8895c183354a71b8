"""Encoders of text with rotary positions: EuroBERT, Nomic BERT, GTE and Jina Embeddings 3."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, gated_mlp, tied_embeddings
from jaxperf.io.families.encoder_parts import dense, encoder_model, label_count, two_way_attention
from jaxperf.models.config import Encoder, Layer, Mlp, ModelConfig, Table


def _eurobert(fields: Fields) -> ModelConfig:
    """A Llama in which every token sees every token (arXiv:2503.05500); its masked words have a head of their own."""
    hidden, vocabulary = fields.count("hidden_size"), fields.count("vocab_size")
    bias = fields.flag("mlp_bias", False)
    layer = Layer(dataclasses.replace(biased_attention(fields), causal=False), gated_mlp(fields, bias=bias))
    encoder = Encoder("encoder", "text", hidden, (layer,) * fields.layer_count(), vocabulary=vocabulary)
    other = _classifier(fields, hidden)
    if fields.architecture.endswith("ForMaskedLM"):
        other = bias * vocabulary + (0 if tied_embeddings(fields, False) else vocabulary * hidden)
    return encoder_model(fields, [encoder], fields.optional_count("max_position_embeddings"), other)


def _nomic(fields: Fields) -> ModelConfig:
    """BERT with rotary positions and gated blocks, without biases in the layers (arXiv:2402.01613)."""
    hidden = fields.count("hidden_size")
    attention = two_way_attention(fields.count("num_attention_heads"), hidden, biased=False, rotary=True)
    layer = Layer(attention, gated_mlp(fields), norm_bias=True)
    return _with_tables(fields, layer, 2, _classifier(fields, hidden))


def _with_tables(fields: Fields, layer: Layer, types: int, other: int) -> ModelConfig:
    """Tables of tokens and of their types; `types` where the config has no number, `other` weights of a head."""
    hidden, vocabulary = fields.count("hidden_size"), fields.count("vocab_size")
    rows = {"tokens": vocabulary, "types": fields.count_or("type_vocab_size", types, smallest=0)}
    tables = tuple(Table(name, count, hidden) for name, count in rows.items() if count)
    encoder = Encoder("encoder", "text", hidden, (layer,) * fields.layer_count(), tables=tables, norm_bias=True)
    if fields.architecture.endswith("ForMaskedLM"):
        other = dense(hidden, hidden) + 2 * hidden + vocabulary
    return encoder_model(fields, [encoder], fields.optional_count("max_position_embeddings"), other)


def _gte(fields: Fields) -> ModelConfig:
    """GTE (arXiv:2407.19669): biases in attention, and on the second matrix of a gated block; its own code calls it
    "New"."""
    hidden = fields.count("hidden_size")
    attention = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    layer = Layer(attention, gated_mlp(fields), norm_bias=True, other_parameters=hidden)
    return _with_tables(fields, layer, 1, _classifier(fields, hidden))


def _jina(fields: Fields) -> ModelConfig:
    """Jina Embeddings 3 (arXiv:2409.10173): XLM-RoBERTa with rotary positions, its adapters left out."""
    hidden = fields.count("hidden_size")
    attention = two_way_attention(fields.count("num_attention_heads"), hidden, rotary=True)
    layer = Layer(attention, Mlp(fields.count("intermediate_size"), gated=False, bias=True), norm_bias=True)
    heads = {"JinaEmbeddingsV3Model": dense(hidden, hidden), "JinaEmbeddingsV3ForQuestionAnswering": dense(hidden, 2)}
    other = heads.get(fields.architecture) or _classifier(fields, hidden)
    return _with_tables(fields, layer, 1, other)


def _classifier(fields: Fields, hidden: int) -> int:
    """Weights of a classifier of sequences, behind a matrix, or of tokens; 0 for a class without one."""
    if fields.architecture.endswith("ForSequenceClassification"):
        return dense(hidden, hidden) + dense(hidden, label_count(fields))
    return dense(hidden, label_count(fields)) if fields.architecture.endswith("ForTokenClassification") else 0


HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

FAMILIES = {
    **{f"EuroBert{head}": _eurobert for head in HEADS},
    **{f"NomicBert{head}": _nomic for head in HEADS},
    **{f"{name}{head}": _gte for name in ("Gte", "New") for head in HEADS},
    **{f"JinaEmbeddingsV3{head}": _jina for head in (*HEADS, "ForQuestionAnswering")},
}

MODEL_TYPES = {
    "eurobert": "EuroBertModel",
    "nomic_bert": "NomicBertModel",
    "gte": "GteModel",
    "new": "NewModel",
    "jina_embeddings_v3": "JinaEmbeddingsV3Model",
}
