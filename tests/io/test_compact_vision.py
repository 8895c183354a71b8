"""GLM-OCR and Cohere Compass: their parameters counted by hand, and what their layers see."""

from __future__ import annotations

from typing import Any

from jaxperf.io.huggingface import read_config
from jaxperf.models.config import ModelConfig
from jaxperf.models.parameters import parameter_breakdown, parameter_count

# As in the published config of zai-org/GLM-OCR.
GLM_OCR: dict[str, Any] = {
    "architectures": ["GlmOcrForConditionalGeneration"],
    "model_type": "glm_ocr",
    "torch_dtype": "bfloat16",
    "text_config": {
        **{"model_type": "glm_ocr_text", "vocab_size": 59392, "hidden_size": 1536, "intermediate_size": 4608},
        **{"num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128},
        **{"attention_bias": False, "max_position_embeddings": 131072, "tie_word_embeddings": False},
    },
    "vision_config": {
        **{"model_type": "glm_ocr_vision", "hidden_size": 1024, "depth": 24, "num_heads": 16, "attention_bias": True},
        **{"intermediate_size": 4096, "patch_size": 14, "out_hidden_size": 1536, "spatial_merge_size": 2},
        **{"temporal_patch_size": 2, "in_channels": 3},
    },
}
COMPASS: dict[str, Any] = {
    **{"architectures": ["CohereCompassForConditionalGeneration"], "torch_dtype": "bfloat16"},
    "tie_word_embeddings": True,
    "text_config": {
        **{"model_type": "cohere_compass_text", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
        **{"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128, "attention_bias": False},
        "rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": None},
        "max_position_embeddings": 4096,
    },
    "vision_config": {
        **{"depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 64, "out_hidden_size": 64},
        **{"num_position_embeddings": 9, "patch_size": 4, "deepstack_visual_indexes": [0]},
    },
}


def counted(fields: dict[str, Any]) -> tuple[ModelConfig, int]:
    config = read_config(fields)
    return config, parameter_count(config)


def test_glm_ocr_by_hand() -> None:
    config, total = counted(GLM_OCR)
    layer = 1536 * 128 * (16 + 8 + 8 + 16) + 3 * 1536 * 4608 + 4 * 1536
    text = 2 * 59392 * 1536 + 16 * layer + 1536
    block = 4 * 1024 * 1025 + 3 * 1024 * 4096 + 2 * 4096 + 1024 + 2 * 64 + 2 * 1024
    tower = 24 * block + 2 * 3 * 14 * 14 * 1024 + 1024 + 1024
    projector = 4 * 1024 * 1536 + 1536 + 1536 * 1536 + 2 * 1536 + 3 * 1536 * (3 * 1536)
    assert total == text + tower + projector
    assert config.assumptions == ()
    (found,) = config.encoders
    assert (found.merge, len(found.layers), config.layers[0].norms) == (4, 24, 4)
    # The checkpoint has 2.65 GB: these in two bytes, and a layer that predicts, with tables of its own.
    predicting = layer + 2 * 1536 * 1536 + 2 * 59392 * 1536
    assert abs(2 * (total + predicting) / 2.65e9 - 1) < 0.01


def test_cohere_compass_by_hand() -> None:
    config, total = counted(COMPASS)
    text = 100 * 64 + 2 * (64 * 16 * (4 + 2 + 2 + 4) + 3 * 64 * 96 + 64) + 64
    assert parameter_breakdown(config)["attention"] == 2 * 64 * 16 * (4 + 2 + 2 + 4)
    block = 4 * 32 * 33 + 2 * 32 * 64 + 64 + 32 + 4 * 32
    merger = 128 * 129 + 129 * 64
    tower = 2 * block + (2 * 3 * 4 * 4 + 1) * 32 + 9 * 32 + 2 * 32 + merger + 2 * 128 + merger
    assert total == text + tower
    assert [layer.mixer.window for layer in config.layers] == [128, None]
    assert [layer.mixer.rotary for layer in config.layers] == [True, False]
    assert all(layer.parallel and layer.norms == 1 and not layer.norm_bias for layer in config.layers)
    assert read_config(COMPASS["text_config"] | {"architectures": ["CohereCompassForCausalLM"]}).layers == config.layers
