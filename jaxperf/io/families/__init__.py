"""Model families: one small function per Hugging Face architecture, from the fields of a config to a `ModelConfig`.

Each file describes one group and exports `FAMILIES` (class name -> function) and `MODEL_TYPES` (`model_type` ->
class name); here they are merged. Defaults for absent fields are those of the Hugging Face configuration classes,
and each one used is written into `ModelConfig.assumptions`. `REFUSED` gives the reason for what is not described.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jaxperf.io.families import (
    audio,
    bailing,
    cohere,
    compact_vision,
    deepseek_v4,
    dory,
    dots3,
    encoders,
    ernie,
    gated_recurrence,
    gemma,
    gemma4,
    gemma_seq2seq,
    glm,
    gpt,
    hrm,
    hybrid,
    inkling,
    jetmoe,
    late_2026,
    latent,
    latent_streams,
    layernorm,
    linear,
    llama,
    longcat,
    mimo,
    minimax_m3,
    molmo2,
    multimodal,
    muse,
    of_2026,
    olmo,
    openelm,
    parallel,
    phi,
    puzzle,
    qwen,
    qwen4,
    rotary_encoders,
    rwkv,
    rwkv_older,
    seq2seq,
    sparse,
    speech,
    state_space,
    step,
    vision,
    zamba,
)
from jaxperf.io.families.common import Family
from jaxperf.io.families.refused import REFUSED

__all__ = ["FAMILIES", "MODEL_TYPES", "REFUSED"]

_DECODERS = (
    llama,
    qwen,
    qwen4,
    gemma,
    gemma4,
    phi,
    latent,
    longcat,
    dots3,
    deepseek_v4,
    latent_streams,
    sparse,
    minimax_m3,
    bailing,
    mimo,
    muse,
    inkling,
    of_2026,
    late_2026,
    dory,
    jetmoe,
    puzzle,
    ernie,
    step,
    glm,
    cohere,
    olmo,
    openelm,
    layernorm,
    gpt,
    hrm,
    parallel,
    hybrid,
    linear,
    state_space,
    rwkv,
    rwkv_older,
    gated_recurrence,
    zamba,
)
_BESIDE = (encoders, rotary_encoders, audio, vision, multimodal, compact_vision, molmo2, speech, seq2seq, gemma_seq2seq)
_GROUPS = (*_DECODERS, *_BESIDE)

FAMILIES: Mapping[str, Family] = MappingProxyType({name: read for g in _GROUPS for name, read in g.FAMILIES.items()})

MODEL_TYPES: Mapping[str, str] = MappingProxyType({kind: name for g in _GROUPS for kind, name in g.MODEL_TYPES.items()})
