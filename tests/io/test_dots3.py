"""dots 3: chosen tokens in some layers, a window in the others, both on a latent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import read_config
from jaxperf.models.blocks.latent import latent_mixer
from jaxperf.models.blocks.phase import Decode, Prefill
from jaxperf.models.config import Indexer, Mla
from jaxperf.models.flops import mixer_flops
from tests.devices import H100, deployment

COUNTED = Path(__file__).parents[1] / "models" / "class_parameter_counts.json"
CONFIGS = [each["config"] for each in json.loads(COUNTED.read_text(encoding="utf-8"))]
DOTS: dict[str, Any] = next(each for each in CONFIGS if each["architectures"] == ["Dots3NoteForCausalLM"])
WINDOWED = Mla(64, 1024, 1024, 192, 64, 128, head_gate=True, window=512)


def test_two_kinds_of_layers() -> None:
    config = read_config(DOTS)
    chosen, windowed = config.layers[1].mixer, config.layers[2].mixer
    assert windowed == WINDOWED and chosen.indexer == Indexer(64, 128, 2048)
    assert [layer.mixer.window for layer in config.layers[:7]] == [None, None, 512, 512, 512, None, 512]
    released = {key: value for key, value in DOTS.items() if key not in ("layer_types", "per_layer_config")}
    other = read_config(released | {"swa_num_attention_heads": 32, "sliding_window_size": 256, "sliding_window": None})
    assert (other.layers[2].mixer.heads, other.layers[2].mixer.window) == (32, 256)


def test_a_window_of_latents_by_hand() -> None:
    mixer, at, hidden = latent_mixer(WINDOWED), deployment(H100), as_float(5120)
    for context, seen in ((300, 300), (100_000, 512)):
        decode = mixer.kernels(at, hidden, Decode(4, context))["attention"]
        assert float(decode.flops) == 4 * 64 * seen * 2 * (1024 + 64 + 1024)
        assert float(mixer.cached_elements(at.layout, as_float(context))) == seen * (1024 + 64)
        assert mixer_flops(WINDOWED, context) == 2 * 64 * seen * (192 + 64 + 128)
    prompt = mixer.kernels(at, hidden, Prefill(1, 1000, 10_000))
    assert float(prompt["prefix_expansion"].flops) == 2 * 511 * 1024 * 64 * (192 + 128)
    assert float(prompt["attention"].flops) == 64 * 1000 * 512 * 2 * (192 + 64 + 128)
    few = mixer.kernels(at, hidden, Prefill(1, 8, 10_000))
    assert float(few["attention"].flops) == 64 * 8 * 512 * 2 * (1024 + 64 + 1024)


def test_an_indexer_and_a_window_exclude_each_other() -> None:
    with pytest.raises(InputError, match=r"Mla\.indexer and Mla\.window are both given"):
        Mla(4, None, 16, 8, 4, 8, indexer=Indexer(2, 8, 16), window=8)
