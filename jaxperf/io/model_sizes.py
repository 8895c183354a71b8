"""The sizes of a described model under the names that a table of training runs has for them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from jaxperf.models.config import ModelConfig
from jaxperf.models.feedforward import Mlp, Moe
from jaxperf.models.mixers import Attention, Mla


def differing(config: ModelConfig, shape: Mapping[str, float]) -> list[str]:
    """The stated sizes that no layer of a description has; NaN where one is not stated."""
    own = sizes_of(config)
    return [name for name, value in shape.items() if name in own and not math.isnan(value) and value not in own[name]]


def sizes_of(config: ModelConfig) -> dict[str, Collection[float]]:
    """Column of a table -> its values over the layers of a description, 0 for what no layer has.

    A latent head has a width for each of its parts; sources state any of them. There is no `ffn` where all
    feed-forward blocks have experts: tables then repeat either an expert's width or one that no layer has.
    """
    layers = config.layers or (config.encoders[0].layers if config.encoders else ())
    mixers = {mixer for layer in layers for mixer in (layer.mixer, layer.beside)}
    plain = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    latent = [mixer for mixer in mixers if isinstance(mixer, Mla)]
    blocks = {layer.ffn for layer in layers if layer.ffn is not None}
    dense = [block for block in blocks if isinstance(block, Mlp)]
    sparse = [block for block in blocks if isinstance(block, Moe)]
    sizes: dict[str, Collection[float]] = {
        "layers": {len(layers)},
        "hidden": {config.hidden},
        "vocab": {config.vocabulary or config.encoders[0].vocabulary},
        "heads": {mixer.heads for mixer in (*plain, *latent)},
        "kv_heads": {mixer.kv_heads for mixer in plain} | {mixer.heads for mixer in latent},
        "head_dim": {width for mixer in plain for width in (mixer.head_dim, mixer.value_width)}
        | {w for m in latent for w in (m.nope_dim + m.rope_dim, m.nope_dim, m.rope_dim, m.value_dim)},
        "ffn": {block.intermediate for block in dense},
        "gated": {float(block.gated) for block in blocks},
        "experts": {block.experts for block in sparse},
        "topk": {block.experts_per_token for block in sparse},
        "moe_ffn": {block.intermediate for block in sparse},
        "shared_experts": {block.shared_intermediate / block.intermediate for block in sparse},
        "dense_layers": {_leading_dense(config)},
        "q_lora_rank": {mixer.q_rank or 0 for mixer in latent},
        "kv_lora_rank": {mixer.kv_rank for mixer in latent},
        "qk_nope_head_dim": {mixer.nope_dim for mixer in latent},
        "qk_rope_head_dim": {mixer.rope_dim for mixer in latent},
        "v_head_dim": {mixer.value_dim for mixer in latent},
    }
    if sparse and not dense:
        del sizes["ffn"]
    return {name: values or {0.0} for name, values in sizes.items()}


def _leading_dense(config: ModelConfig) -> int:
    """Layers before the first that has experts, 0 where none has."""
    sparse = [place for place, layer in enumerate(config.layers) if isinstance(layer.ffn, Moe)]
    return sparse[0] if sparse else 0
