"""Which file times which described block. A kind that is missing here is refused by name, never skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hwspecs.errors import InputError
from jaxperf.models import config as described
from jaxperf.models.block_formats import Formats
from jaxperf.models.blocks.attention import attention_mixer
from jaxperf.models.blocks.base import AbstractFfn, AbstractMixer
from jaxperf.models.blocks.compressed import compressed_mixer
from jaxperf.models.blocks.cross_attention import cross_attention
from jaxperf.models.blocks.gated_delta import gated_delta_mixer
from jaxperf.models.blocks.kimi_delta import kimi_delta_mixer
from jaxperf.models.blocks.latent import latent_mixer
from jaxperf.models.blocks.lightning import lightning_mixer
from jaxperf.models.blocks.mamba1 import mamba1_mixer
from jaxperf.models.blocks.mamba2 import mamba2_mixer
from jaxperf.models.blocks.mlp import dense_ffn
from jaxperf.models.blocks.mlstm import mlstm_mixer
from jaxperf.models.blocks.moe import moe_ffn
from jaxperf.models.blocks.rg_lru import rg_lru_mixer
from jaxperf.models.blocks.rwkv4 import rwkv4_mixer
from jaxperf.models.blocks.rwkv6 import rwkv6_mixer
from jaxperf.models.blocks.rwkv7 import rwkv7_mixer
from jaxperf.models.blocks.short_conv import short_conv_mixer

MIXERS: Mapping[type, Callable[[Any], AbstractMixer]] = {
    described.Attention: attention_mixer,
    described.Mla: latent_mixer,
    described.CompressedAttention: compressed_mixer,
    described.Mamba1: mamba1_mixer,
    described.Mamba2: mamba2_mixer,
    described.GatedDelta: gated_delta_mixer,
    described.KimiDelta: kimi_delta_mixer,
    described.LightningAttention: lightning_mixer,
    described.MLstm: mlstm_mixer,
    described.RgLru: rg_lru_mixer,
    described.Rwkv4: rwkv4_mixer,
    described.Rwkv6: rwkv6_mixer,
    described.Rwkv7: rwkv7_mixer,
    described.ShortConv: short_conv_mixer,
}
FFNS: Mapping[type, Callable[..., AbstractFfn]] = {
    described.Mlp: dense_ffn,
    described.Moe: moe_ffn,
}


def mixer_of(mixer: described.Mixer) -> AbstractMixer:
    """The arrays of a described token mixer. Raises `InputError` for a kind that is not timed."""
    return _arrays(MIXERS, mixer, "token mixer")


def cross_of(attention: described.Attention) -> AbstractMixer:
    """The arrays of a described cross-attention."""
    return cross_attention(attention)


def ffn_of(ffn: described.FeedForward, own: Formats = ()) -> AbstractFfn:
    """The arrays of a described feed-forward block; `own` as in `block_formats.own_formats`.

    **Raises:** `InputError` for a kind that is not timed.
    """
    return _arrays(FFNS, ffn, "feed-forward block", own)


def _arrays(kinds: Mapping[type, Callable[..., Any]], block: Any, role: str, *structure: Any) -> Any:
    if type(block) not in kinds:
        timed = ", ".join(kind.__name__ for kind in kinds)
        raise InputError(f"The {role} {type(block).__name__} is not timed by this version; timed are {timed}.")
    return kinds[type(block)](block, *structure)
