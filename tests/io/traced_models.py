"""Models in plain JAX, as a user would write them, with the counts that a reader makes by hand from the paper."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
Struct = jax.ShapeDtypeStruct


def struct(*shape: int, dtype: Any = jnp.float32) -> Struct:
    return Struct(shape, dtype)


# --- ResNet-50 (arXiv:1512.03385, Table 1; the 3 x 3 convolution has the stride, as torchvision's) --------------------

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def convolution(x: Array, weight: Array, stride: int) -> Array:
    pad = (weight.shape[0] - 1) // 2
    return lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=DIMENSIONS)


def scaled(x: Array, p: dict[str, Array]) -> Array:
    """Batch normalization at inference, folded to a scale and a shift."""
    return x * p["scale"][None, None, None] + p["shift"][None, None, None]


def bottleneck(x: Array, p: dict[str, Any], stride: int) -> Array:
    y = jax.nn.relu(scaled(convolution(x, p["reduce"], 1), p["norm1"]))
    y = jax.nn.relu(scaled(convolution(y, p["middle"], stride), p["norm2"]))
    y = scaled(convolution(y, p["expand"], 1), p["norm3"])
    if "shortcut" in p:
        x = scaled(convolution(x, p["shortcut"], stride), p["norm4"])
    return jax.nn.relu(x + y)


def resnet50(p: dict[str, Any], x: Array) -> Array:
    x = jax.nn.relu(scaled(convolution(x, p["stem"], 2), p["norm"]))
    pads = [(0, 0), (1, 1), (1, 1), (0, 0)]
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
    for (_, depth, stride), blocks in zip(STAGES, p["stages"], strict=True):
        for index in range(depth):
            x = bottleneck(x, blocks[index], stride if index == 0 else 1)
    return x.mean((1, 2)) @ p["classifier"] + p["bias"][None]


def resnet50_parameters() -> dict[str, Any]:
    def norm(channels: int) -> dict[str, Struct]:
        return {"scale": struct(channels), "shift": struct(channels)}

    stages, channels = [], 64
    for width, depth, _ in STAGES:
        blocks = []
        for index in range(depth):
            block = {
                "reduce": struct(1, 1, channels, width),
                "middle": struct(3, 3, width, width),
                "expand": struct(1, 1, width, 4 * width),
                "norm1": norm(width),
                "norm2": norm(width),
                "norm3": norm(4 * width),
            }
            if index == 0:
                block |= {"shortcut": struct(1, 1, channels, 4 * width), "norm4": norm(4 * width)}
            blocks.append(block)
            channels = 4 * width
        stages.append(blocks)
    return {
        "stem": struct(7, 7, 3, 64),
        "norm": norm(64),
        "stages": stages,
        "classifier": struct(2048, 1000),
        "bias": struct(1000),
    }


def resnet50_by_hand() -> tuple[int, int]:
    """MACs and bytes (fp32, batch 1) of every kernel, written down from the table of the paper."""
    macs, moved = 0, 0

    def conv(kernel: int, size: int, inside: int, outside: int, stride: int) -> int:
        """One convolution; returns the size of its output."""
        nonlocal macs, moved
        out = size // stride
        macs += out * out * outside * inside * kernel * kernel
        moved += 4 * (size * size * inside + kernel * kernel * inside * outside + out * out * outside)
        return out

    def chain(size: int, channels: int, tensors: int, vectors: int) -> None:
        """Elementwise work on whole tensors and on a vector a channel."""
        nonlocal moved
        moved += 4 * (size * size * channels * tensors + vectors * channels)

    size = conv(7, 224, 3, 64, 2)
    chain(size, 64, 2, 2)
    moved += 4 * (112 * 112 * 64 + 56 * 56 * 64)  # max pooling
    size, channels = 56, 64
    for width, depth, first in STAGES:
        for index in range(depth):
            stride = first if index == 0 else 1
            conv(1, size, channels, width, 1)
            chain(size, width, 2, 2)
            out = conv(3, size, width, width, stride)
            chain(out, width, 2, 2)
            conv(1, out, width, 4 * width, 1)
            if index == 0:
                conv(1, size, channels, 4 * width, stride)
            # Both norms of the first block, or the one and the block's input, are added under one ReLU.
            chain(out, 4 * width, 3, 4 if index == 0 else 2)
            size, channels = out, 4 * width
    # The mean reads what the last ReLU writes: it joins that chain, and only the mean is written.
    moved += 4 * (2048 - 7 * 7 * 2048)
    macs += 2048 * 1000
    moved += 4 * (2048 + 2048 * 1000 + 1000) + 4 * 3 * 1000  # classifier, then its bias
    return macs, moved


# --- BERT-Large (arXiv:1810.04805: 24 layers of width 1024, 16 heads) -------------------------------------------------

BERT = {"layers": 24, "hidden": 1024, "heads": 16}


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-12) * scale[None, None] + shift[None, None]


def bert_layer(x: Array, p: dict[str, Array], heads: int) -> Array:
    batch, tokens, hidden = x.shape

    def projected(name: str) -> Array:
        y = x @ p[name] + p[f"{name}_bias"][None, None]
        return y.reshape(batch, tokens, heads, hidden // heads)

    q, k, v = (projected(name) for name in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (hidden // heads) ** -0.5
    context = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(batch, tokens, hidden)
    x = layer_norm(x + context @ p["o"] + p["o_bias"][None, None], p["scale1"], p["shift1"])
    inner = jax.nn.gelu(x @ p["up"] + p["up_bias"][None, None])
    return layer_norm(x + inner @ p["down"] + p["down_bias"][None, None], p["scale2"], p["shift2"])


def bert(p: dict[str, Array], x: Array) -> Array:
    """All layers by one `scan` over their stacked parameters."""
    return lax.scan(lambda carry, layer: (bert_layer(carry, layer, BERT["heads"]), None), x, p)[0]


def bert_parameters() -> dict[str, Struct]:
    layers, hidden = BERT["layers"], BERT["hidden"]
    square = {name: struct(layers, hidden, hidden) for name in "qkvo"}
    vectors = ("q_bias", "k_bias", "v_bias", "o_bias", "down_bias", "scale1", "shift1", "scale2", "shift2")
    return {
        **square,
        **{name: struct(layers, hidden) for name in vectors},
        "up": struct(layers, hidden, 4 * hidden),
        "up_bias": struct(layers, 4 * hidden),
        "down": struct(layers, 4 * hidden, hidden),
    }


def bert_by_hand(batch: int, tokens: int) -> tuple[int, int]:
    """MACs and bytes (fp32) of BERT-Large's layers: 12 h^2 a token and 2 h a pair of tokens."""
    layers, h, heads = BERT["layers"], BERT["hidden"], BERT["heads"]
    rows = batch * tokens
    macs = layers * (rows * 12 * h * h + 2 * batch * tokens * tokens * h)
    pairs = batch * heads * tokens * tokens
    floats = 0
    floats += 4 * (2 * rows * h + h * h)  # projections
    floats += 3 * (2 * rows * h + h)  # their biases, but that of the output
    floats += 2 * (2 * rows * h + pairs)  # scores, context
    floats += 2 * pairs  # softmax
    floats += 2 * (3 * rows * h + 3 * h)  # bias, residual and norm in one
    floats += 2 * (5 * rows * h + 4 * h * h)  # feed-forward products
    floats += 2 * 4 * rows * h + 4 * h  # bias and GELU
    return macs, 4 * layers * floats


