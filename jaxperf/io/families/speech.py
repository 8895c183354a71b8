"""Speech-language models: a language model with the encoder of Whisper beside it. Voxtral and Qwen2-Audio."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxperf.io.config_fields import Fields
from jaxperf.io.families.encoder_parts import dense, plain_layers, renamed
from jaxperf.io.families.multimodal import joined, language
from jaxperf.io.families.towers import section
from jaxperf.models.config import Encoder, ModelConfig

NAMES = {
    "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "d_model": "hidden_size",
}
WHISPER: dict[str, Any] = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "num_mel_bins": 128,
    "max_source_positions": 1500,
}
TAPS = 3  # of both convolutions, which is fixed in the published models


def _audio(fields: Fields) -> Fields:
    """The fields of the encoder, under the usual names."""
    given = {"audio_config": renamed(fields.nested("audio_config"), NAMES).data}
    return section(dataclasses.replace(fields, data=given), "audio_config", WHISPER)


def _tower(audio: Fields) -> Encoder:
    """30 s of sound in 1500 positions, keys without biases (arXiv:2212.04356)."""
    hidden, length = audio.count("hidden_size"), audio.count("max_source_positions")
    return Encoder(
        "encoder",
        "audio",
        hidden,
        plain_layers(audio, key_bias=False),
        length,
        positions=length,
        input_parameters=dense(TAPS * audio.count("num_mel_bins"), hidden) + dense(TAPS * hidden, hidden),
        norm_bias=True,
    )


def _voxtral(fields: Fields) -> ModelConfig:
    """Voxtral (arXiv:2507.13264): positions side by side up to the width of a block become one token."""
    audio, text = _audio(fields), language(fields, "LlamaForCausalLM")
    width, tower = audio.count("intermediate_size"), _tower(audio)
    projector = dense(width, text.hidden, bias=False) + dense(text.hidden, text.hidden, bias=False)
    return joined(fields, text, tower, projector, audio.count("max_source_positions") * tower.hidden // width)


def _qwen2_audio(fields: Fields) -> ModelConfig:
    """Qwen2-Audio (arXiv:2407.10759): the mean of two positions becomes a token."""
    audio, text = _audio(fields), language(fields, "Qwen2ForCausalLM")
    tower = _tower(audio)
    return joined(fields, text, tower, dense(tower.hidden, text.hidden), audio.count("max_source_positions") // 2)


FAMILIES = {"VoxtralForConditionalGeneration": _voxtral, "Qwen2AudioForConditionalGeneration": _qwen2_audio}

MODEL_TYPES = {"voxtral": "VoxtralForConditionalGeneration", "qwen2_audio": "Qwen2AudioForConditionalGeneration"}
