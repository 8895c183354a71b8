"""Names of models as serving tables spell them."""

from __future__ import annotations

import pytest

from calibration.serving.spelled import Models
from hwspecs.errors import InputError


@pytest.mark.parametrize(
    ("text", "name", "note"),
    [
        ("Qwen3_235B_a22B", "qwen3-235b-a22b", ""),
        ("qwen3_14b", "qwen3-14b", ""),
        ("llama3_1-405b", "llama-3.1-405b", "llama3_1-405b is read as llama-3.1-405b"),
        ("qwen2_5-7b-chat", "qwen2.5-7b", "qwen2_5-7b-chat is read as qwen2.5-7b-chat"),
        ("llama2-70b-99.9", "llama-2-70b", "llama2-70b-99.9 is read as llama2-70b"),
        ("gpt3_13b", "gpt3-13b", ""),
        ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b", ""),
        ("NousResearch/Hermes-3-Llama-3.1-405B-FP8", "llama-3.1-405b", ""),
    ],
)
def test_punctuation_makes_no_other_model(text: str, name: str, note: str) -> None:
    model, said = Models().of(text)
    assert (model.name, said) == (name, note)


@pytest.mark.parametrize("text", ["Qwen3_999B", "gpt313b"])  # the second could be gpt3-1.3b and gpt3-13b
def test_an_unknown_name_is_quoted_as_it_was_written(text: str) -> None:
    with pytest.raises(InputError, match=f'^No model or path "{text}"'):
        Models().of(text)


@pytest.mark.parametrize("text", ["t5-small", "whisper-tiny"])
def test_a_model_whose_encoder_reads_every_request_is_served(text: str) -> None:
    assert Models().of(text)[0].encoders
