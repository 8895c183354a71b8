"""Workload graphs by the name people write: a shipped model, a config file, a built-in one, or NeuSight's spelling."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hwspecs.errors import InputError, letters
from jaxperf.io.huggingface import Source, load_model, read_config
from jaxperf.models.config import ModelConfig
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.catalog import BUILT_IN, workload

# What NeuSight measured under its names, where that is not the shipped model of the name: its GPT-3 XL is 3072 wide
# (24 heads of 128, the row of table 2.1 of arXiv:2005.14165 that does not multiply out to the paper's 2048).
_GPT3_XL = {
    "architectures": ["GPT2LMHeadModel"],
    **{"n_embd": 3072, "n_layer": 24, "n_head": 24, "n_positions": 2048, "vocab_size": 50257},
}
_SWITCH_XL4 = {
    "architectures": ["SwitchTransformersForConditionalGeneration"],
    **{"d_model": 1024, "d_ff": 16384, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 32, "d_kv": 128},
    **{"num_experts": 4, "num_sparse_encoder_layers": 12, "num_sparse_decoder_layers": 12, "vocab_size": 32128},
    **{"relative_attention_num_buckets": 32, "router_bias": False, "tie_word_embeddings": True},
}
NEUSIGHT: Mapping[str, str | Mapping[str, Any]] = MappingProxyType(
    {
        "bert_large": "bert-large",
        "gpt2_large": "gpt2-large",
        "gpt3_xl": _GPT3_XL,
        "gpt3_27": "gpt3-2.7b",
        "opt_13": "opt-1.3b",
        "switchxl4": _SWITCH_XL4,
    }
)


def load_workload(model: Source, mode: str, seq: int, batch: int, variant: str = "plain", dtype: str = "fp32") -> Graph:
    """The graph of a model by name, path or fields; other arguments, and what raises `InputError`, as in `workload`."""
    if isinstance(model, str) and model.lower() in BUILT_IN:
        return workload(model.lower(), mode, seq, batch, variant, dtype)
    _refuse_respelled(model)
    return workload(_described(model, mode), mode, seq, batch, variant, dtype)


def _refuse_respelled(model: Source) -> None:
    """Raises `InputError` with the name of the built-in model that "resnet50" means, of which configs know nothing."""
    if not isinstance(model, str) or os.path.exists(model):
        return
    for name in BUILT_IN:
        if letters(name) == letters(model):
            raise InputError(f"No model {model!r}; the built-in one is called {name}.")


def _described(model: Source, mode: str) -> ModelConfig:
    known = NEUSIGHT.get(model.lower()) if isinstance(model, str) else None
    if known is None:
        return read_config(model) if isinstance(model, Mapping) else load_model(model)
    try:
        read = load_model(known) if isinstance(known, str) else read_config(known)
        config = dataclasses.replace(read, name=str(model).lower())
    except InputError as error:
        raise InputError(f"{model}: {error}") from None
    if config.architecture == "BertForPreTraining" and mode.startswith("inf"):
        return dataclasses.replace(config, architecture="BertForSequenceClassification")  # as NeuSight measured it
    return config
