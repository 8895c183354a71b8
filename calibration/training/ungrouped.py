"""Models as the shipped parameters of training were fitted to them: a token may use any group of experts.

Steps were fitted before the exchange knew of groups; what they sustain makes up for its missing, and rows of one
table have one structure (`fit.rows_of`).
"""

from __future__ import annotations

import dataclasses

from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.feedforward import Moe


def ungrouped(model: ModelConfig) -> ModelConfig:
    """The model whose experts are one group; the same object where they are already."""
    layers, predicted = (tuple(map(_layer, each)) for each in (model.layers, model.mtp_layers))
    if (layers, predicted) == (model.layers, model.mtp_layers):
        return model
    return dataclasses.replace(model, layers=layers, mtp_layers=predicted)


def _layer(layer: Layer) -> Layer:
    if not isinstance(layer.ffn, Moe) or layer.ffn.groups == 1:
        return layer
    return dataclasses.replace(layer, ffn=dataclasses.replace(layer.ffn, groups=1, groups_per_token=1))
