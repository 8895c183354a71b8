"""Voxtral and Qwen2-Audio at the sizes of their classes, counted by transformers 5.24 with torch."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import read_config
from jaxperf.models.parameters import encoder_parameters, parameter_count

WHISPER = dict(d_model=1280, encoder_layers=32, encoder_attention_heads=20, encoder_ffn_dim=5120, num_mel_bins=128)
VOXTRAL: dict[str, Any] = {
    "architectures": ["VoxtralForConditionalGeneration"],
    "audio_config": WHISPER | {"max_source_positions": 1500},
    "text_config": {
        "model_type": "llama",
        **dict(vocab_size=131072, hidden_size=3072, intermediate_size=8192, num_hidden_layers=30, head_dim=128),
        **dict(num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072),
        "tie_word_embeddings": False,
    },
}
QWEN2_AUDIO: dict[str, Any] = {
    "architectures": ["Qwen2AudioForConditionalGeneration"],
    "audio_config": WHISPER | {"max_source_positions": 1500},
    "text_config": {"model_type": "qwen2", "tie_word_embeddings": False},
}


def test_voxtral_mini_counts_as_its_class() -> None:
    """4.68 B: a Llama of 4.01 B, the encoder of Whisper large and a projector from 5120 to 3072."""
    config = read_config(VOXTRAL)
    (encoder,) = config.encoders
    assert parameter_count(config) == 4_676_271_104 and encoder.tokens == 375
    assert encoder_parameters(encoder) == 4_676_271_104 - 4_014_136_320
    assert encoder.projector_parameters == 5120 * 3072 + 3072 * 3072


def test_qwen2_audio_counts_as_its_class() -> None:
    config = read_config(QWEN2_AUDIO)
    assert parameter_count(config) == 12_692_062_208 and config.encoders[0].tokens == 750
    assert any("text_config leaves out" in note for note in config.assumptions)


def test_what_the_encoder_leaves_out_is_that_of_whisper_large() -> None:
    bare = read_config(VOXTRAL | {"audio_config": {}})
    assert bare.encoders == read_config(VOXTRAL).encoders
    with pytest.raises(InputError, match="audio_config is 3; it must be an object"):
        read_config(VOXTRAL | {"audio_config": 3})
