"""One shipped model of every architecture through `estimate`, and what is said aloud about it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import hwspecs
from hwspecs.errors import InputError
from jaxperf.core.device import load_device
from jaxperf.core.numerics import as_float
from jaxperf.io.huggingface import load_model
from jaxperf.models.config import ModelConfig
from jaxperf.models.quantization import Quantization
from jaxperf.serving.estimate import check_layout, estimate, tensor_splits
from jaxperf.serving.metrics import TASK_METRICS
from jaxperf.serving.notes import model_notes
from jaxperf.serving.reads import makes_tokens
from jaxperf.serving.study import Study, formats_of
from jaxperf.sweeps import Sweep
from tests.models.shipped import decoders, one_of_each, unlike_decoders

H200 = hwspecs.load("h200-sxm")
DEVICE = load_device("h200-sxm")
POINT: dict[str, Any] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "expert_parallel": 1,
    "data_parallel": 1,
    "batch": 4,
    "prompt": 100,
    "output": 20,
    "weights": "fp8",
    "kv_cache": "bf16",
}
WHOLE = ("reason", "ttft", "tpot", "tokens_per_second", "memory", "limiter")


@pytest.mark.parametrize("name", unlike_decoders())
def test_a_request_to_every_kind_of_decoder(name: str) -> None:
    """Kernel by kernel, as compiling whole requests to so many models takes minutes."""
    point = Study(load_model(name), "serve", WHOLE).at_level("nominal")
    lengths = {"batch": as_float(1), "prompt": as_float(100), "output": as_float(20)}
    roomy = DEVICE.replace(memory_capacity=4e12)
    found = point(device=roomy, **lengths, **formats_of("fp8", "bf16"))
    assert int(found["reason"]) == 0
    assert 0.0 < float(found["tpot"]) < 1.0 and 0.0 < float(found["ttft"]) < 1.0


@pytest.mark.long
def test_an_estimate_of_an_encoder_decoder() -> None:
    found = estimate(load_model("t5-small"), H200, POINT)
    assert found.feasible, found.reasons
    assert all(np.isfinite(value) for value in found.explanation.metrics.values())


@pytest.mark.parametrize("name", decoders())
def test_every_decoder_can_be_asked_about(name: str) -> None:
    model = load_model(name)
    assert tensor_splits(model)[0] == 1
    check_layout(model, POINT)
    assert Study(model, "serve", ("tpot",)).parameters


@pytest.mark.parametrize("name", [name for name in one_of_each() if name not in decoders()])
def test_a_model_that_generates_nothing_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is an encoder: it generates no tokens, so it has no decode"):
        estimate(load_model(name), H200, POINT)
    with pytest.raises(InputError, match="is an encoder"):
        Study(load_model(name), "decode", ("tpot",))
    assert Study(load_model(name), "prefill", ("ttft",)).parameters


def test_the_throughput_of_an_encoder_counts_its_positions() -> None:
    study = Study(load_model("vit-large-16"), "prefill", TASK_METRICS["prefill"])
    lengths = {"batch": as_float(8), "prompt": as_float(1)}
    found = study.at_level("nominal")(device=DEVICE, **lengths, **formats_of("bf16", "bf16"))
    assert float(found["tokens_per_second"]) == pytest.approx(8 * 197 / float(found["ttft"]), rel=1e-9)


@pytest.mark.parametrize(("name", "own"), [("vit-base-16", "197 of image"), ("clip-vit-large-14", "77 of text")])
def test_an_encoder_of_fixed_length_has_no_prompt(name: str, own: str) -> None:
    study, devices = Study(load_model(name), "prefill", ("ttft", "reason")), {"h200-sxm": DEVICE}
    assert "prompt" not in study.parameters
    axes = study.axes({"device": None, "batch": 8}, devices)
    assert "prompt" not in [one.name for one in axes]
    assert int(Sweep(study.point(), axes).dense()["reason"].item()) == 0
    for values in ({"prompt": [16, 4096]}, {"sizes": {"prompt": [16, 4096], "batch": [1, 2]}}):
        with pytest.raises(InputError, match=rf"'prompt' changes nothing of {name}, which reads tokens of .*{own}"):
            study.axes({"device": None, **values}, devices)


def test_an_encoder_of_the_prompt_has_its_length() -> None:
    assert "prompt" in Study(load_model("bert-base"), "prefill", ("ttft",)).parameters


def said_of(model: ModelConfig, weights: str = "bf16", cache: str = "bf16", media: bool = False) -> list[str]:
    """What is said of a model beside the assumptions of reading it."""
    return [note for note in model_notes(model, [weights], [cache], media) if note not in model.assumptions]


def test_what_is_left_out_is_said() -> None:
    llava = load_model("llava-1.5-7b")
    assert makes_tokens(llava) and not makes_tokens(load_model("whisper-large-v3"))
    (idle,) = said_of(llava)
    assert "image encoder is in memory but idle" in idle
    assert said_of(llava, media=True) == []
    assert any("1 layer for multi-token prediction" in note for note in said_of(load_model("deepseek-v3")))
    assert said_of(load_model("llama-3.1-8b")) == []
    assert any("untimed" in note for note in said_of(load_model("gemma-3n-e2b-text")))


def test_the_checkpoints_own_format_is_the_default_and_is_said() -> None:
    scheme = Quantization("gptq", "int4", 4, group_size=32, excluded=("self_attn",))
    model = dataclasses.replace(load_model("llama-3.1-8b"), weight_format="int4", quantization=scheme)
    axes = {one.name: one for one in Study(model, "decode", ("tpot",)).axes({"device": None}, {"h200-sxm": DEVICE})}
    assert list(axes["weights"].labels["weights"]) == ["int4"]
    left_out = "The checkpoint leaves attention unquantized in some or all layers; so does this, in any format."
    said, *others = said_of(model, "int4")
    assert others == [left_out]
    assert said == "int4 is how the checkpoint stores its weights (gptq); its 4.5 bits a weight are counted as 4.12."
    assert said_of(model, "fp8") == [left_out]


def test_a_cache_in_another_format_than_the_checkpoint_asks_for_is_said() -> None:
    scheme = Quantization("modelopt", "fp8", 8, kv_cache="fp8")
    model = dataclasses.replace(load_model("llama-3.1-8b"), quantization=scheme, weight_format="fp8")
    (said,) = said_of(model)
    assert said == "The checkpoint asks for a KV cache in fp8; bf16 is counted: --kv-cache fp8 changes that."
    assert said_of(model, cache="fp8") == []


@pytest.mark.parametrize(
    ("name", "axis", "said"),
    [
        ("gpt2", {"routing_skew": [1, 1.5]}, "'routing_skew' changes nothing of gpt2, which has no experts"),
        ("mamba-2.8b", {"kv_cache": ["bf16", "fp8"]}, "'kv_cache' changes nothing of mamba-2.8b, which keeps no keys"),
    ],
)
def test_an_axis_that_changes_nothing_is_refused_and_one_value_is_not(
    name: str, axis: dict[str, list[Any]], said: str
) -> None:
    study, devices = Study(load_model(name), "decode", ("tpot",)), {"h200-sxm": DEVICE}
    with pytest.raises(InputError, match=said):
        study.axes({"device": None, **axis}, devices)
    ((parameter, values),) = axis.items()
    assert parameter in [one.name for one in study.axes({"device": None, parameter: values[-1:]}, devices)]


def test_a_zip_axis_is_refused_where_all_of_it_changes_nothing() -> None:
    study, devices = Study(load_model("gpt2"), "decode", ("tpot",)), {"h200-sxm": DEVICE}
    with pytest.raises(InputError, match="'routing_skew' changes nothing of gpt2"):
        study.axes({"device": None, "uneven": {"routing_skew": [1, 1.5]}}, devices)
    assert study.axes({"device": None, "uneven": {"routing_skew": [1, 1.5], "batch": [1, 2]}}, devices)


def test_media_is_no_parameter_of_a_decode_that_has_it_in_its_context() -> None:
    assert "media_tokens" not in Study(load_model("llava-1.5-7b"), "decode", ("tpot",)).parameters
    assert "media_tokens" in Study(load_model("llama-3.2-11b-vision"), "decode", ("tpot",)).parameters


def test_images_are_a_parameter_of_models_that_read_them() -> None:
    study = Study(load_model("llava-1.5-7b"), "prefill", ("ttft",))
    devices = {"h200-sxm": DEVICE}
    assert "media_tokens" in study.parameters
    axes = study.axes({"device": None, "media_tokens": [576, 1152], "prompt": 2000}, devices)
    assert [one.name for one in axes][:2] == ["device", "media_tokens"]
    with pytest.raises(InputError, match="'media_tokens' is not a parameter"):
        Study(load_model("llama-3.1-8b"), "prefill", ("ttft",)).axes(
            {"device": None, "media_tokens": 576}, {"h200-sxm": DEVICE}
        )
