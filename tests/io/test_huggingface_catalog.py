"""The shipped models, their aliases and what `load_model` prefers."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.families import FAMILIES
from jaxperf.io.huggingface import load_model, model_aliases, model_names, read_config
from jaxperf.models.config import Attention, Mla, Moe, layer_groups
from jaxperf.models.storage import stored_bytes


def shipped_fields(name: str) -> dict[str, Any]:
    text = (resources.files("jaxperf.models") / "configs" / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)


def test_the_list_of_shipped_models() -> None:
    names = model_names()
    assert len(names) >= 250 and len(set(names)) == len(names)
    assert names.index("llama-2-7b") < names.index("llama-2-13b") < names.index("llama-2-70b")
    assert len({load_model(name).architecture for name in names}) >= 90


GUESSED = ("was used", "were assumed", "was assumed")  # how the assumptions about absent fields read


@pytest.mark.parametrize("name", model_names())
def test_shipped_config_parses_and_leaves_nothing_to_guess(name: str) -> None:
    config = load_model(name)
    assert config.name == name and config.architecture in FAMILIES
    assert sum(count for _, count in layer_groups(config)) == len(config.layers)
    stated = shipped_fields(name)["_jaxperf"].get("assumptions", [])
    if not stated:
        assert not [line for line in config.assumptions if any(word in line for word in GUESSED)]
    assert set(stated) <= set(config.assumptions)
    if name.startswith(("gpt3", "opt-175b", "nemotron-4")):  # these have no published config, and say so
        assert "has no published config" in config.assumptions[0]


@pytest.mark.parametrize("name", model_names())
def test_shipped_models_without_positions_or_of_images_have_no_limit(name: str) -> None:
    config = load_model(name)
    attends = any(isinstance(layer.mixer, (Attention, Mla)) for layer in config.layers)
    if attends and not any(encoder.kind == "text" for encoder in config.encoders):
        assert config.max_context


@pytest.mark.parametrize("name", model_names())
def test_shipped_config_names_its_source(name: str) -> None:
    assert shipped_fields(name)["_jaxperf"]["source"].startswith("https://")


def test_gpt3_states_its_guesses() -> None:
    said = " ".join(load_model("gpt3-175b").assumptions)
    assert load_model("gpt3-175b").tied_embeddings and "assumed to be tied" in said and "banded" in said
    assert "5140" in " ".join(load_model("gpt3-13b").assumptions)


@pytest.mark.parametrize(
    ("name", "window", "experts"),
    [
        ("mistral-7b-v0.1", 4096, 0),
        ("mistral-7b-v0.3", None, 0),
        ("mixtral-8x7b", None, 8),
        ("qwen3-30b-a3b", None, 128),
    ],
)
def test_windows_and_experts(name: str, window: int | None, experts: int) -> None:
    for layer in load_model(name).layers:
        assert layer.mixer.window == window
        assert (layer.ffn.experts if isinstance(layer.ffn, Moe) else 0) == experts


def test_aliases_point_to_shipped_models_and_do_not_clash() -> None:
    owners: dict[str, str] = {name: name for name in model_names()}
    for alias, name in model_aliases().items():
        assert name in model_names()
        for key in {alias.casefold(), alias.rpartition("/")[2].casefold()}:
            assert owners.setdefault(key, name) == name, f"{key} stands for two models"


@pytest.mark.parametrize("alias", model_aliases())
def test_every_alias_loads_its_model_and_says_so(alias: str) -> None:
    config, shipped = load_model(alias), load_model(model_aliases()[alias])
    assert dataclasses.replace(config, assumptions=shipped.assumptions) == shipped
    if alias.casefold() != shipped.name:
        assert config.assumptions[0].startswith(f"{alias} was read as the shipped {shipped.name}")


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("llama-3-70b", "llama-3-70b"),
        ("meta-llama/Llama-3-70B", "llama-3-70b"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b"),
        ("Meta-Llama-3-70B-Instruct", "llama-3-70b"),
        ("Llama-2-7B", "llama-2-7b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        (" LLAMA_2_7B ", "llama-2-7b"),
        ("mistralai/mixtral-8x7b-v0.1", "mixtral-8x7b"),
        ("GPT-3", "gpt3-175b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1-distill-qwen-32b"),
    ],
)
def test_names_people_type(spelled: str, name: str) -> None:
    assert load_model(spelled).name == name


def test_paths_come_before_shipped_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert load_model("gpt2").hidden == 768  # a directory without a config does not hide the shipped model
    fields = {"architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4}
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(fields | {"vocab_size": 10}))
    for path in ("gpt2", tmp_path / "gpt2", "gpt2/config.json", tmp_path / "gpt2" / "config.json"):
        assert (load_model(path).hidden, load_model(path).name) == (8, "gpt2")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="mine has no config.json"):
        load_model("mine")


def test_the_name_comes_from_the_caller_the_directory_or_the_file(tmp_path: Path) -> None:
    text = json.dumps({"architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4})
    fields = json.loads(text) | {"vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (tmp_path / "other.json").write_text(json.dumps(fields))
    assert read_config(tmp_path).name == read_config(tmp_path / "config.json").name == tmp_path.name
    assert read_config(tmp_path / "other.json").name == "other"
    assert read_config(tmp_path, name="given").name == "given"
    assert read_config(fields).name == "GPT2LMHeadModel"


def test_describing_a_model_does_not_import_jax() -> None:
    code = (
        "import sys; from jaxperf.io.huggingface import load_model; from jaxperf.models.parameters import "
        "parameter_count; parameter_count(load_model('gpt2')); print('jax' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("spelled", "name", "weights"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "int4_asym"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", "int4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "int8_group"),
        ("deepseek-ai/DeepSeek-R1-NVFP4", "deepseek-v3", "fp4"),
        ("deepseek-ai/DeepSeek-R1-FP8", "deepseek-v3", "fp8"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "llama-3.3-70b", "int4"),
    ],
)
def test_a_quantized_checkpoint_has_the_shapes_of_its_model_and_the_usual_format(
    spelled: str, name: str, weights: str
) -> None:
    config, plain = load_model(spelled), load_model(name)
    assert (config.layers, config.weight_format) == (plain.layers, weights)
    assert f"taken to be in {weights} unless given" in config.assumptions[0] and name in config.assumptions[0]
    assert stored_bytes(config) <= stored_bytes(plain) and (weights == plain.weight_format) == (
        stored_bytes(config) == stored_bytes(plain)
    )


@pytest.mark.parametrize("spelled", ["RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "llama-3.3-70b-int8"])
def test_an_ending_of_several_methods_is_left_open_and_says_so(spelled: str) -> None:
    config = load_model(spelled)
    assert config.weight_format == "bf16" and "stores its weights is not known here" in config.assumptions[0]


@pytest.mark.parametrize(
    ("spelled", "ending", "name"),
    [
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "-thinking-2507", "qwen3-235b-a22b"),
        ("moonshotai/Kimi-K2-Instruct-0905", "-instruct-0905", "kimi-k2"),
        ("mixtral-8x22b-instruct", "-instruct", "mixtral-8x22b"),
    ],
)
def test_a_further_training_is_taken_to_have_the_shapes_of_its_model(spelled: str, ending: str, name: str) -> None:
    config = load_model(spelled)
    assert config.layers == load_model(name).layers
    assert f"whose shapes {ending} is taken to have" in config.assumptions[0]
    assert ("By -fp8" in config.assumptions[0]) == spelled.endswith("FP8")


def test_the_owner_of_a_name_does_not_matter() -> None:
    assert "has the same shapes" in load_model("meta/llama-3.1-405b").assumptions[0]


def test_an_ending_alone_finds_no_model() -> None:
    with pytest.raises(InputError, match="No model or path"):
        load_model("no-such-model-Instruct-FP8")
    with pytest.raises(InputError, match="No model or path"):
        load_model("no-such-model-FP8")
