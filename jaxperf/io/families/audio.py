"""Sound encoders: wav2vec 2.0 (arXiv:2006.11477) and HuBERT (arXiv:2106.07447)."""

from __future__ import annotations

from functools import partial

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import Family
from jaxperf.io.families.encoder_parts import dense, encoder_model, label_count, plain_layers
from jaxperf.models.checks import check_count, show
from jaxperf.models.config import Encoder, ModelConfig

# The defaults of the configuration class: seven convolutions, one frame for 320 samples.
WIDTHS, TAPS = [512] * 7, [10, 3, 3, 3, 3, 2, 2]


def _convolutions(fields: Fields) -> tuple[int, int]:
    """Weights of the convolutions over samples, and the width of what they hand on.

    With `feat_extract_norm` "group" only the first has a norm, with "layer" each of them.
    """
    widths = fields.listing("conv_dim", int) or WIDTHS
    taps = fields.listing("conv_kernel", int) or TAPS
    if len(widths) != len(taps):
        raise InputError(f"conv_dim has {len(widths)} items and conv_kernel {len(taps)}; they must be as many.")
    found = fields.find("feat_extract_norm")
    norm = "group" if found is None else found[1]
    if norm not in ("group", "layer"):
        raise InputError(f'feat_extract_norm is {show(norm)}; it must be "group" or "layer".')
    bias, total, below = fields.flag("conv_bias", False), 0, 1
    for index, (width, length) in enumerate(zip(widths, taps, strict=True)):
        check_count("An item of conv_dim", width)
        check_count("An item of conv_kernel", length)
        total += dense(below * length, width, bias) + (2 * width if norm == "layer" or index == 0 else 0)
        below = width
    return total, below


def _wav2vec2(fields: Fields, head: str) -> ModelConfig:
    """Convolutions over samples, one over positions in groups of channels, then layers as in BERT.

    **Arguments:** `head`: "none", "letters" (CTC over the vocabulary) or "labels" (a classifier after a projection).
    """
    if fields.flag("add_adapter", False):
        raise InputError("add_adapter is true; only models without an adapter after the layers are supported.")
    hidden = fields.count("hidden_size")
    stem, width = _convolutions(fields)
    taps, groups = fields.count_or("num_conv_pos_embeddings", 128), fields.count_or("num_conv_pos_embedding_groups", 16)
    if hidden % groups:
        raise InputError(f"hidden_size is {hidden} and num_conv_pos_embedding_groups is {groups}; they must divide.")
    positions = dense(taps * hidden // groups, hidden) + taps  # weight normalization: one length for each tap
    masked = fields.find("mask_time_prob")
    mask = hidden if masked is None or masked[1] != 0 else 0
    encoder = Encoder(
        "encoder",
        "audio",
        hidden,
        plain_layers(fields),
        input_parameters=stem,
        norms=1,
        norm_bias=True,
        other_parameters=2 * width + dense(width, hidden) + positions + mask,
    )
    return encoder_model(fields, [encoder], None, _head(fields, head, hidden))


def _head(fields: Fields, head: str, hidden: int) -> int:
    if head == "letters":
        return dense(hidden, fields.count("vocab_size"))
    if head == "labels":
        projected = fields.count_or("classifier_proj_size", 256)
        return dense(hidden, projected) + dense(projected, label_count(fields))
    return 0


FAMILIES: dict[str, Family] = {
    prefix + suffix: partial(_wav2vec2, head=head)
    for prefix in ("Wav2Vec2", "Hubert")
    for suffix, head in {"Model": "none", "ForCTC": "letters", "ForSequenceClassification": "labels"}.items()
}

MODEL_TYPES: dict[str, str] = {"wav2vec2": "Wav2Vec2Model", "hubert": "HubertModel"}
