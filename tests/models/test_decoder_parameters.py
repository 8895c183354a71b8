"""Parameters of decoders, counted by their Hugging Face classes, and against published figures."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from jaxperf.io.huggingface import load_model, read_config
from jaxperf.models.config import ModelConfig, Moe
from jaxperf.models.parameters import (
    active_parameter_count,
    mtp_parameter_count,
    parameter_breakdown,
    parameter_count,
)

# Counted by Hugging Face transformers 5.23.0 with torch 2.13.0: the class of the second column built on the meta device
# from the shipped config, shared weights once. A config written for code outside that package was built with the class
# that has the same weights (InternLM, Baichuan, EXAONE 3.5, MiniCPM: Llama; Qwen 1: Qwen 2; ChatGLM: Glm). The last
# column is what the class keeps as buffers although it is trained: the biases by which DeepSeek V3 chooses experts.
with (Path(__file__).parent / "parameter_counts.csv").open(newline="", encoding="utf-8") as file:
    COUNTED = {row["model"]: int(row["parameters"]) + int(row["correction_biases"]) for row in csv.DictReader(file)}

# Classes without a shipped config, and options the shipped ones do not show: the fields that are read of the default
# configuration with those options, and the parameters of the class, counted in the same way.
with (Path(__file__).parent / "class_parameter_counts.json").open(encoding="utf-8") as file:
    CLASSES = [(entry["config"], entry["parameters"]) for entry in json.load(file)]

CARD = "model card"

# Billions of parameters in all, and where they are published.
TOTAL = {
    "apertus-8b": ("8", CARD),
    "apertus-70b": ("70", CARD),
    "arctic-480b": ("480", CARD),
    "bamba-9b": ("9.78", CARD),
    "bloom-560m": ("0.559214592", CARD),
    "bloom-7b1": ("7.069016064", CARD),
    "bloom-176b": ("176.247271424", CARD),
    "chatglm3-6b": ("6", CARD),
    "codegen-16b": ("16.1", "arXiv:2203.13474, table 1"),
    "command-a-111b": ("111", "arXiv:2504.00698"),
    "command-r-35b": ("35", CARD),
    "command-r-plus": ("104", CARD),
    "command-r-32b-08-2024": ("32", CARD),
    "dbrx": ("132", CARD),
    "deepseek-llm-7b": ("7", "arXiv:2401.02954"),
    "deepseek-llm-67b": ("67", "arXiv:2401.02954"),
    "deepseek-moe-16b": ("16.4", "arXiv:2401.06066, section 5"),
    "deepseek-v2": ("236", "arXiv:2405.04434"),
    "deepseek-v2-lite": ("15.7", "arXiv:2405.04434, appendix B"),
    "deepseek-v3": ("671", "arXiv:2412.19437"),
    "deepseek-v4-flash": ("284", CARD),
    "dots-llm1-142b-a14b": ("142", "arXiv:2506.05767"),
    "ernie-4.5-300b-a47b": ("300", CARD),
    "exaone-3.5-7.8b": ("7.8", "arXiv:2412.04862"),
    "falcon-7b": ("7", "arXiv:2311.16867"),
    "falcon-180b": ("180", "arXiv:2311.16867"),
    "falcon-h1-0.5b": ("0.521", "arXiv:2507.22448, table 1"),
    "falcon-h1-7b": ("7.59", "arXiv:2507.22448, table 1"),
    "falcon-h1-34b": ("33.6", "arXiv:2507.22448, table 1"),
    "falcon-mamba-7b": ("7", "arXiv:2410.05355"),
    "falcon2-11b": ("11", "arXiv:2407.14885"),
    "gemma-2b": ("2.51", "arXiv:2403.08295, table 2: 524,550,144 + 1,981,884,416"),
    "gemma-7b": ("8.54", "arXiv:2403.08295, table 2: 786,825,216 + 7,751,248,896"),
    "gemma-2-2b": ("2.614", "arXiv:2408.00118, table 2: 590,118,912 + 2,024,517,888"),
    "gemma-2-9b": ("9.242", "arXiv:2408.00118, table 2: 917,962,752 + 8,324,201,984"),
    "gemma-2-27b": ("27.23", "arXiv:2408.00118, table 2: 1,180,237,824 + 26,047,480,320"),
    "gemma-3-1b": ("1.000", "arXiv:2503.19786, table 1: 302M + 698M"),
    "gemma-3-12b-text": ("11.77", "arXiv:2503.19786, table 1: 1,012M + 10,759M"),
    "glm-4-9b": ("9", CARD),
    "glm-4.5": ("355", "arXiv:2508.06471, table 1"),
    "glm-4.5-air": ("106", "arXiv:2508.06471, table 1"),
    "glm-5": ("744", CARD),
    "gpt-j-6b": ("6.053381344", CARD),
    "gpt-neox-20b": ("20.554567680", CARD),
    "gpt-oss-20b": ("20.91", "arXiv:2508.10925, table 1"),
    "gpt-oss-120b": ("116.83", "arXiv:2508.10925, table 1"),
    "granite-3.1-1b-a400m": ("1.3", CARD),
    "granite-3.1-2b": ("2.5", CARD),
    "granite-3.1-3b-a800m": ("3.3", CARD),
    "granite-3.1-8b": ("8.1", CARD),
    "granite-4.0-h-micro": ("3", CARD),
    "granite-4.0-h-small": ("32", CARD),
    "granite-4.0-h-tiny": ("7", CARD),
    "grok-1": ("314", "github.com/xai-org/grok-1, README"),
    "hunyuan-a13b": ("80", CARD),
    "hunyuan-large": ("389", "arXiv:2411.02265"),
    "internlm2-20b": ("20", "arXiv:2403.17297"),
    "jais-13b": ("13", "arXiv:2308.16149"),
    "jamba-1.5-large": ("398", "arXiv:2408.12570"),
    "jamba-v0.1": ("52", "arXiv:2403.19887"),
    "lfm2-350m": ("0.354483968", CARD),
    "lfm2-700m": ("0.742489344", CARD),
    "lfm2-1.2b": ("1.170340608", CARD),
    "lfm2-8b-a1b": ("8.3", CARD),
    "llama-4-maverick-text": ("400", "model card: 400B, of which the vision tower is 0.9B"),
    "mamba-130m": ("0.13", "arXiv:2312.00752, table 3"),
    "mamba-370m": ("0.37", "arXiv:2312.00752, table 3"),
    "mamba-1.4b": ("1.4", "arXiv:2312.00752, table 3"),
    "mamba-2.8b": ("2.8", "arXiv:2312.00752, table 3"),
    "mamba-codestral-7b": ("7.285403648", "mistral.ai/news/codestral-mamba"),
    "minicpm3-4b": ("4", CARD),
    "minimax-m2": ("230", CARD),
    "minimax-text-01": ("456", "arXiv:2501.08313"),
    "ministral-8b": ("8.019808256", CARD),
    "minitron-4b": ("4.2", "arXiv:2407.14679"),
    "minitron-8b": ("8.3", "arXiv:2407.14679"),
    "moonlight-16b-a3b": ("16", "arXiv:2502.16982"),
    "mpt-7b": ("6.7", CARD),
    "mpt-30b": ("29.95", CARD),
    "nemotron-3-nano-30b-a3b": ("31.6", CARD),
    "nemotron-nano-9b-v2": ("9", CARD),
    "nemotron-4-15b": ("15.7", "arXiv:2402.16819, table 1: 3.2B + 12.5B"),
    "nemotron-4-340b": ("341", "arXiv:2406.11704, table 1: 9.4B + 331.6B"),
    "nemotron-h-8b": ("8", "arXiv:2504.03624"),
    "nemotron-h-56b": ("56", "arXiv:2504.03624"),
    "olmo-1b": ("1.2", "arXiv:2402.00838, table 1"),
    "olmo-7b": ("6.9", "arXiv:2402.00838, table 1"),
    "olmoe-1b-7b": ("6.9", "arXiv:2409.02060"),
    "phi-3-mini-4k": ("3.8", "arXiv:2404.14219"),
    "phi-3-medium-4k": ("14", "arXiv:2404.14219"),
    "phi-3.5-moe": ("42", "arXiv:2404.14219"),
    "phi-4-mini": ("3.8", "arXiv:2503.01743"),
    "pythia-70m": ("0.070426624", CARD),
    "pythia-160m": ("0.162322944", CARD),
    "pythia-410m": ("0.405334016", CARD),
    "pythia-1b": ("1.011781632", CARD),
    "pythia-1.4b": ("1.414647808", CARD),
    "pythia-2.8b": ("2.775208960", CARD),
    "pythia-6.9b": ("6.857302016", CARD),
    "pythia-12b": ("11.846072320", CARD),
    "qwen3-coder-480b-a35b": ("480", CARD),
    "qwen3-next-80b-a3b": ("80", CARD),
    "qwen3.5-397b-a17b": ("397", CARD),
    "santacoder-1.1b": ("1.1", "arXiv:2301.03988"),
    "seed-oss-36b": ("36", CARD),
    "smollm3-3b": ("3", CARD),
    "solar-10.7b": ("10.7", "arXiv:2312.15166"),
    "stablelm-3b-4e1t": ("2.795443200", CARD),
    "stablelm-2-1.6b": ("1.644", CARD),
    "stablelm-2-12b": ("12.14", CARD),
    "starcoder-15b": ("15.5", "arXiv:2305.06161"),
    "tinyllama-1.1b": ("1.1", "arXiv:2401.02385"),
    "xglm-564m": ("0.564", "arXiv:2112.10668, table 1"),
    "xglm-7.5b": ("7.5", "arXiv:2112.10668, table 1"),
    "yi-6b": ("6", "arXiv:2403.04652"),
    "yi-34b": ("34", "arXiv:2403.04652"),
}

# Billions of parameters in use for one token, how many of the two token tables the figure leaves out, and the source.
# A tied table counts as both; where the source is silent, the number of tables that meets its rounding is given.
ACTIVE = {
    "arctic-480b": ("17", 0, CARD),
    "dbrx": ("36", 0, CARD),
    "deepseek-moe-16b": ("2.8", 0, "arXiv:2401.06066, section 5"),
    "deepseek-v2": ("21", 0, "arXiv:2405.04434"),
    "deepseek-v3": ("37", 1, "arXiv:2412.19437"),
    "deepseek-v4-flash": ("13", 1, CARD),
    "deepseek-v4-pro": ("49", 1, CARD),
    "dots-llm1-142b-a14b": ("14", 0, "arXiv:2506.05767"),
    "ernie-4.5-300b-a47b": ("47", 0, CARD),
    "glm-4.5": ("32", 2, "arXiv:2508.06471, table 1: without the tables"),
    "glm-4.5-air": ("12", 2, "arXiv:2508.06471, table 1: without the tables"),
    "glm-5": ("40", 2, CARD),
    "gpt-oss-20b": ("3.61", 1, "arXiv:2508.10925, table 1: with the output head, without the token table"),
    "gpt-oss-120b": ("5.13", 1, "arXiv:2508.10925, table 1: with the output head, without the token table"),
    "granite-3.1-1b-a400m": ("0.4", 2, CARD),
    "granite-3.1-3b-a800m": ("0.8", 2, CARD),
    "granite-4.0-h-small": ("9", 0, CARD),
    "granite-4.0-h-tiny": ("1", 0, CARD),
    "hunyuan-a13b": ("13", 0, CARD),
    "jamba-1.5-large": ("94", 0, "arXiv:2408.12570"),
    "jamba-v0.1": ("12", 0, "arXiv:2403.19887"),
    "kimi-k2": ("32.6", 0, "arXiv:2507.20534"),
    "llama-4-maverick-text": ("17", 0, CARD),
    "minimax-m2": ("10", 2, CARD),
    "minimax-text-01": ("45.9", 2, "arXiv:2501.08313"),
    "moonlight-16b-a3b": ("3", 0, "arXiv:2502.16982"),
    "nemotron-3-nano-30b-a3b": ("3.6", 0, "model card: 3.6B with the tables"),
    "olmoe-1b-7b": ("1.3", 0, "arXiv:2409.02060"),
    "phi-3.5-moe": ("6.6", 0, "arXiv:2404.14219"),
    "qwen3-coder-480b-a35b": ("35", 0, CARD),
    "qwen3-next-80b-a3b": ("3", 2, CARD),
    "qwen3.5-397b-a17b": ("17", 0, CARD),
}

# Billions without token table and output head, which these cards give instead of or beside the total.
WITHOUT_TABLES = {
    "exaone-4.0-1.2b": ("1.07", CARD),
    "exaone-4.0-32b": ("30.95", CARD),
    "minicpm-2b": ("2.442057984", "arXiv:2404.06395, table 2"),
    "nemotron-4-340b": ("331.6", "arXiv:2406.11704, table 1"),
}


def near(published: str) -> object:
    """Within 1 %, or half a unit of the last published digit where that is more."""
    digits = published.partition(".")[2]
    return pytest.approx(float(published), rel=0.01, abs=0.5 * 10.0 ** -len(digits))


def tables(config: ModelConfig, number: int) -> int:
    """Parameters of so many of the two tables; a tied one is both."""
    parts = parameter_breakdown(config)
    return {0: 0, 1: parts["embedding"], 2: parts["embedding"] + parts["output_head"]}[number]


@pytest.mark.parametrize("name", COUNTED)
def test_total_is_exactly_what_the_class_has(name: str) -> None:
    assert parameter_count(load_model(name)) == COUNTED[name]


@pytest.mark.parametrize(("fields", "parameters"), CLASSES, ids=[fields["architectures"][0] for fields, _ in CLASSES])
def test_other_classes_and_options_count_exactly(fields: dict[str, Any], parameters: int) -> None:
    assert parameter_count(read_config(fields)) == parameters


@pytest.mark.parametrize("name", TOTAL)
def test_total_is_the_published_one(name: str) -> None:
    assert parameter_count(load_model(name)) / 1e9 == near(TOTAL[name][0])


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_the_published_ones(name: str) -> None:
    billions, number, _source = ACTIVE[name]
    config = load_model(name)
    assert (active_parameter_count(config) - tables(config, number)) / 1e9 == near(billions)


@pytest.mark.parametrize("name", WITHOUT_TABLES)
def test_parameters_without_the_tables_are_the_published_ones(name: str) -> None:
    config = load_model(name)
    assert (parameter_count(config) - tables(config, 2)) / 1e9 == near(WITHOUT_TABLES[name][0])


def test_layers_that_predict_further_tokens_are_not_in_the_total() -> None:
    """DeepSeek V3: 671 B without, 685 B in the files with one such layer and its copies of the two tables."""
    config = load_model("deepseek-v3")
    assert parameter_count(dataclasses.replace(config, mtp_layers=())) == parameter_count(config)
    stored = parameter_count(config) + mtp_parameter_count(config) + tables(config, 2)
    assert stored / 1e9 == pytest.approx(684.5, abs=0.05)  # safetensors files, Hugging Face model page: 685B
    assert mtp_parameter_count(load_model("llama-3-8b")) == 0


@pytest.mark.parametrize("name", COUNTED)
def test_only_models_with_experts_have_idle_parameters(name: str) -> None:
    config = load_model(name)
    sparse = any(isinstance(layer.ffn, Moe) for layer in config.layers)
    assert sparse == (active_parameter_count(config) < parameter_count(config))
