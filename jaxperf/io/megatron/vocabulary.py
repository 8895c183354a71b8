"""What a tokenizer tells of a model: its vocabulary and, by its name, the shipped description that has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxperf.io.huggingface import any_punctuation, load_model
from jaxperf.io.megatron.reader import Reader
from jaxperf.io.model_sizes import differing
from jaxperf.models.config import ModelConfig
from jaxperf.models.mixers import Mla

_STEP = 128  # x tensor_parallel: to what Megatron pads the vocabulary by default
# Tokenizers of one vocabulary: of GPT-2, of BERT, of Llama 2 and 3.
_VOCABULARIES = {
    "GPT2BPETokenizer": 50257,
    "BertWordPieceLowerCase": 30522,
    "BertWordPieceCase": 28996,
    "Llama2Tokenizer": 32000,
    "Llama3Tokenizer": 128256,
}


def shipped_of(reader: Reader, tensor: int, shape: Mapping[str, Any]) -> ModelConfig | None:
    """The shipped model that the file, else its tokenizer, has the name of, where its sizes are those of `shape`, None
    of which are not stated; it knows what a table has no column for."""
    for name in (Path(reader.source).stem, _tokenizer(reader)):
        found = any_punctuation(name) if name else None
        if found is not None and _alike(config := load_model(found), reader, tensor, shape):
            return config
    return None


def vocabulary(reader: Reader, tensor: int, notes: list[str]) -> int | None:
    """Padded as Megatron pads it, so that every tensor-parallel rank has the same part."""
    padded, plain = reader.optional_count("padded_vocab_size"), reader.optional_count("vocab_size")
    if padded is not None:
        return padded
    if plain is None:
        plain, whose = _of_tokenizer(reader)
        notes.append(
            "The vocabulary is the tokenizer's, which the arguments do not tell; add --vocab-size."
            if plain is None
            else f"--vocab-size is not given; {plain}, that of {whose}."
        )
    return None if plain is None else _padded(reader, tensor, plain)


def _padded(reader: Reader, tensor: int, plain: int) -> int:
    step = reader.count("make_vocab_size_divisible_by", _STEP) * tensor
    return plain + -plain % step


def _tokenizer(reader: Reader) -> str:
    """The last part of a tokenizer's name or folder; "" where none is stated."""
    return " ".join(reader.options.get("tokenizer_model", ())).rstrip("/").rpartition("/")[2]


def _of_tokenizer(reader: Reader) -> tuple[int | None, str]:
    """(its vocabulary or None, whose it is)."""
    name, kind = _tokenizer(reader), " ".join(reader.options.get("tokenizer_type", ()))
    found = any_punctuation(name) if name else None
    if found is not None:
        return load_model(found).vocabulary, f"the shipped {found}"
    return _VOCABULARIES.get(kind), kind


def _alike(config: ModelConfig, reader: Reader, tensor: int, shape: Mapping[str, Any]) -> bool:
    stated = {name: math.nan if value is None else float(value) for name, value in shape.items()}
    latent = any(isinstance(layer.mixer, Mla) for layer in config.layers)
    if differing(config, stated) or latent != reader.flag("multi_latent_attention"):
        return False
    given = vocabulary(reader, tensor, [])
    return given is None or given in (config.vocabulary, _padded(reader, tensor, config.vocabulary))