# --- A block of Llama-3-8B (arXiv:2407.21783, Table 3) ----------------------------------------------------------------

LLAMA = {"hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "inter": 14336}


def rms_norm(x: Array, weight: Array) -> Array:
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)
    return (wide * scale).astype(x.dtype) * weight[None, None]


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    return x * cos[None, :, None] + turned * sin[None, :, None]


def llama_block(p: dict[str, Array], x: Array, cos: Array, sin: Array) -> Array:
    batch, tokens, _ = x.shape
    kv, group, width = LLAMA["kv_heads"], LLAMA["heads"] // LLAMA["kv_heads"], LLAMA["head_dim"]
    y = rms_norm(x, p["attention_norm"])
    q = rotated((y @ p["q"]).reshape(batch, tokens, kv * group, width), cos, sin)
    k = rotated((y @ p["k"]).reshape(batch, tokens, kv, width), cos, sin)
    v = (y @ p["v"]).reshape(batch, tokens, kv, width)
    scores = jnp.einsum("bskgd,btkd->bkgst", q.reshape(batch, tokens, kv, group, width), k)
    mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    masked = jnp.where(mask[None, None, None], scores.astype(jnp.float32) * width**-0.5, -jnp.inf)
    weights = jax.nn.softmax(masked).astype(x.dtype)
    context = jnp.einsum("bkgst,btkd->bskgd", weights, v).reshape(batch, tokens, -1)
    x = x + context @ p["o"]
    y = rms_norm(x, p["feedforward_norm"])
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def llama_arguments(tokens: int) -> tuple[Any, ...]:
    h, width, inter = LLAMA["hidden"], LLAMA["head_dim"], LLAMA["inter"]
    b16 = jnp.bfloat16
    kv = LLAMA["kv_heads"] * width
    parameters = {
        "q": struct(h, h, dtype=b16),
        "k": struct(h, kv, dtype=b16),
        "v": struct(h, kv, dtype=b16),
        "o": struct(h, h, dtype=b16),
        "gate": struct(h, inter, dtype=b16),
        "up": struct(h, inter, dtype=b16),
        "down": struct(inter, h, dtype=b16),
        "attention_norm": struct(h, dtype=b16),
        "feedforward_norm": struct(h, dtype=b16),
    }
    angles = struct(tokens, width, dtype=b16)
    return parameters, struct(1, tokens, h, dtype=b16), angles, angles


def llama_by_hand(tokens: int) -> tuple[int, int]:
    """MACs and bytes (bf16) of one block on one sequence; every pair of tokens is computed, then masked."""
    h, width, inter = LLAMA["hidden"], LLAMA["head_dim"], LLAMA["inter"]
    kv, pairs = LLAMA["kv_heads"] * width, LLAMA["heads"] * tokens * tokens
    macs = tokens * (2 * h * h + 2 * h * kv + 3 * h * inter) + 2 * tokens * tokens * h
    halves = 0  # 16-bit numbers moved
    halves += 2 * tokens * h + h  # first norm
    halves += 2 * (2 * tokens * h + h * h) + 2 * (tokens * h + h * kv + tokens * kv)  # q, o; k, v
    halves += 2 * tokens * h + 2 * tokens * kv + 4 * tokens * width  # rotations, each with its cosines and sines
    halves += 2 * (tokens * h + tokens * kv + pairs)  # scores and context
    halves += 2 * pairs  # softmax
    halves += 4 * tokens * h + h  # residual and second norm: two in, two out
    halves += 3 * (tokens * h + h * inter + tokens * inter)  # feed-forward products
    halves += 3 * tokens * inter  # SiLU and product
    halves += 3 * tokens * h  # last residual
    return macs, 2 * halves  # the mask is computed where it is read
