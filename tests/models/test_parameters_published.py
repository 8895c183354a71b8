"""Parameter counts of the shipped models against published figures, and the accounting identities."""

from __future__ import annotations

import csv
import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.huggingface import load_model, model_names
from jaxperf.models.config import (
    Attention,
    CompressedAttention,
    Encoder,
    GatedDelta,
    Indexer,
    KimiDelta,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mla,
    Mlp,
    ModelConfig,
    Moe,
    ShortConv,
    Table,
)
from jaxperf.models.parameters import (
    active_parameter_count,
    kv_bytes_per_token,
    mixer_parameters,
    parameter_breakdown,
    parameter_count,
)

HERE = Path(__file__).parent
ELSEWHERE = ("parameter_counts.csv", "encoder_parameter_counts.csv")  # counted by their Hugging Face classes
WITHOUT_A_CLASS = {"arctic-480b", "deepseek-moe-16b", "grok-1", "hunyuan-large", "jais-13b"}  # test_decoder_parameters

# Totals to the last parameter: what the safetensors index on the Hugging Face model page adds up to, or (GPT-2, OPT,
# tied Qwen models, whose files may store the shared table twice) what Hugging Face reports for the loaded model.
EXACT = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "codellama-34b": 33_743_970_304,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "deepseek-r1-distill-llama-8b": 8_030_261_248,
    "deepseek-r1-distill-llama-70b": 70_553_706_496,
    "deepseek-r1-distill-qwen-32b": 32_763_876_352,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mistral-large-123b": 122_610_069_504,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
}

# Totals of checkpoints that store the shared token table a second time as an output head (safetensors index).
STORED_TWICE = {"qwen3-0.6b": 751_632_384, "qwen3-1.7b": 2_031_739_904}

# Rounded totals: name -> (billions, tolerance, source). Within 1 % unless the source rounds more.
ROUNDED = {
    "opt-13b": (13.0, 0.012, "arXiv:2205.01068, table 1: 13B, the same shape as GPT-3 13B below"),
    "opt-30b": (30.0, 0.01, "arXiv:2205.01068, table 1: 30B"),
    "opt-66b": (66.0, 0.01, "arXiv:2205.01068, table 1: 66B"),
    "opt-175b": (175.0, 0.01, "arXiv:2205.01068, table 1: 175B"),
    "gpt3-xl": (1.320, 0.01, "arXiv:2005.14165, table D.1"),
    "gpt3-2.7b": (2.650, 0.01, "arXiv:2005.14165, table D.1"),
    "gpt3-6.7b": (6.660, 0.01, "arXiv:2005.14165, table D.1"),
    "gpt3-13b": (12.850, 0.01, "arXiv:2005.14165, table D.1"),
    "gpt3-175b": (174.600, 0.001, "arXiv:2005.14165, table D.1"),
}

ACTIVE = {
    "mixtral-8x7b": (12.9, "mistral.ai/news/mixtral-of-experts: 12.9B of 46.7B"),
    "mixtral-8x22b": (39.0, "mistral.ai/news/mixtral-8x22b: 39B of 141B"),
    "qwen1.5-moe-a2.7b": (2.7, "qwenlm.github.io/blog/qwen-moe: 2.7B of 14.3B"),
    "qwen2-57b-a14b": (14.2, "arXiv:2407.10671, section 2.2.2: 14B active; model card: 14.2B"),
    "qwen3-30b-a3b": (3.3, "model card of Qwen/Qwen3-30B-A3B: 30.5B total, 3.3B activated"),
    "qwen3-235b-a22b": (22.0, "model card of Qwen/Qwen3-235B-A22B: 235B total, 22B activated"),
}

WITHOUT_TABLES = {  # "number of parameters (non-embedding)" of the Qwen3 model cards, billions
    "qwen3-0.6b": 0.44,
    "qwen3-1.7b": 1.4,
    "qwen3-4b": 3.6,
    "qwen3-8b": 6.95,
    "qwen3-14b": 13.2,
    "qwen3-32b": 31.2,
    "qwen3-30b-a3b": 29.9,
    "qwen3-235b-a22b": 234.0,
}

