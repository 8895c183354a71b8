"""GPT-J, GPT-NeoX, CodeGen and Falcon, whose two blocks read the same input, and BLOOM and MPT with ALiBi."""

from __future__ import annotations

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import decoder, full_heads
from jaxperf.models.checks import show
from jaxperf.models.config import Layer, Mlp, ModelConfig


def _plain_mlp(fields: Fields, bias: bool) -> Mlp:
    """Four times the hidden width where the config gives none."""
    inner = fields.optional_count("intermediate_size") or 4 * fields.count("hidden_size")
    return Mlp(inner, gated=False, bias=bias)


def _gptj(fields: Fields) -> ModelConfig:
    """GPT-J and CodeGen: one norm, biases in the feed-forward block and the output head only."""
    layer = Layer(full_heads(fields), _plain_mlp(fields, True), norms=1, norm_bias=True, parallel=True)
    return decoder(fields, (layer,) * fields.layer_count(), head_bias=True)


def _gpt_neox(fields: Fields) -> ModelConfig:
    """GPT-NeoX and Pythia: each block has its norm although both read the same input."""
    bias = fields.flag("attention_bias", True)
    attention = full_heads(fields, qkv_bias=bias, output_bias=bias)
    parallel = fields.flag_or("use_parallel_residual", True)
    layer = Layer(attention, _plain_mlp(fields, True), norm_bias=True, parallel=parallel)
    return decoder(fields, (layer,) * fields.layer_count())


def _falcon(fields: Fields) -> ModelConfig:
    """7B: one key and value head, one norm. From 40B on (`new_decoder_architecture`) groups, and a norm a block."""
    grouped = fields.data.get("n_head_kv") is not None  # how the first 40B, of class RW, says the same
    new, bias = fields.flag("new_decoder_architecture", grouped), fields.flag("bias", False)
    alibi = fields.flag("alibi", False)
    parallel = new or fields.flag_or("parallel_attn", True)
    if new:
        kv_heads, norms = fields.count("num_key_value_heads"), fields.optional_count("num_ln_in_parallel_attn") or 2
    else:
        kv_heads, norms = 1 if fields.flag_or("multi_query", True) else None, 1 if parallel else 2
    attention = full_heads(fields, kv_heads, rotary=not alibi, alibi=alibi, qkv_bias=bias, output_bias=bias)
    layer = Layer(attention, _plain_mlp(fields, bias), norms=norms, norm_bias=True, parallel=parallel)
    return decoder(fields, (layer,) * fields.layer_count(), tied=True)


def _bloom(fields: Fields) -> ModelConfig:
    """A norm right after the token table; ALiBi (arXiv:2211.05100)."""
    attention = full_heads(fields, rotary=False, alibi=True, qkv_bias=True, output_bias=True)
    layer = Layer(attention, _plain_mlp(fields, True), norm_bias=True)
    return decoder(fields, (layer,) * fields.layer_count(), tied=True, embedding_norm=True)


def _mpt(fields: Fields) -> ModelConfig:
    """Options of the attention are in `attn_config`; no biases anywhere, not in the norms either."""
    inner = fields.nested("attn_config")
    if not inner.flag("alibi", False):
        raise InputError("attn_config.alibi is not true; only MPT models with ALiBi are supported.")
    if not fields.flag_or("no_bias", True) or inner.flag("qk_ln", False):
        raise InputError("no_bias is false or attn_config.qk_ln is true; neither is in the MPT of Hugging Face.")
    ratio = fields.data.get("expansion_ratio", 4)
    width = fields.count("hidden_size") * ratio if type(ratio) in (int, float) else -1
    if not 1 <= width or width != int(width):
        raise InputError(f"expansion_ratio is {show(ratio)}; times d_model it must be a whole number.")
    attention = full_heads(fields, inner.optional_count("num_key_value_heads"), rotary=False, alibi=True)
    layer = Layer(attention, Mlp(int(width), gated=False))
    return decoder(fields, (layer,) * fields.layer_count(), tied=True)


FAMILIES = {
    "GPTJForCausalLM": _gptj,
    "CodeGenForCausalLM": _gptj,
    "GPTNeoXForCausalLM": _gpt_neox,
    "FalconForCausalLM": _falcon,
    "RWForCausalLM": _falcon,
    "BloomForCausalLM": _bloom,
    "MptForCausalLM": _mpt,
    "MPTForCausalLM": _mpt,
}

MODEL_TYPES = {
    "gptj": "GPTJForCausalLM",
    "codegen": "CodeGenForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "falcon": "FalconForCausalLM",
    "RefinedWeb": "RWForCausalLM",
    "bloom": "BloomForCausalLM",
    "mpt": "MptForCausalLM",
}
