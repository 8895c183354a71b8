"""Decoder families beyond the first: which layer is what, options that change the shapes, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float
from jaxperf.io.families import FAMILIES, MODEL_TYPES, REFUSED
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.models.blocks.latent import latent_mixer
from jaxperf.models.blocks.phase import Decode
from jaxperf.models.config import (
    Attention,
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
)
from jaxperf.models.mixer_parameters import mixer_matrices
from jaxperf.models.parameters import parameter_count
from tests.devices import H100, deployment

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NONE_SHARED = SIZES | {"num_kv_shared_layers": 0}
INDEXED = ("query_projection", "key_projection", "key_write")
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}


def read(architecture: str, *parts: dict[str, Any], **changes: Any) -> ModelConfig:
    fields: dict[str, Any] = {"architectures": [architecture]}
    for part in (*parts, changes):
        fields |= part
    return read_config(fields)


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


def refusal(architecture: str, *parts: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(architecture, *parts, **changes)
    return str(caught.value)


LETTERS: dict[type, str] = {
    Mla: "L",
    Mamba1: "m",
    Mamba2: "M",
    GatedDelta: "D",
    KimiDelta: "K",
    LightningAttention: "l",
    ShortConv: "c",
}


def letter(mixer: Mixer | None) -> str:
    """One letter for each kind of mixer; attention: A all, W windowed, C chunked, R keys and values reused."""
    if not isinstance(mixer, Attention):
        return "-" if mixer is None else LETTERS[type(mixer)]
    if mixer.shared_kv:
        return "r" if mixer.window else "R"
    return "C" if mixer.chunk else "W" if mixer.window else "A"


def mixers(name: str) -> str:
    return "".join(letter(layer.mixer) for layer in load_model(name).layers)


def blocks(name: str) -> str:
    kinds = {Mlp: "d", Moe: "e", type(None): "-"}
    return "".join(kinds[type(layer.ffn)] for layer in load_model(name).layers)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma-2-2b", "WA" * 13),
        ("gemma-3-1b", ("WWWWWA" * 5)[:26]),
        ("gemma-3n-e4b-text", "WWWWA" * 4 + "rrrrR" * 3),
        ("gpt-oss-20b", "WA" * 12),
        ("gpt-neo-125m", "AW" * 6),
        ("command-r7b", "WWWA" * 8),
        ("olmo-3-7b", "WWWA" * 8),
        ("exaone-4.0-32b", "WWWA" * 16),
        ("exaone-4.0-1.2b", "A" * 30),
        ("llama-4-maverick-text", "CCCA" * 12),
        ("smollm3-3b", "A" * 36),
        ("hunyuan-large", "AR" * 32),
        ("deepseek-v3", "L" * 61),
        ("jamba-v0.1", "mmmmAmmm" * 4),
        ("bamba-9b", "M" * 9 + "A" + "M" * 8 + "A" + "M" * 8 + "A" + "M" * 4),
        ("granite-4.0-h-small", "MMMMMA" + "MMMMMMMMMA" * 3 + "MMMM"),
        ("nemotron-h-8b", "M-M-M-M" + "A-M-M-M-M-M" * 4 + "-"),
        ("falcon-h1-7b", "A" * 44),
        ("qwen3-next-80b-a3b", "DDDA" * 12),
        ("kimi-linear-48b-a3b", "KKKL" * 6 + "KKL"),
        ("minimax-text-01", "lllllllA" * 10),
        ("lfm2-1.2b", "ccAccAccAcAcAcAc"),
        ("mamba-2.8b", "m" * 64),
        ("mamba-codestral-7b", "M" * 64),
        ("phi-3-mini-4k", "W" * 32),
    ],
)
def test_the_mixer_of_each_layer(name: str, expected: str) -> None:
    assert mixers(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deepseek-v3", "ddd" + "e" * 58),
        ("deepseek-v2-lite", "d" + "e" * 26),
        ("glm-4.5", "ddd" + "e" * 89),
        ("kimi-linear-48b-a3b", "d" + "e" * 26),
        ("ernie-4.5-21b-a3b", "d" + "e" * 27),
        ("llama-4-maverick-text", "de" * 24),
        ("jamba-v0.1", "de" * 16),
        ("arctic-480b", "e" * 35),
        ("dbrx", "e" * 40),
        ("lfm2-8b-a1b", "dd" + "e" * 22),
        ("granite-4.0-h-micro", "d" * 40),
        ("nemotron-3-nano-30b-a3b", "-e-e--e-e-e--e-e-e--e-e-e--e-e-e--e-e-e-e--e-e-e-e-e"),
        ("mamba-130m", "-" * 24),
    ],
)
def test_the_feed_forward_block_of_each_layer(name: str, expected: str) -> None:
    assert blocks(name) == expected


@pytest.mark.parametrize(
    ("name", "rotary"),
    [
        ("smollm3-3b", "1110" * 9),
        ("command-r7b", "1110" * 8),
        ("exaone-4.0-32b", "1110" * 16),
        ("exaone-4.0-1.2b", "1" * 30),
        ("llama-4-maverick-text", "1110" * 12),
        ("bloom-560m", "0" * 24),
        ("mpt-7b", "0" * 32),
        ("baichuan2-7b", "1" * 32),
        ("baichuan2-13b", "0" * 40),
    ],
)
def test_the_layers_with_rotary_positions(name: str, rotary: str) -> None:
    layers = load_model(name).layers
    assert "".join(str(int(layer.mixer.rotary)) for layer in layers if isinstance(layer.mixer, Attention)) == rotary
    alibi = name in ("bloom-560m", "mpt-7b", "baichuan2-13b")
    assert all(layer.mixer.alibi == alibi for layer in layers if isinstance(layer.mixer, Attention))


@pytest.mark.parametrize(
    ("name", "parallel", "norms", "norm_bias"),
    [
        ("gpt-j-6b", True, 1, True),
        ("pythia-1b", True, 2, True),
        ("falcon-7b", True, 1, True),
        ("falcon-40b", True, 2, True),
        ("falcon2-11b", True, 1, True),
        ("phi-2", True, 1, True),
        ("command-r-plus", True, 1, False),
        ("stablelm-2-12b", True, 1, True),
        ("stablelm-2-1.6b", False, 2, True),
        ("gemma-2-9b", False, 4, False),
        ("grok-1", False, 4, False),
        ("glm-4-9b-0414", False, 4, False),
        ("olmo-2-7b", False, 2, False),
        ("arctic-480b", False, 3, False),
        ("nemotron-h-8b", False, 1, False),
    ],
)
def test_norms_and_parallel_blocks(name: str, parallel: bool, norms: int, norm_bias: bool) -> None:
    layer = load_model(name).layers[0]
    assert (layer.parallel, layer.norms, layer.norm_bias) == (parallel, norms, norm_bias)


def test_what_only_some_families_have() -> None:
    assert not load_model("olmo-7b").layers[0].norm_weight and not load_model("olmo-7b").norm_weight
    assert load_model("bloom-560m").embedding_norm and load_model("gpt-j-6b").head_bias
    assert load_model("gpt-oss-20b").layers[0].mixer.sinks
    assert load_model("falcon-h1-7b").layers[0].beside == Mamba2(24, 128, 1, 256, 4, gated_norm=False)
    assert load_model("deepseek-v3.2").layers[0].mixer.indexer == Indexer(64, 128, 2048)
    assert len(load_model("deepseek-v3").mtp_layers) == len(load_model("glm-4.5").mtp_layers) == 1
    assert not load_model("jamba-v0.1").layers[4].mixer.rotary
    assert not load_model("kimi-linear-48b-a3b").layers[3].mixer.rotary


# --- options ----------------------------------------------------------------------------------------------------------


def test_internlm_biases() -> None:
    both = read("InternLMForCausalLM", SIZES, bias=True).layers[0].mixer
    inputs = read("InternLM3ForCausalLM", SIZES, bias=False, qkv_bias=True).layers[0].mixer
    assert (both.qkv_bias, both.output_bias, inputs.qkv_bias, inputs.output_bias) == (True, True, True, False)


def test_qwen1_halves_the_width_of_the_gate() -> None:
    fields = without(SIZES, "num_key_value_heads", "head_dim")
    assert read("QWenLMHeadModel", fields).layers[0] == Layer(Attention(4, 4, 16, qkv_bias=True), Mlp(48))
    assert "must be even" in refusal("QWenLMHeadModel", fields, intermediate_size=97)


def test_chatglm_two_and_three_only() -> None:
    fields = without(SIZES, "num_key_value_heads", "head_dim") | {"multi_query_group_num": 2, "kv_channels": 16}
    config = read("ChatGLMModel", fields, multi_query_attention=True, add_qkv_bias=True)
    assert config.layers[0].mixer == Attention(4, 2, 16, qkv_bias=True)
    assert "only ChatGLM 2, 3 and GLM 4" in refusal("ChatGLMModel", fields)


def test_the_first_falcon_40b_says_its_groups_by_another_name() -> None:
    fields = without(SIZES, "num_key_value_heads", "head_dim", "intermediate_size")
    config = read("RWForCausalLM", fields, n_head_kv=2, parallel_attn=True, bias=False)
    assert config.layers[0] == Layer(Attention(4, 2, 16), Mlp(256, False), 2, True, parallel=True)
    multi_query = read("RWForCausalLM", fields, multi_query=True, parallel_attn=True, bias=False)
    assert multi_query.layers[0].mixer.kv_heads == 1 and multi_query.layers[0].norms == 1


def test_state_space_rank_and_heads() -> None:
    fields = without(SIZES, "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size")
    automatic = read("MambaForCausalLM", fields, time_step_rank="auto", state_size=16, conv_kernel=4, expand=2)
    assert automatic.layers[0] == Layer(Mamba1(128, 16, 4, 4), None, 1)
    two = read("Mamba2ForCausalLM", fields, num_heads=8, head_dim=16, n_groups=2, state_size=32, expand=2)
    assert two.layers[0].mixer == Mamba2(8, 16, 2, 32, 4)
    assert "conv_kernel is absent; 4, the default of Mamba2ForCausalLM, was used." in two.assumptions
    assert "make them agree" in refusal("Mamba2ForCausalLM", fields, num_heads=9, head_dim=16)
    assert "not a multiple of the 3 groups" in refusal(
        "Mamba2ForCausalLM", fields, num_heads=8, head_dim=16, n_groups=3
    )


def test_nemotron_patterns() -> None:
    fields = without(SIZES, "num_hidden_layers") | {
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 32,
        "conv_kernel": 4,
    }
    config = read("NemotronHForCausalLM", fields, hybrid_override_pattern="M-*")
    mamba, plain, attention = config.layers
    assert mamba == Layer(Mamba2(8, 16, 2, 32, 4), None, 1) and plain == Layer(None, Mlp(96, False), 1)
    assert attention == Layer(Attention(4, 2, 16, rotary=False), None, 1)
    words = read("NemotronHForCausalLM", fields, layers_block_type=["mamba", "mlp", "attention"])
    assert words.layers == config.layers
    experts = EXPERTS | {"moe_shared_expert_intermediate_size": 48, "n_shared_experts": 1, "moe_latent_size": 24}
    sparse = read("NemotronHForCausalLM", fields, experts, hybrid_override_pattern="ME")
    assert sparse.layers[1].ffn == Moe(8, 2, 32, False, 48, correction_bias=True, latent=24)
    assert 'contains "X"' in refusal("NemotronHForCausalLM", fields, hybrid_override_pattern="MX")
    assert "is missing" in refusal("NemotronHForCausalLM", fields)
    assert "make them agree" in refusal("NemotronHForCausalLM", fields, hybrid_override_pattern="M", num_layers=3)


def test_dense_and_sparse_layers_of_deepseek() -> None:
    fields = without(SIZES, "head_dim") | LATENT | EXPERTS | {"n_shared_experts": 2}
    config = read("DeepseekV3ForCausalLM", fields, first_k_dense_replace=1, moe_layer_freq=2)
    moe = Moe(8, 2, 32, shared_intermediate=64, correction_bias=True)
    assert [layer.ffn for layer in config.layers] == [Mlp(96), Mlp(96), moe, Mlp(96)]
    assert config.layers[0].mixer == Mla(4, 24, 16, 8, 4, 8)
    listed = read("DeepseekV3ForCausalLM", fields, mlp_layer_types=["dense", "sparse", "sparse", "sparse"])
    assert [layer.ffn for layer in listed.layers] == [Mlp(96), moe, moe, moe]
    assert "neither dense nor sparse" in refusal("DeepseekV3ForCausalLM", fields, mlp_layer_types=["odd"] * 4)
    assert "required field first_k_dense_replace" in refusal("DeepseekV3ForCausalLM", fields)
    predicted = read("DeepseekV3ForCausalLM", fields, first_k_dense_replace=1, num_nextn_predict_layers=2)
    assert predicted.mtp_layers == (predicted.layers[-1],) * 2
    assert "left out of the parameter counts" in " ".join(predicted.assumptions)


def test_the_groups_that_a_token_keeps_to() -> None:
    fields = without(SIZES, "head_dim") | LATENT | EXPERTS | {"first_k_dense_replace": 0}  # 2 of 8 experts

    def groups(**changes: Any) -> tuple[int, int]:
        ffn = read("DeepseekV3ForCausalLM", fields, **changes).layers[0].ffn
        assert isinstance(ffn, Moe)
        return ffn.groups, ffn.groups_per_token

    assert groups() == groups(n_group=None, topk_group=None) == (1, 1)
    assert groups(n_group=4, topk_group=2) == groups(num_expert_group=4, topk_group=2) == (4, 2)
    assert groups(n_group=4, topk_group=2, topk_method="greedy") == (1, 1)
    half = read("DeepseekV3ForCausalLM", fields, n_group=4)
    assert half.layers[0].ffn == Moe(8, 2, 32, correction_bias=True)
    assert "only one is given" in " ".join(half.assumptions)
    for changes, said in (
        ({"n_group": 3, "topk_group": 1}, "n_group is 3, which does not divide the 8 experts"),
        ({"n_group": 4, "topk_group": 5}, "topk_group is 5 and n_group is 4; a token cannot use more than there are"),
        ({"n_group": 8, "topk_group": 1}, "a token's groups have 1 experts, fewer than the 2 that it visits"),
    ):
        assert said in refusal("DeepseekV3ForCausalLM", fields, **changes)
    shipped = {name: load_model(name).layers[-1].ffn for name in ("deepseek-v3", "deepseek-v2", "kimi-k2")}
    assert {name: (ffn.groups, ffn.groups_per_token) for name, ffn in shipped.items() if isinstance(ffn, Moe)} == {
        "deepseek-v3": (8, 4),
        "deepseek-v2": (8, 3),
        "kimi-k2": (1, 1),
    }


def test_glm5_layers_may_reuse_the_tokens_chosen_before() -> None:
    fields = without(SIZES, "head_dim") | LATENT | EXPERTS | {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 64}
    kinds = ["full", "shared", "full", "shared"]
    config = read("GlmMoeDsaForCausalLM", fields, first_k_dense_replace=4, indexer_types=kinds)
    indexers = [layer.mixer.indexer for layer in config.layers if isinstance(layer.mixer, Mla)]
    assert indexers == [Indexer(2, 8, 64, shared=kind == "shared") for kind in kinds]
    own, shared = (latent_mixer(layer.mixer) for layer in config.layers[:2])
    at, hidden, phase = deployment(H100), as_float(64), Decode(as_float(2), as_float(100))
    choosing = set(own.kernels(at, hidden, phase)) - set(shared.kernels(at, hidden, phase))
    assert choosing == {"indexer", "top_k", *(f"indexer_{each}" for each in INDEXED)}
    assert float(shared.cached_elements(at.layout, as_float(1))) == 16 + 4 == float(own.cached_width)
    assert float(own.other_elements(hidden, at.layout)) > float(shared.other_elements(hidden, at.layout)) == 0.0
    assert "full for the first" in refusal("GlmMoeDsaForCausalLM", fields, indexer_types=["shared"] * 4)
    assert "must have full or shared" in refusal("GlmMoeDsaForCausalLM", fields, indexer_types=["odd"] * 4)
    for schedule in ({"index_topk_freq": 2, "index_skip_topk_offset": 1}, {"index_topk_pattern": "FSFS"}):
        assert read("GlmMoeDsaForCausalLM", fields, first_k_dense_replace=4, **schedule).layers == config.layers
    assert "must have full or shared" in refusal("GlmMoeDsaForCausalLM", fields, index_topk_pattern="FS")


@pytest.mark.parametrize(
    ("architecture", "field", "biases"),
    [
        ("CwmForCausalLM", "mlp_bias", 2 * 96 + 64),
        ("BambaForCausalLM", "mlp_bias", 2 * 96 + 64),
        ("SolarOpenForCausalLM", "attention_bias", 4 * 16 + 2 * 2 * 16),
        ("HYV3ForCausalLM", "attention_bias", 4 * 16 + 2 * 2 * 16 + 64),
        ("Lfm3ForCausalLM", "attention_bias", 4 * 16 + 2 * 2 * 16 + 64),
    ],
)
def test_biases_of_blocks_are_counted(architecture: str, field: str, biases: int) -> None:
    kinds = {"layer_types": ["full_attention"] * 4, "mamba_n_heads": 8, "mamba_d_state": 16, "mamba_d_conv": 4}
    fields = SIZES | EXPERTS | kinds | {"attn_layer_indices": [0], "mamba_n_groups": 1, "mamba_d_head": 16}
    if architecture == "SolarOpenForCausalLM":
        fields = without(fields, "layer_types")
    with_them, plain = (parameter_count(read(architecture, fields, {field: given})) for given in (True, False))
    assert with_them - plain == 4 * biases


def test_mistral_large_4_makes_the_indexer_of_what_the_layer_reads() -> None:
    """No compressed queries; every fourth layer has no positions, and as many elements of the other kind."""
    fields = without(SIZES, "head_dim") | LATENT | EXPERTS | {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 64}
    config = read("MistralLarge4ForCausalLM", fields, first_k_dense_replace=1)
    first, last = (config.layers[index].mixer for index in (0, 3))
    assert isinstance(first, Mla) and isinstance(last, Mla)
    assert first.q_rank is None and (last.nope_dim, last.rope_dim) == (first.nope_dim + first.rope_dim, 0)
    plain = dataclasses.replace(first, indexer=None)
    hidden = fields["hidden_size"]
    assert mixer_matrices(first, hidden) - mixer_matrices(plain, hidden) == hidden * (2 * 8 + 8 + 2)
    stored, without_one = (
        latent_mixer(each).other_elements(as_float(hidden), deployment(H100).layout) for each in (first, plain)
    )
    assert float(stored - without_one) == hidden * (2 * 8 + 8 + 2)
    assert "only caches of their own" in refusal("MistralLarge4ForCausalLM", fields, kv_source_layers=[0, 0, 2, 3])


def test_hunyuan_lists_of_the_same_number() -> None:
    fields = SIZES | {"num_experts": 8, "moe_topk": [2] * 4, "moe_intermediate_size": [32] * 4}
    config = read("HunYuanMoEV1ForCausalLM", fields, num_shared_expert=[1] * 4)
    assert config.layers[0].ffn == Moe(8, 2, 32, shared_intermediate=32)
    mixed = fields | {"moe_topk": [2, 2, 2, 1]}
    assert "only the same value for every layer" in refusal("HunYuanMoEV1ForCausalLM", mixed)


def test_lfm2_width_is_two_thirds_rounded_up() -> None:
    fields = SIZES | {"layer_types": ["conv", "conv", "full_attention", "conv"], "intermediate_size": 1000}
    options = {"block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "conv_L_cache": 3}
    adjusted = read("Lfm2ForCausalLM", fields, options, block_auto_adjust_ff_dim=True)
    assert adjusted.layers[0] == Layer(ShortConv(64, 3), Mlp(768))
    assert read("Lfm2ForCausalLM", fields, options, block_auto_adjust_ff_dim=False).layers[0].ffn == Mlp(1000)
    assert "one must say which" in refusal("Lfm2ForCausalLM", SIZES, options)


def test_dbrx_and_mpt_read_their_inner_objects() -> None:
    sizes = {"d_model": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 10, "max_seq_len": 8, "torch_dtype": "bfloat16"}
    inner = {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2}
    config = read("DbrxForCausalLM", sizes, attn_config={"kv_n_heads": 2}, ffn_config=inner)
    assert config.layers[0] == Layer(Attention(4, 2, 16), Moe(4, 2, 96))
    assert "attn_config is 3; it must be an object" in refusal(
        "DbrxForCausalLM", sizes, attn_config=3, ffn_config=inner
    )
    assert "only MPT models with ALiBi" in refusal("MptForCausalLM", sizes, attn_config={"alibi": False})
    ratio = refusal("MptForCausalLM", sizes, attn_config={"alibi": True}, no_bias=True, expansion_ratio="4")
    assert "must be a whole number" in ratio


def test_gemma4_layers() -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    fields = SIZES | {"layer_types": kinds, "sliding_window": 8, "global_head_dim": 32, "attention_k_eq_v": True}
    fields |= {"num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 2}
    config = read("Gemma4ForCausalLM", fields, use_double_wide_mlp=True)
    near, far = Attention(4, 2, 16, 8, qk_norm=True), Attention(4, 1, 32, qk_norm=True, keys_as_values=True)
    assert [layer.mixer for layer in config.layers[:2]] == [near, far]
    assert [layer.mixer.shared_kv for layer in config.layers if isinstance(layer.mixer, Attention)] == [0, 0, 1, 1]
    assert [layer.ffn for layer in config.layers] == [Mlp(96), Mlp(96), Mlp(192), Mlp(192)]
    again = without(fields, "global_head_dim", "num_global_key_value_heads")
    sizes = {"head_dim": 32, "num_key_value_heads": 1}
    saved = read("Gemma4ForCausalLM", again, use_double_wide_mlp=True, per_layer_config={"1": sizes, "3": sizes})
    assert saved.layers == config.layers
    mixed = {"1": sizes, "3": {"head_dim": 64}}
    assert "layers that differ" in refusal("Gemma4ForCausalLM", again, per_layer_config=mixed)
    experts = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 32}
    sparse = read("Gemma4ForCausalLM", fields, experts).layers[0]
    assert (sparse.ffn, sparse.norms) == (Moe(8, 2, 32, shared_intermediate=96), 7)


def test_qwen3_5_and_olmo_hybrids() -> None:
    dense = read("Qwen3_5ForCausalLM", SIZES, linear_num_key_heads=2, linear_num_value_heads=4)
    assert [letter(layer.mixer) for layer in dense.layers] == ["D", "D", "D", "A"]
    assert dense.layers[3].mixer == Attention(4, 2, 16, qk_norm=True, output_gate=True)
    biased = read("Qwen3_5ForCausalLM", SIZES, linear_num_key_heads=2, linear_num_value_heads=4, attention_bias=True)
    assert biased.layers[3].mixer == dataclasses.replace(
        dense.layers[3].mixer, qkv_bias=True, output_bias=True, gate_bias=True
    )
    sizes = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
    hybrid = read("OlmoHybridForCausalLM", SIZES, sizes, linear_value_head_dim=16, rope_parameters=None)
    assert hybrid.layers[0].mixer == GatedDelta(2, 2, 8, 16, 4)
    assert hybrid.layers[3].mixer == Attention(4, 2, 16, rotary=False, qk_norm_wide=True)


@pytest.mark.parametrize(
    ("architecture", "parts", "message"),
    [
        ("GptOssForCausalLM", SIZES | {"num_local_experts": 8}, "required field num_experts_per_tok"),
        ("Lfm2ForCausalLM", SIZES | {"layer_types": ["conv"] * 3}, "layer_types has 3 items; it must have 4"),
        ("GptOssForCausalLM", SIZES | EXPERTS | {"layer_types": ["odd"] * 4}, 'layer_types contains "odd"'),
        ("Qwen3NextForCausalLM", SIZES | EXPERTS | {"layer_types": ["conv"] * 4}, 'contains "conv"'),
        ("MiniMaxForCausalLM", SIZES | EXPERTS, "layer_types and attn_type_list are missing"),
        ("KimiLinearForCausalLM", SIZES | EXPERTS | LATENT, "full_attn_layers is missing"),
        ("GPTNeoForCausalLM", SIZES | {"attention_types": [[["odd"], 4]]}, "does not give global or local"),
        ("GPTNeoForCausalLM", SIZES | {"attention_types": [[["global"], 10**12]]}, "does not give global or local"),
        ("GPTNeoForCausalLM", SIZES | {"attention_types": "x"}, "does not give global or local"),
        ("SmolLM3ForCausalLM", SIZES | {"no_rope_layers": [1, 1, 2, 0]}, "An item of no_rope_layers is 2"),
        ("BambaForCausalLM", SIZES | {"attn_layer_indices": [4]}, "An item of attn_layer_indices is 4"),
        ("Gemma3nForCausalLM", SIZES | {"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4"),
        ("Gemma3nForCausalLM", NONE_SHARED | {"intermediate_size": [96] * 3}, "intermediate_size has 3 items"),
        ("FalconH1ForCausalLM", SIZES | {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_ssm": 64}, "make them agree"),
        ("FalconH1ForCausalLM", SIZES | {"mamba_n_heads": 3, "mamba_expand": 2}, "do not divide its 128 channels"),
    ],
)
def test_what_cannot_be_assumed_is_refused(architecture: str, parts: dict[str, Any], message: str) -> None:
    assert message in refusal(architecture, without(parts, *(() if "Gemma" in architecture else ("head_dim",))))


@pytest.mark.parametrize("name", REFUSED)
def test_known_but_unsupported_names_are_refused_with_a_reason(name: str) -> None:
    assert name not in FAMILIES and name not in MODEL_TYPES
    said = refusal(name, SIZES) if name.isidentifier() else REFUSED[name]
    assert REFUSED[name] in said


def test_a_head_width_is_read_where_the_class_has_one_and_ignored_aloud_where_not() -> None:
    plain = without(SIZES, "num_key_value_heads")
    ignored = read("GPTNeoXForCausalLM", plain, head_dim=20)
    assert ignored.layers[0].mixer.head_dim == 16
    assert "head_dim = 20 was ignored; hidden_size / num_attention_heads = 16." in ignored.assumptions
    assert read("GraniteForCausalLM", SIZES, head_dim=20).layers[0].mixer.head_dim == 20
    assert read("GraniteForCausalLM", without(SIZES, "head_dim"), attention_head_dim=20).layers[0].mixer.head_dim == 20


def test_defaults_that_were_used_are_written_down() -> None:
    bare = without(SIZES, "head_dim", "tie_word_embeddings")
    said = " ".join(read("Gemma2ForCausalLM", bare).assumptions)
    assert "head_dim is absent; 256" in said and "sliding_window is absent; 4096" in said
    assert "tie_word_embeddings is absent; true" in said
    assert read("Gemma2ForCausalLM", bare).tied_embeddings
    oss = " ".join(read("GptOssForCausalLM", bare, EXPERTS).assumptions)
    assert "attention_bias is absent; true" in oss and "head_dim is absent; 64" in oss and "128, the default" in oss
