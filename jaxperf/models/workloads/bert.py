"""BERT (arXiv:1810.04805) and RoBERTa (arXiv:1907.11692): a text encoder with the heads it was trained with."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.models.config import ModelConfig
from jaxperf.models.workloads.activations import ACTIVATIONS
from jaxperf.models.workloads.attention import Given
from jaxperf.models.workloads.layers import run_layers
from jaxperf.models.workloads.masks import added_mask
from jaxperf.models.workloads.operations import add, dropout, embedding, layer_norm, linear, part
from jaxperf.models.workloads.styles import style_of
from jaxperf.models.workloads.tape import Tape, Tensor

CLASSES = 2  # of a classifier without a description of its own


def bert(tape: Tape, config: ModelConfig, batch: int, seq: int) -> Tensor:
    """Scores of the head of a class of `HEADS` for `batch` texts of `seq` tokens."""
    tower = config.encoders[0]
    style, tables = style_of(config.architecture), {table.name: table.rows for table in tower.tables}
    if missing := {"tokens", "positions", "types"} - set(tables):
        raise InputError(f"{config.name} has no workload graph: it has no table of {', '.join(sorted(missing))}.")
    if seq > tables["positions"]:
        raise InputError(f"{config.name} has {tables['positions']} positions; a sequence of {seq} is too long.")
    ids, places = tape.input("input_ids", batch, seq), tape.input("position_ids", 1, seq)
    kinds = tape.input("token_type_ids", batch, seq)
    mask = added_mask(tape, style, batch, seq, causal=False)
    with tape.scope("embeddings"):
        x = embedding(tape, ids, tables["tokens"], tower.hidden, "words")
        x = add(tape, x, embedding(tape, kinds, tables["types"], tower.hidden, "types"))
        x = add(tape, x, embedding(tape, places, tables["positions"], tower.hidden, "positions"))
        x = dropout(tape, layer_norm(tape, x, "norm"))
    x = run_layers(tape, x, tower.layers, Given(style, mask))
    return HEADS[config.architecture](tape, x, tables["tokens"])


def _pooled(tape: Tape, x: Tensor) -> Tensor:
    """A dense layer and a tanh on the first token."""
    with tape.scope("pooler"):
        first = part(tape, x, x.shape[0], x.shape[-1])
        return ACTIVATIONS["tanh"](tape, linear(tape, first, x.shape[-1], "dense"))


def _classified(tape: Tape, x: Tensor, entries: int) -> Tensor:
    return linear(tape, dropout(tape, _pooled(tape, x)), CLASSES, "classifier")


def _pretrained(tape: Tape, x: Tensor, entries: int) -> Tensor:
    """Whether the second sentence follows the first, and the masked words."""
    linear(tape, _pooled(tape, x), 2, "seq_relationship")
    return _words(tape, x, entries)


def _words(tape: Tape, x: Tensor, entries: int) -> Tensor:
    """A dense layer, a norm, and scores of all words on the token table, with a bias of their own."""
    with tape.scope("predictions"):
        y = ACTIVATIONS["gelu"](tape, linear(tape, x, x.shape[-1], "transform"))
        scores = linear(tape, layer_norm(tape, y, "norm"), entries, "decoder", shared=True)
        tape.own(scores, entries)
        return scores


HEADS = {
    "BertForPreTraining": _pretrained,
    "BertForSequenceClassification": _classified,
    "RobertaForMaskedLM": _words,
    "XLMRobertaForMaskedLM": _words,
}
