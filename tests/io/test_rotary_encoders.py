"""EuroBERT, Nomic BERT and relatives of BERT and RoBERTa: parameters of their classes, counted with torch."""

from __future__ import annotations

from typing import Any

import pytest

from jaxperf.io.huggingface import read_config
from jaxperf.models.parameters import parameter_count

BERT: dict[str, Any] = dict(
    vocab_size=30522, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
) | dict(max_position_embeddings=512, type_vocab_size=2, torch_dtype="float32")
EURO = BERT | dict(vocab_size=128256, num_key_value_heads=12, max_position_embeddings=8192, tie_word_embeddings=False)
NOMIC = BERT | dict(vocab_size=30528, max_position_embeddings=2048)
ROBERTA = BERT | dict(vocab_size=50265, max_position_embeddings=514, type_vocab_size=2)
XL = ROBERTA | dict(vocab_size=250880, hidden_size=2560, num_hidden_layers=36, num_attention_heads=32)
MEGATRON = BERT | dict(vocab_size=29056, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16)
MEGATRON |= dict(intermediate_size=4096)
GTE = BERT | dict(vocab_size=250_048, max_position_embeddings=8192, type_vocab_size=1)
JINA = GTE | dict(vocab_size=250_002, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16)
JINA |= dict(intermediate_size=4096)
COUNTED: list[tuple[str, dict[str, Any], int]] = [
    ("EuroBertModel", EURO, 211_766_016),  # published as 210 M: arXiv:2503.05500, table 1
    ("EuroBertForMaskedLM", EURO, 310_266_624),
    ("EuroBertForSequenceClassification", EURO | {"mlp_bias": True, "attention_bias": True}, 212_477_954),
    ("EuroBertForTokenClassification", EURO, 211_767_554),
    ("NomicBertModel", NOMIC, 136_731_648),  # nomic-embed-text, 137 M: arXiv:2402.01613
    ("NomicBertForMaskedLM", NOMIC, 137_354_304),
    ("NomicBertForSequenceClassification", NOMIC, 137_323_778),
    ("GteModel", GTE, 305_368_320),  # gte-multilingual-base, 305 M: arXiv:2407.19669
    ("GteForMaskedLM", GTE, 306_210_496),
    ("NewForTokenClassification", GTE, 305_369_858),
    ("JinaEmbeddingsV3Model", JINA, 559_364_096),  # 572 M with its adapters: arXiv:2409.10173
    ("JinaEmbeddingsV3ForMaskedLM", JINA, 559_616_146),
    ("JinaEmbeddingsV3ForSequenceClassification", JINA, 559_366_146),
    ("JinaEmbeddingsV3ForQuestionAnswering", JINA, 558_316_546),
    ("ErnieForPreTraining", BERT | {"use_task_id": True}, 110_108_732),
    ("MegatronBertForMaskedLM", MEGATRON, 333_671_808),
    ("Data2VecTextForMaskedLM", BERT, 109_514_298),
    ("RobertaPreLayerNormForMaskedLM", ROBERTA | dict(max_position_embeddings=512), 124_698_201),
    ("XLMRobertaXLForMaskedLM", XL | dict(intermediate_size=10240, type_vocab_size=1), 3_482_741_760),
]


@pytest.mark.parametrize(("architecture", "fields", "parameters"), COUNTED)
def test_parameters_are_those_of_the_class(architecture: str, fields: dict[str, Any], parameters: int) -> None:
    config = read_config(fields | {"architectures": [architecture]})
    assert parameter_count(config) == parameters
    assert not any(layer.mixer.causal for layer in config.encoders[0].layers)
