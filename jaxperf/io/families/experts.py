"""Pieces of models with experts: shared experts, first dense layers, layers that predict further tokens."""

from __future__ import annotations

from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import routed, sparse_where
from jaxperf.models.config import FeedForward, Layer, Moe


def with_shared_experts(fields: Fields, **kind: Any) -> Moe:
    """Experts of `moe_intermediate_size`, and as many shared ones of the same width as the config says."""
    shared = fields.optional_count("num_shared_experts", smallest=0) or 0
    width = fields.count("moe_intermediate_size")
    return routed(fields, shared_intermediate=shared * width, **kind)


def first_dense(fields: Fields, moe: Moe, default: int | None = None) -> tuple[FeedForward, ...]:
    """Dense and sparse layers by `mlp_layer_types`, else the first `first_k_dense_replace` dense and then every
    `moe_layer_freq`-th with experts; `default` is that of the configuration class, `None` where the field is needed."""
    count = fields.layer_count()
    kinds = fields.listing("mlp_layer_types", str, count)
    if kinds is not None:
        if set(kinds) - {"dense", "sparse"}:
            raise InputError("mlp_layer_types has an item that is neither dense nor sparse; give one of them.")
        return sparse_where(fields, moe, [kind == "sparse" for kind in kinds])
    if default is None:
        first = fields.count("first_k_dense_replace", smallest=0)
    else:
        first = fields.count_or("first_k_dense_replace", default, smallest=0)
    step = fields.optional_count("moe_layer_freq") or 1
    return sparse_where(fields, moe, [index >= first and index % step == 0 for index in range(count)])


def mixed_streams(streams: int, hidden: int, weights: int, factors: int) -> dict[str, int]:
    """Fields of a `Layer` whose residual has streams: around both blocks, `weights` made of all streams with a bias
    each, and `factors` that scale them (hyper-connections; n (n + 2) weights of n streams where they are mixed too)."""
    around = 2 * (weights * (streams * hidden + 1) + factors)
    return {"streams": streams, "stream_weights": weights, "other_parameters": around}


def predicted_layers(fields: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """`num_nextn_predict_layers` more layers like the last one, with a note that they are not counted."""
    more = fields.optional_count("num_nextn_predict_layers", smallest=0, largest=16) or 0
    found = fields.find("num_nextn_predict_layers")
    if more and found is not None:
        fields.notes.append(
            f"{found[0]} is {more}; layers that predict further tokens are described "
            "but left out of the parameter counts, as in the published totals."
        )
    return (layers[-1],) * more
