"""Qwen4-Exp: the delta rule and attention to chosen blocks, a residual of several streams, tables of hashed n-grams."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.config_fields import Fields
from jaxperf.io.families.common import biased_attention, decoder, every, layer_kinds, stack
from jaxperf.io.families.qwen import gated_delta, shared_moe
from jaxperf.models.checks import check_count
from jaxperf.models.config import Indexer, Layer, Mixer, ModelConfig, Table

ATTENTION = ("full_attention", "indexed_attention")  # how configs name the layers with attention


def _qwen4(fields: Fields) -> ModelConfig:
    """Three layers of the gated delta rule, then one of gated attention; experts in all. Around each block the streams
    are gated by a projection to a low rank and back, and what the block makes is added to each with a weight."""
    attention = biased_attention(fields, multi_head=False, head_dim=256, qk_norm=True, output_gate=True)
    attention = dataclasses.replace(attention, gate_bias=attention.qkv_bias, indexer=_indexer(fields))
    kinds = layer_kinds(fields, (*ATTENTION, "linear_attention"))
    step = fields.optional_count("full_attention_interval") or 4
    full = every(step, fields.layer_count()) if kinds is None else [kind in ATTENTION for kind in kinds]
    delta = gated_delta(fields)
    mixers: list[Mixer] = [attention if one else delta for one in full]
    streams, rank = fields.count_or("hc_count", 4), fields.count_or("hc_lowrank", 320)
    wide = streams * fields.count("hidden_size")
    around: dict[str, Any] = {
        "streams": streams,
        "stream_weights": streams,
        "projections": ((wide, rank), (rank, wide)) * 2,
        "other_parameters": 2 * (wide + wide * streams),  # the norm of the streams; the weights of what is added
    }
    layers = list(stack(mixers, (shared_moe(fields),) * len(mixers), norms=0, **around))
    tables = _with_ngrams(fields, layers, wide)
    return decoder(fields, tuple(layers), final_norm=False, tables=tables, other_parameters=wide + 2 * wide * rank)


def _indexer(fields: Fields) -> Indexer | None:
    """The scorer of blocks of tokens by their mean keys, None without `indexer_n_heads`."""
    if fields.find("indexer_n_heads") is None:
        return None
    if fields.count("indexer_kv_heads") != 1:
        raise InputError("indexer_kv_heads is not 1; only one key of the indexer a token is supported.")
    sizes = fields.count("indexer_n_heads"), fields.count("indexer_head_dim"), fields.count("indexer_budget")
    return Indexer(*sizes, pool=fields.count("indexer_compress_ratio"))


def _with_ngrams(fields: Fields, layers: list[Layer], wide: int) -> tuple[Table, ...]:
    """A table for each layer of `ple_layer_ids`, counted from 1; what is read goes through two projections, three norms
    and a convolution into the streams."""
    numbers = sorted(set(fields.listing("ple_layer_ids", int) or ()))
    if not numbers:
        return ()
    for one in numbers:
        check_count("An item of ple_layer_ids", one, 1, len(layers))
    hidden = fields.count("hidden_size")
    width, taps = fields.optional_count("ple_embed_dim") or hidden, fields.count_or("ple_conv_kernel_size", 4)
    for one in numbers:
        layer = layers[one - 1]
        layers[one - 1] = dataclasses.replace(
            layer,
            projections=(*layer.projections, (width, wide), (width, hidden)),
            other_parameters=layer.other_parameters + (3 + taps) * wide,
        )
    fields.notes.append("Of the tables of n-grams the projections of what is read are timed, and nothing else.")
    return _tables(fields, len(numbers), width)


def _tables(fields: Fields, count: int, width: int) -> tuple[Table, ...]:
    """Each head of each order of n-grams has as many rows as the next prime, those of a layer are padded together."""
    heads = (fields.count_or("ngram_size", 3, smallest=2) - 1) * fields.count_or("heads_per_ngram", 8)
    if width % heads:
        raise InputError(f"ple_embed_dim is {width}; it must be a multiple of the {heads} heads of n-grams.")
    step = fields.count_or("make_ngram_vocab_size_divisible_by", 128)
    primes = _primes(fields.count_or("ngram_vocab_size_base", 20_000_000), heads * count)
    sums = [sum(primes[index * heads : (index + 1) * heads]) for index in range(count)]
    return tuple(Table(f"n-grams {index}", step * -(-rows // step), width // heads) for index, rows in enumerate(sums))


def _primes(least: int, count: int) -> list[int]:
    """The first primes from `least` on."""
    found: list[int] = []
    number = max(least, 2)
    while len(found) < count:
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            found.append(number)
        number += 1
    return found


FAMILIES = {"Qwen4ExpForCausalLM": _qwen4}

MODEL_TYPES = {"qwen4_exp_text": "Qwen4ExpForCausalLM"}
