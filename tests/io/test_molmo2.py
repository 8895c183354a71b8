"""Molmo 2: parameters of the published sizes counted by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import read_config
from jaxperf.models.parameters import parameter_count

# As in the published config of allenai/Molmo2-8B; its 27 layers of the tower end, in the weights, with the 25th.
MOLMO2_8B: dict[str, Any] = {
    **{"architectures": ["Molmo2ForConditionalGeneration"], "model_type": "molmo2", "torch_dtype": "float32"},
    "tie_word_embeddings": False,
    "adapter_config": {
        **{"model_type": "molmo2", "hidden_size": 1152, "head_dim": 72, "intermediate_size": 12288},
        **{"num_attention_heads": 16, "num_key_value_heads": 16, "text_hidden_size": 4096, "vit_layers": [-3, -9]},
    },
    "text_config": {
        **{"model_type": "molmo2_text", "hidden_size": 4096, "intermediate_size": 12288, "vocab_size": 151936},
        **{"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
        **{"qk_norm_type": "qwen3", "qkv_bias": False, "additional_vocab_size": 128, "max_position_embeddings": 36864},
    },
    "vit_config": {
        **{"model_type": "molmo2", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
        **{"num_attention_heads": 16, "head_dim": 72, "image_default_input_size": [378, 378]},
        **{"image_patch_size": 14, "image_num_pos": 729},
    },
}


def test_molmo2_8b_by_hand() -> None:
    config = read_config(MOLMO2_8B)
    layer = 4096 * 128 * (32 + 8 + 8 + 32) + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
    text = (2 * 151936 + 128) * 4096 + 36 * layer + 4096
    block = 4 * 1152 * 1153 + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
    tower = 25 * block + (3 * 14 * 14 + 1) * 1152 + 729 * 1152
    pooling = 3 * (2 * 1152 + 1) * 1152 + 1153 * 1152 + 2 * 1152 * 12288 + 12288 * 4096
    assert parameter_count(config) == text + tower + pooling
    assert config.assumptions == ()
    (found,) = config.encoders
    assert (found.length, found.tokens, len(found.layers)) == (729, 196, 25)
    assert config.layers[0].mixer.qk_norm


def test_olmo_norms_and_what_is_refused() -> None:
    text = MOLMO2_8B["text_config"] | {"qk_norm_type": "olmo"}
    mixer = read_config(MOLMO2_8B | {"text_config": text}).layers[0].mixer
    assert mixer.qk_norm_wide and not mixer.qk_norm
    with pytest.raises(InputError, match="qk_norm_type is 5; it must be qwen3 or olmo"):
        read_config(MOLMO2_8B | {"text_config": text | {"qk_norm_type": 5}})
    adapter = MOLMO2_8B["adapter_config"] | {"vit_layers": [30]}
    with pytest.raises(InputError, match=r"handed on are \[30\]; it has 27"):
        read_config(MOLMO2_8B | {"adapter_config": adapter})