# Bytes at two bytes per element: 2 (K and V) x layers x KV heads x head width x 2.
KV_BYTES = {
    "llama-2-7b": 524_288,
    "llama-2-13b": 819_200,
    "llama-2-70b": 327_680,
    "llama-3-8b": 131_072,
    "llama-3-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "mixtral-8x7b": 131_072,
    "qwen2.5-7b": 57_344,
    "qwen3-30b-a3b": 98_304,
    "gpt3-175b": 4_718_592,
    "opt-13b": 819_200,
}


def test_every_shipped_model_has_a_published_or_a_counted_total() -> None:
    known = set(EXACT) | set(STORED_TWICE) | set(ROUNDED) | WITHOUT_A_CLASS
    for name in ELSEWHERE:
        with (HERE / name).open(newline="", encoding="utf-8") as file:
            known |= {row["model"] for row in csv.DictReader(file)}
    assert known == set(model_names())


@pytest.mark.parametrize("name", EXACT)
def test_total_is_exactly_the_published_one(name: str) -> None:
    assert parameter_count(load_model(name)) == EXACT[name]


@pytest.mark.parametrize("name", STORED_TWICE)
def test_total_plus_the_copy_of_the_table_is_exactly_the_stored_one(name: str) -> None:
    config = load_model(name)
    assert config.tied_embeddings
    assert parameter_count(config) + parameter_breakdown(config)["embedding"] == STORED_TWICE[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_total_is_near_the_published_rounded_one(name: str) -> None:
    billions, tolerance, _source = ROUNDED[name]
    assert parameter_count(load_model(name)) == pytest.approx(billions * 1e9, rel=tolerance)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_near_the_published_ones(name: str) -> None:
    billions, _source = ACTIVE[name]
    tolerance = max(0.01, 0.06 / billions)  # the sources round to 0.1 billion
    assert active_parameter_count(load_model(name)) == pytest.approx(billions * 1e9, rel=tolerance)


@pytest.mark.parametrize("name", WITHOUT_TABLES)
def test_parameters_without_the_tables_match_the_model_cards(name: str) -> None:
    parts = parameter_breakdown(load_model(name))
    without = sum(parts.values()) - parts["embedding"] - parts["output_head"]
    assert without == pytest.approx(WITHOUT_TABLES[name] * 1e9, rel=0.01)


@pytest.mark.parametrize("name", KV_BYTES)
def test_kv_bytes_per_token_golden(name: str) -> None:
    config = load_model(name)
    assert kv_bytes_per_token(config, 2) == KV_BYTES[name]
    assert kv_bytes_per_token(config, 0.5) * 4 == KV_BYTES[name]


@pytest.mark.parametrize("name", model_names())
def test_breakdown_sums_and_dense_models_use_everything(name: str) -> None:
    config = load_model(name)
    parts = parameter_breakdown(config)
    assert sum(parts.values()) == parameter_count(config)
    assert all(type(count) is int and count >= 0 for count in parts.values())
    layers = [*config.layers, *(layer for encoder in config.encoders for layer in encoder.layers)]
    dense = not any(isinstance(layer.ffn, Moe) for layer in layers)
    assert dense == (active_parameter_count(config) == parameter_count(config))


def test_every_term_by_hand() -> None:
    """A model small enough to count on paper, with each optional part present once."""
    plain = Layer(Attention(2, 1, 4, None, False, True, True, True), Mlp(5, gated=True, bias=True), 4, True)
    sparse = Layer(Attention(2, 1, 4), Moe(3, 2, 7, gated=False, shared_intermediate=6, shared_gate=True))
    latent = Layer(
        Mamba2(2, 3, 1, 5, 4),
        Moe(3, 2, 7, bias=True, router_bias=True, correction_bias=True, latent=4),
        cross=Attention(1, 1, 4, kv_input=6),
        beside=ShortConv(10, 3),
        norm_weight=False,
        other_parameters=17,
    )
    tower = Encoder("v", "image", 4, (Layer(None, Mlp(3)),), None, None, 7, 8, 9, (Table("t", 2, 4),), 2, True, 20, 21)
    config = ModelConfig(
        "x",
        "y",
        10,
        11,
        (plain, sparse, latent, dataclasses.replace(latent, shared=True)),
        False,
        12,
        9,
        True,
        True,
        None,
        "fp32",
        encoders=(tower,),
        mtp_layers=(plain,),
        tables=(Table("types", 2, 10),),
        embedding_norm=True,
        head_bias=True,
        other_parameters=13,
    )
    assert parameter_breakdown(config) == {
        "embedding": 11 * 9,
        "embedding_projection": 2 * 10 * 9,
        "positions": 12 * 10,
        "tables": 2 * 10,
        "attention": 2 * (10 * 8 + 2 * 10 * 4 + 8 * 10) + (8 + 4 + 4 + 10) + 2 * 4 + (2 * 10 * 4 + 2 * 6 * 4),
        "recurrent": 10 * (2 * 6 + 10 + 2) + 6 * 10 + 16 * 5 + 3 * 2 + 6 + 4 * 10 * 10 + 3 * 10,
        "mlp": 3 * 10 * 5 + 5 + 5 + 10,
        "router": 3 * 10 + 3 * (10 + 2),
        "experts": 3 * 2 * 10 * 7 + 3 * (3 * 4 * 7 + 7 + 7 + 4),
        "shared_experts": 2 * 10 * 6 + 10 + 2 * 10 * 4,
        "norms": 4 * 20 + 2 * 10 + 20 + 20,
        "output_head": 11 * 9 + 11,
        "encoders": 7 * 4 + 8 * 4 + 9 + 2 * 4 + (3 * 4 * 3 + 2 * 4) + 2 * 8 + 20 + 21,
        "other": 13 + 17,
    }
    assert parameter_count(config) - active_parameter_count(config) == 2 * 10 * 7 + (3 * 4 * 7 + 7 + 7 + 4)
    assert kv_bytes_per_token(config, 1) == 2 * 2 * 4


@pytest.mark.parametrize(
    ("mixer", "expected"),
    [
        (Attention(4, 2, 6, value_dim=5), 10 * (4 * 6 + 2 * 6 + 2 * 5) + 4 * 5 * 10),
        (Attention(4, 2, 6, output_gate=True, qkv_bias=True), 10 * (2 * 24 + 2 * 12) + 24 * 10 + 24 + 2 * 12),
        (Attention(4, 2, 6, output_gate=True, gate_bias=True), 10 * (2 * 24 + 2 * 12) + 24 * 10 + 24),
        (Attention(4, 2, 6, sinks=True, relative_buckets=32), 10 * 48 + 240 + 4 + 32 * 4),
        (Attention(4, 2, 6, keys_as_values=True, qkv_bias=True), 10 * (24 + 12) + 240 + 24 + 12),
        (Attention(4, 1, 6, q_rank=7, head_gate=True), 7 * (10 + 24) + 10 * (12 + 4) + 24 * 10 + 7),
        (Attention(4, 2, 6, qk_norm_wide=True), 10 * 48 + 240 + 24 + 12),
        (Attention(4, 2, 6, qk_norm=True, qk_norm_bias=True), 10 * 48 + 240 + 2 * 12),
        (Attention(4, 2, 6, qkv_bias=True, key_bias=False), 10 * 48 + 240 + 24 + 12),
        (Attention(4, 2, 6, qk_norm=True, qkv_bias=True, shared_kv=True), 10 * 24 + 240 + 6 + 24),
        (Mla(4, None, 8, 6, 2, 5), 10 * 4 * 8 + 10 * (8 + 2) + 8 * 4 * (6 + 5) + 4 * 5 * 10 + 8),
        (Mla(4, 7, 8, 6, 2, 5, bias=True), 7 * (10 + 32) + 100 + 352 + 200 + 8 + 7 + (7 + 8 + 2 + 10)),
        (
            Mla(4, 7, 8, 6, 2, 5, indexer=Indexer(3, 4, 64)),
            7 * (10 + 32) + 100 + 352 + 200 + 8 + 7 + 7 * 12 + 10 * 4 + 10 * 3 + 2 * 4,
        ),
        (Mla(4, 7, 8, 6, 2, 5, indexer=Indexer(3, 4, 64, shared=True)), 7 * (10 + 32) + 100 + 352 + 200 + 8 + 7),
        (
            CompressedAttention(4, 6, 2, 7, 128, 2, 5, 128),  # two matrices for the compressed key, positions, a norm
            7 * (10 + 24) + 10 * (6 + 2 * 6) + 24 * 5 + 2 * 5 * 10 + (4 + 7 + 6) + (128 * 6 + 6),
        ),
        (
            CompressedAttention(4, 6, 2, 7, 128, 2, 5, 4, Indexer(3, 8, 64)),  # blocks overlap: twice as wide
            7 * (10 + 24)
            + 10 * (6 + 4 * 6)
            + 24 * 5
            + 2 * 5 * 10
            + (4 + 7 + 6)
            + (4 * 12 + 6)
            + 10 * (4 * 8 + 3)
            + 7 * 24
            + (4 * 16 + 8),
        ),
        (Mamba1(20, 16, 3, 4), 10 * 40 + 20 * (3 + 32) + 3 * 20 + 20 + 20 * 16 + 20 + 20 * 4 + 20 + 20 * 10),
        (
            Mamba1(20, 16, 3, 4, False, True, True),
            10 * 40 + 20 * 35 + 60 + 20 + 320 + 20 + 80 + 200 + (40 + 10) + (3 + 32),
        ),
        (GatedDelta(2, 4, 3, 5, 4), 10 * (2 * 6 + 2 * 20 + 2 * 4) + 20 * 10 + (12 + 20) * 4 + 2 * 4 + 5),
        (KimiDelta(3, 4, 2), 4 * 10 * 12 + 10 * 3 + 2 * (10 * 4 + 4 * 12) + 3 * 12 * 2 + 3 + 12 + 4),
        (KimiDelta(3, 4, 2, full=True), 6 * 10 * 12 + 10 * 3 + 3 * 12 * 2 + 3 + 12 + 4),
        (Mla(4, None, 8, 6, 2, 5, head_gate=True), 10 * 4 * 8 + 10 * (8 + 2) + 8 * 4 * (6 + 5) + 4 * 6 * 10 + 8),
        (LightningAttention(3, 4), 5 * 10 * 12 + 12),
        (LightningAttention(3, 4, rotary=True, qk_norm=True), 5 * 10 * 12 + 12 + 2 * 4),
        (ShortConv(10, 3, bias=True), 10 * 30 + 10 * 10 + 30 + 10 + 30 + 10),
    ],
)
def test_mixers_by_hand(mixer: Mixer, expected: int) -> None:
    assert mixer_parameters(mixer, 10) == expected


@pytest.mark.parametrize("itemsize", [0, -1, math.nan, math.inf, "2", True, None])
def test_bad_itemsize_is_refused(itemsize: object) -> None:
    with pytest.raises(InputError, match="itemsize is"):
        kv_bytes_per_token(load_model("gpt2"), itemsize)  # type: ignore[arg-type]


@given(st.fractions(min_value=Fraction(1, 16), max_value=8), st.integers(1, 50), st.integers(1, 8))
def test_kv_bytes_round_up_once(itemsize: Fraction, layers: int, heads: int) -> None:
    base = load_model("gpt2")
    layer = dataclasses.replace(base.layers[0], mixer=Attention(heads, heads, 3))
    config = dataclasses.replace(base, layers=(layer,) * layers)
    assert kv_bytes_per_token(config, itemsize) == math.ceil(2 * layers * heads * 3 * itemsize)
