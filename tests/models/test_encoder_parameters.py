"""Parameters of encoders, vision and sequence-to-sequence models, counted exactly and against published figures."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path

import pytest

from jaxperf.io.huggingface import load_model, read_config
from jaxperf.models.parameters import active_parameter_count, encoder_parameters, kv_bytes_per_token, parameter_count

# Counted by Hugging Face transformers 5.23.0 with torch 2.13.0: the class of the second column built on the meta device
# from the shipped config, shared weights once. Of flan-t5 and mt5 the class without a head is counted: that release
# ties the head of T5 whatever the config says.
with (Path(__file__).parent / "encoder_parameter_counts.csv").open(newline="", encoding="utf-8") as file:
    COUNTED = [(row["model"], row["class"], int(row["parameters"])) for row in csv.DictReader(file)]

PAGE = "parameters of the safetensors files, Hugging Face model page"

# Millions of parameters, and where they are published. Within 1 %, or half a unit of the last digit where that is more.
PUBLISHED = {
    "bert-base": ("110", "arXiv:1810.04805, section 3"),
    "bert-large": ("336", PAGE),
    "roberta-base": ("125", "github.com/facebookresearch/fairseq, examples/roberta: 125M"),
    "roberta-large": ("355", "github.com/facebookresearch/fairseq, examples/roberta: 355M"),
    "xlm-roberta-large": ("560", "github.com/facebookresearch/fairseq, examples/xlmr: 560M"),
    "distilbert-base": ("67.0", PAGE),
    "albert-base": ("12", "arXiv:1909.11942, table 1"),
    "albert-xxlarge": ("223", "model card of albert/albert-xxlarge-v2"),
    "mpnet-base": ("109", PAGE),
    "electra-large": ("335", "arXiv:2003.10555, table 3"),
    "deberta-v3-base": ("184", "model card of microsoft/deberta-v3-base: 86M in the layers, 98M in the tables"),
    "modernbert-base": ("149", "arXiv:2412.13663, section 2: 149M"),
    "modernbert-large": ("395", "arXiv:2412.13663, section 2: 395M"),
    "vit-base-16": ("86", "arXiv:2010.11929, table 1"),
    "vit-large-16": ("307", "arXiv:2010.11929, table 1"),
    "vit-huge-14": ("632", "arXiv:2010.11929, table 1"),
    "deit-base-16": ("87", "arXiv:2012.12877, table 5: 87M with distillation"),
    "dinov2-large": ("304", PAGE),
    "dinov2-giant": ("1140", PAGE),
    "clip-vit-large-14": ("428", PAGE),
    "siglip-so400m-14": ("877.5", "model.safetensors of 3.51 GB in fp32, Hugging Face model page"),
    "t5-small": ("60.5", PAGE),
    "t5-base": ("223", PAGE),
    "t5-large": ("738", PAGE),
    "t5-3b": ("2850", PAGE),
    "t5-11b": ("11300", PAGE),
    "flan-t5-xl": ("2850", "safetensors of 9.45 + 1.95 GB in fp32, Hugging Face model page"),
    "flan-t5-xxl": ("11100", "the shapes of T5 1.1 XXL: lintang/t5-v1_1-xxl-flan, Hugging Face model page"),
    "mt5-base": ("580", "arXiv:2010.11934, section 3.2"),
    "switch-base-8": ("619", PAGE),
    "switch-base-128": ("7465", "safetensors of 9.9 + 10 + 9.96 GB in fp32, two tables twice, Hugging Face model page"),
    "bart-large": ("406", PAGE),
    "mbart-large-50": ("611", PAGE),
    "pegasus-large": ("568", "arXiv:1912.08777, section 6: 568M"),
    "m2m100-1.2b": ("1240", PAGE),
    "nllb-200-3.3b": ("3300", "arXiv:2207.04672, the model of 3.3B"),
    "nllb-moe-54b": ("54500", "arXiv:2207.04672, section 8: 54.5B"),
    "whisper-tiny": ("37.8", PAGE),
    "whisper-base": ("72.6", PAGE),
    "whisper-small": ("244", "arXiv:2212.04356, table 1"),
    "whisper-medium": ("769", "arXiv:2212.04356, table 1"),
    "whisper-large-v3": ("1550", "github.com/openai/whisper, README"),
    "whisper-large-v3-turbo": ("809", "github.com/openai/whisper, README"),
    "wav2vec2-base": ("95", "arXiv:2006.11477, section 4.2: 95m"),
    "wav2vec2-large": ("317", "arXiv:2006.11477, section 4.2: 317m"),
    "hubert-large": ("317", "arXiv:2106.07447, table 1: 317M"),
    "llava-1.5-7b": ("7060", PAGE),
    "llava-next-mistral-7b": ("7570", PAGE),
    "qwen2-vl-7b": ("8290", PAGE),
    "qwen2.5-vl-7b": ("8290", PAGE),
    "qwen3-vl-8b": ("8770", PAGE),
    "gemma-3-4b": ("4300", PAGE),
    "gemma-3-27b": ("27400", PAGE),
    "paligemma-3b": ("2920", PAGE),
    "llama-3.2-11b-vision": ("10600", "model card of meta-llama/Llama-3.2-11B-Vision: 11B (10.6)"),
    "llama-4-maverick": ("400000", "model card of meta-llama/Llama-4-Maverick-17B-128E-Instruct: 400B total"),
    "llama-4-scout": ("109000", "model card of meta-llama/Llama-4-Scout-17B-16E-Instruct: 109B total"),
    "smolvlm-2.2b": ("2250", PAGE),
    "pixtral-12b": ("12700", PAGE),
    "mistral-small-3.1-24b": ("24000", PAGE),
    "internvl3-8b": ("7940", PAGE),
}
ACTIVE = {
    "llama-4-maverick": ("17000", "model card: 17B active parameters"),
    "llama-4-scout": ("17000", "model card: 17B active parameters"),
    "switch-base-8": ("223", "arXiv:2101.03961, table 1: the FLOPs of T5-Base, whose size this is"),
}


def fields(name: str) -> dict:
    return json.loads((resources.files("jaxperf.models") / "configs" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "architecture", "parameters"), COUNTED, ids=[f"{a}-{b}" for a, b, _ in COUNTED])
def test_every_class_has_exactly_the_parameters_that_are_counted(name: str, architecture: str, parameters: int) -> None:
    assert parameter_count(read_config(fields(name) | {"architectures": [architecture]})) == parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_total_is_the_published_one(name: str) -> None:
    millions, _source = PUBLISHED[name]
    last = 10.0 ** -len(millions.partition(".")[2]) if "." in millions else 10.0 ** _zeros(millions)
    assert parameter_count(load_model(name)) / 1e6 == pytest.approx(float(millions), rel=0.01, abs=0.51 * last)


def _zeros(digits: str) -> int:
    return len(digits) - len(digits.rstrip("0")) if len(digits) > 3 else 0


def test_every_counted_model_is_published_and_every_encoder_is_counted() -> None:
    assert {name for name, _, _ in COUNTED} == set(PUBLISHED)


def test_maverick_is_its_decoder_with_the_tower_of_scout() -> None:
    whole, text, scout = (load_model(f"llama-4-{name}") for name in ("maverick", "maverick-text", "scout"))
    assert (whole.layers, whole.encoders) == (text.layers, scout.encoders)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_the_published_ones(name: str) -> None:
    config = load_model(name)
    towers = sum(encoder_parameters(encoder) for encoder in config.encoders if encoder.kind == "image")
    active = active_parameter_count(config) - towers
    assert active / 1e6 == pytest.approx(float(ACTIVE[name][0]), rel=0.03)


# Counted in the same way: decoders without their head, or with a classifier of two labels in its place.
OTHER_HEADS = [
    ("llama-3-8b", "LlamaModel", 7_504_924_672),
    ("llama-3-8b", "LlamaForSequenceClassification", 7_504_932_864),
    ("llama-3-8b", "LlamaForTokenClassification", 7_504_932_866),
    ("qwen2-7b", "Qwen2Model", 7_070_619_136),
    ("qwen2-7b", "Qwen2ForSequenceClassification", 7_070_626_304),
    ("qwen2-7b", "Qwen2ForTokenClassification", 7_070_626_306),
    ("gpt2", "GPT2Model", 124_439_808),
    ("gpt2", "GPT2ForSequenceClassification", 124_441_344),
    ("gpt2", "GPT2ForTokenClassification", 124_441_346),
    ("opt-350m", "OPTModel", 331_196_416),
    ("qwen3-4b", "Qwen3Model", 4_022_468_096),
    ("mixtral-8x7b", "MixtralModel", 46_571_720_704),
    ("llava-1.5-7b", "LlavaModel", 6_932_092_928),
    ("gemma-3-4b", "Gemma3Model", 4_300_079_472),
    ("qwen2-vl-7b", "Qwen2VLModel", 7_746_378_240),
    ("llama-3.2-11b-vision", "MllamaModel", 10_117_604_899),
    ("internvl3-8b", "InternVLModel", 7_400_774_144),
]


@pytest.mark.parametrize(("name", "architecture", "parameters"), OTHER_HEADS, ids=[each[1] for each in OTHER_HEADS])
def test_decoders_with_another_head(name: str, architecture: str, parameters: int) -> None:
    config = read_config(fields(name) | {"architectures": [architecture]})
    assert (parameter_count(config), config.architecture, config.assumptions) == (parameters, architecture, ())


def test_the_first_release_of_internvl_is_the_same_model() -> None:
    """OpenGVLab/InternVL3-8B and InternVL3-8B-hf: other names of the fields."""
    usual = fields("internvl3-8b")
    names = {"attention_bias": "qkv_bias", "use_qk_norm": "qk_normalization"}
    vision = {names.get(key, key): value for key, value in usual["vision_config"].items()}
    first = {"architectures": ["InternVLChatModel"], "llm_config": usual["text_config"], "vision_config": vision}
    kept = {key: usual[key] for key in ("torch_dtype", "tie_word_embeddings", "image_seq_length")}
    config, same = read_config(first | kept), load_model("internvl3-8b")
    assert (config.layers, config.encoders) == (same.layers, same.encoders)
    assert parameter_count(config) == parameter_count(same)


# Parts of configs as they are published: what the class has as a default is left out.
TERSE = {
    "llava-1.5-7b": {
        "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    },
    "gemma-3-4b": {
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
    },
    "siglip-so400m-14": {
        "text_config": {
            "model_type": "siglip_text_model",
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
        },
    },
}


@pytest.mark.parametrize("name", TERSE)
def test_published_configs_that_leave_defaults_out(name: str) -> None:
    config, full = read_config(fields(name) | TERSE[name]), load_model(name)
    assert (config.layers, config.encoders) == (full.layers, full.encoders)
    assert parameter_count(config) == parameter_count(full)
    assert any("text_config leaves out" in sentence for sentence in config.assumptions)


@pytest.mark.parametrize(
    ("name", "kind", "length", "tokens"),
    [
        ("vit-base-16", "image", 197, None),  # 14 x 14 patches of 16 pixels and the class token
        ("deit-base-16", "image", 198, None),  # and a distillation token
        ("clip-vit-large-14", "image", 257, None),
        ("siglip-so400m-14", "image", 729, None),
        ("llava-1.5-7b", "image", 577, 576),
        ("gemma-3-4b", "image", 4096, 256),
        ("paligemma-3b", "image", 256, 256),
        ("llama-3.2-11b-vision", "image", 4 * 1025, None),
        ("llama-4-scout", "image", 577, 144),
        ("llama-4-maverick", "image", 577, 144),
        ("smolvlm-2.2b", "image", 729, 81),
        ("internvl3-8b", "image", 1025, 256),
        ("qwen2.5-vl-7b", "image", None, None),  # any image shape: the caller says how many patches
        ("whisper-large-v3", "audio", 1500, None),  # 30 s at 50 positions a second
        ("wav2vec2-base", "audio", None, None),  # as long as the sound: one frame for 20 ms
        ("t5-base", "text", None, None),
    ],
)
def test_positions_of_one_input(name: str, kind: str, length: int | None, tokens: int | None) -> None:
    encoder = load_model(name).encoders[0]
    assert (encoder.kind, encoder.length, encoder.tokens) == (kind, length, tokens)


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("bert-base", 0),  # nothing is generated
        ("vit-base-16", 0),
        ("t5-base", 12 * 2 * 768 * 2),  # the decoder's own attention only
        ("whisper-large-v3", 32 * 2 * 1280 * 2),
        ("llava-1.5-7b", 32 * 2 * 4096 * 2),
        ("llama-3.2-11b-vision", 32 * 2 * 8 * 128 * 2),  # the 8 cross-attention layers remember the image instead
        ("gemma-3-27b", 62 * 2 * 16 * 128 * 2),
    ],
)
def test_cache_of_one_token(name: str, bytes_per_token: int) -> None:
    assert kv_bytes_per_token(load_model(name), 2) == bytes_per_token
