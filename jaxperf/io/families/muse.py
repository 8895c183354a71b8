"""Muse Glimmer and Muse Spark: gated attention, mostly within windows; counted from the last, each fourth layer sees
everything and has no positions. Norms of queries, keys and the token table have no weights."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, gated_mlp, routed, stack, varied, windows
from jaxperf.io.families.experts import first_dense
from jaxperf.models.config import Layer, Mixer, ModelConfig, Moe


def turned_layers(fields: Fields, usual: list[bool] | None = None) -> list[bool]:
    """Which layers have rotary positions: those whose `layer_rope_theta` is not 0; without it as `usual`, or all."""
    count, listed = fields.layer_count(), fields.data.get("layer_rope_theta")
    if listed is None:
        return usual or [True] * count
    if not isinstance(listed, list) or len(listed) != count or any(type(one) not in (int, float) for one in listed):
        raise InputError(f"layer_rope_theta must be a list of {count} numbers, one for each layer.")
    return [one > 0 for one in listed]


def _mixers(fields: Fields) -> list[Mixer]:
    attention = biased_attention(fields, multi_head=False, output_gate=True)
    within = [index % 4 != 0 for index in reversed(range(fields.layer_count()))]
    window = fields.count_or("sliding_window", 2048)
    widths = windows(fields, tuple(window if one else None for one in within))
    return varied(attention, window=widths, rotary=turned_layers(fields, within))


def _muse_glimmer(fields: Fields) -> ModelConfig:
    """Norms around each block."""
    mixers = _mixers(fields)
    return decoder(fields, stack(mixers, (gated_mlp(fields),) * len(mixers), norms=4))


def _muse_spark(fields: Fields) -> ModelConfig:
    """Experts of a narrower width; gates of the residual for each block, and a norm less that has weights."""
    hidden, narrow = fields.count("hidden_size"), fields.count("moe_hidden_size")
    blocks = first_dense(fields, routed(fields, correction_bias=True, latent=narrow), default=0)
    return decoder(
        fields,
        tuple(
            Layer(mixer, block, norms=4, other_parameters=hidden + (2 * narrow if isinstance(block, Moe) else 0))
            for mixer, block in zip(_mixers(fields), blocks, strict=True)
        ),
    )


FAMILIES = {"MuseGlimmerForCausalLM": _muse_glimmer, "MuseSparkForCausalLM": _muse_spark}

MODEL_TYPES = {"muse_glimmer_text": "MuseGlimmerForCausalLM", "muse_spark_text": "MuseSparkForCausalLM"}
