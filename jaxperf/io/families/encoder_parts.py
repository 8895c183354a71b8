"""Pieces that encoders share: of text, of images, of sound, and of sequence-to-sequence models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import divided_head_dim
from jaxperf.io.quantization.config import stored_format
from jaxperf.models.checks import check_count
from jaxperf.models.config import Encoder, Layer, ModelConfig
from jaxperf.models.feedforward import Mlp
from jaxperf.models.mixers import Attention


def renamed(fields: Fields, names: Mapping[str, str]) -> Fields:
    """The same fields with those of `names` under the usual names."""
    data = {names.get(key, key): value for key, value in fields.data.items()}
    return dataclasses.replace(fields, data=data)


def two_way_attention(heads: int, hidden: int, biased: bool = True, **kind: Any) -> Attention:
    """Every token sees every token; the heads share the hidden width; `kind` are other fields of `Attention`."""
    usual: dict[str, Any] = {"rotary": False, "qkv_bias": biased, "output_bias": biased, "causal": False}
    return Attention(heads, heads, divided_head_dim(hidden, heads), **(usual | kind))


def plain_layers(fields: Fields, **attention: Any) -> tuple[Layer, ...]:
    """Layers of the first transformers: LayerNorm, biases everywhere, two matrices in the feed-forward block."""
    mixer = two_way_attention(fields.count("num_attention_heads"), fields.count("hidden_size"), **attention)
    block = Mlp(fields.count("intermediate_size"), gated=False, bias=True)
    return (Layer(mixer, block, norms=2, norm_bias=True),) * fields.layer_count()


def encoder_model(fields: Fields, encoders: Iterable[Encoder], max_context: int | None, other: int = 0) -> ModelConfig:
    """A model without a decoder; `other` counts the weights outside the encoders, such as a classifier."""
    encoders = tuple(encoders)
    width = encoders[0].hidden
    weight_format, quantization = stored_format(fields)
    return ModelConfig(
        name=fields.name,
        architecture=fields.architecture,
        hidden=width,
        vocabulary=0,
        layers=(),
        tied_embeddings=True,
        positions=0,
        embedding_width=width,
        final_norm=False,
        norm_bias=False,
        max_context=max_context,
        weight_format=weight_format,
        encoders=encoders,
        other_parameters=other,
        quantization=quantization,
    )


def label_count(fields: Fields, default: int = 2) -> int:
    """Classes of a classifier: `num_labels`, else the length of `id2label`, else the `default` of its class."""
    given, labels = fields.optional_count("num_labels"), fields.find("id2label")
    if given is not None or labels is None or not isinstance(labels[1], Mapping):
        return default if given is None else given
    return check_count("The length of id2label", len(labels[1]))


def dense(rows: int, columns: int, bias: bool = True) -> int:
    """Weights of one linear layer."""
    return rows * columns + (columns if bias else 0)
