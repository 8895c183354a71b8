"""Encoders of text with rotary positions and gated blocks: EuroBERT and Nomic BERT."""

from __future__ import annotations

import dataclasses

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, gated_mlp, tied_embeddings
from jaxperf.io.families.encoder_parts import dense, encoder_model, label_count, two_way_attention
from jaxperf.models.config import Encoder, Layer, ModelConfig, Table


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
    hidden, vocabulary = fields.count("hidden_size"), fields.count("vocab_size")
    attention = two_way_attention(fields.count("num_attention_heads"), hidden, biased=False, rotary=True)
    layer = Layer(attention, gated_mlp(fields), norm_bias=True)
    tables = (Table("tokens", vocabulary, hidden), Table("types", fields.count_or("type_vocab_size", 2), hidden))
    encoder = Encoder("encoder", "text", hidden, (layer,) * fields.layer_count(), tables=tables, norm_bias=True)
    other = _classifier(fields, hidden)
    if fields.architecture.endswith("ForMaskedLM"):
        other = dense(hidden, hidden) + 2 * hidden + vocabulary
    return encoder_model(fields, [encoder], fields.optional_count("max_position_embeddings"), other)


def _classifier(fields: Fields, hidden: int) -> int:
    """Weights of a classifier of sequences, behind a matrix, or of tokens; 0 for a class without one."""
    if fields.architecture.endswith("ForSequenceClassification"):
        return dense(hidden, hidden) + dense(hidden, label_count(fields))
    return dense(hidden, label_count(fields)) if fields.architecture.endswith("ForTokenClassification") else 0


HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

FAMILIES = {
    **{f"EuroBert{head}": _eurobert for head in HEADS},
    **{f"NomicBert{head}": _nomic for head in HEADS},
}

MODEL_TYPES = {"eurobert": "EuroBertModel", "nomic_bert": "NomicBertModel"}
