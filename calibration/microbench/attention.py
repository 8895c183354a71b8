"""Attention over a prompt, and of one new token a sequence over its cached context."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from calibration.microbench.operation import Call, Operation, Range, Sizes, as_they_are, random_array


def prefill(sizes: Sizes, dtype: str, seed: int) -> Call:
    """Causal attention of q_len tokens among themselves."""
    return functools.partial(jax.nn.dot_product_attention, is_causal=True), _operands(
        sizes, sizes["q_len"], dtype, seed
    )


def decode(sizes: Sizes, dtype: str, seed: int) -> Call:
    """Attention of one token over kv_len tokens."""
    return jax.nn.dot_product_attention, _operands(sizes, 1, dtype, seed)


def prefill_cudnn(sizes: Sizes, dtype: str, seed: int) -> Call:
    """The same in one fused kernel of cuDNN."""
    function = functools.partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn")
    return function, _operands(sizes, sizes["q_len"], dtype, seed)


def decode_cudnn(sizes: Sizes, dtype: str, seed: int) -> Call:
    """The same in one fused kernel of cuDNN."""
    function = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")
    return function, _operands(sizes, 1, dtype, seed)


def _operands(sizes: Sizes, queries: int, dtype: str, seed: int) -> tuple[jax.Array, ...]:
    batch, width = sizes["batch"], sizes["head_dim"]
    cached = (batch, sizes.get("kv_len", queries), sizes["kv_heads"], width)
    query = random_array((batch, queries, sizes["heads"], width), dtype, seed)
    return query, random_array(cached, dtype, seed + 1), random_array(cached, dtype, seed + 2)


def _grouped(sizes: Sizes) -> bool:
    return sizes["heads"] % sizes["kv_heads"] == 0


_HEADS = {"heads": (1, 2, 4, 8, 16, 32), "kv_heads": (1, 2, 4, 8), "head_dim": (64, 128)}
PREFILL = Operation(
    name="prefill",
    family="attention_prefill",
    op="attention_prefill",
    kernel="jax.nn.dot_product_attention",
    sizes={"batch": Range(1, 32), "q_len": Range(16, 16384), **_HEADS},
    shape=as_they_are,
    call=prefill,
    accepts=_grouped,
)
DECODE = Operation(
    name="decode",
    family="attention_decode",
    op="attention_decode",
    kernel="jax.nn.dot_product_attention",
    sizes={"batch": Range(1, 256), "kv_len": Range(16, 65536), **_HEADS},
    shape=as_they_are,
    call=decode,
    accepts=_grouped,
)
# Of GPUs: what XLA compiles writes all scores to memory, which no serving engine does.
_CUDNN: dict[str, Any] = {"kernel": "jax.nn.dot_product_attention, cudnn", "dtypes": ("bf16", "fp16")}
PREFILL_CUDNN = dataclasses.replace(PREFILL, call=prefill_cudnn, **_CUDNN)
DECODE_CUDNN = dataclasses.replace(DECODE, call=decode_cudnn, **_CUDNN)
