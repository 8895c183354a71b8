"""ONNX's matrix products, convolutions, attention and recurrent cells as the operations that kernel models know."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jaxperf.io.primitives.call import Call, Description
from jaxperf.io.products import Convolution, convolution_op, matrix_product, product_dtype
from jaxperf.io.program import Kind
from jaxperf.models.graph import Op


def matmul(call: Call) -> Description:
    """NumPy's `matmul`: leading dimensions of the right-hand side are a batch, without them it is shared."""
    left, right = (value.shape for value in call.inputs[:2])
    n = right[-1] if len(right) > 1 else 1
    k = left[-1]
    batch = math.prod(right[:-2])
    rows = call.outputs[0].size // max(batch * n, 1)
    op, flops = matrix_product(batch, max(rows, 1), n, k, product_dtype(call.inputs[:2]))
    return Description(Kind.PRODUCT, flops, (op,))


def einsum(call: Call) -> Description:
    """Two operands: letters of both and of the output are the batch, of both alone the depth. Others are unknown."""
    equation = call.params["equation"].decode().replace(" ", "")
    operands, _, out = equation.partition("->")
    words = operands.split(",")
    if len(words) != 2 or "." in equation or "->" not in equation:
        return Description(Kind.UNKNOWN)
    extent = {letter: size for word, value in zip(words, call.inputs, strict=True)
              for letter, size in zip(word, value.shape, strict=True)}  # fmt: skip
    left, right = map(set, words)
    sets = (left & right & set(out), left - right, right - left, (left & right) - set(out))
    batch, m, n, k = (math.prod(extent[letter] for letter in letters) for letters in sets)
    op, flops = matrix_product(batch, m, n, k, product_dtype(call.inputs))
    return Description(Kind.PRODUCT, flops, (op,))


def quantized(call: Call) -> Description:
    """`QLinearMatMul` and `QLinearConv`: operands 0 and 3, their scales and zero points between."""
    plain = dataclasses.replace(call, inputs=(call.inputs[0], call.inputs[3]))
    return matmul(plain) if call.operation == "QLinearMatMul" else convolution(plain)


def gemm(call: Call) -> Description:
    """`Gemm`: [m, k] x [k, n] with either transposed."""
    left = call.inputs[0].shape
    m, n = call.outputs[0].shape
    k = left[0] if call.params.get("transA", 0) else left[1]
    op, flops = matrix_product(1, m, n, k, product_dtype(call.inputs[:2]))
    return Description(Kind.PRODUCT, flops, (op,))


def convolution(call: Call) -> Description:
    """`Conv`: NC(spatial), weights [out, in / groups, kernel]."""
    image, window, out = call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape
    axes = len(image) - 2
    conv = _convolution(call, image, out, window[0], window[2:], (1,) * axes)
    return _described(call, conv)


def transposed_convolution(call: Call) -> Description:
    """`ConvTranspose`: weights [in, out / groups, kernel]; its input is spaced by the stride."""
    image, window, out = call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape
    axes = len(image) - 2
    spread = tuple(call.params.get("strides", (1,) * axes))
    groups = call.params.get("group", 1)
    conv = _convolution(call, image, out, window[1] * groups, window[2:], spread)
    return _described(call, conv)


def _convolution(
    call: Call, image: tuple[int, ...], out: tuple[int, ...], channels: int, kernel: tuple[int, ...], spread: Any
) -> Convolution:
    axes = len(kernel)
    ones = (1,) * axes
    strides = ones if max(spread, default=1) > 1 else tuple(call.params.get("strides", ones))
    dilation = tuple(call.params.get("dilations", ones))
    return Convolution(
        batch=image[0],
        input_channels=image[1],
        output_channels=channels,
        spatial=image[2:],
        out=out[2:],
        kernel=kernel,
        stride=strides,
        padding=_padding(call, image[2:], out[2:], kernel, strides, dilation),
        dilation=dilation,
        spread=tuple(spread),
        groups=call.params.get("group", 1),
    )


def _padding(
    call: Call, size: tuple[int, ...], out: tuple[int, ...], kernel: tuple[int, ...], strides: Any, dilation: Any
) -> tuple[tuple[int, int], ...]:
    """The padding that is stated, or what `auto_pad` comes to."""
    axes = len(kernel)
    pads = call.params.get("pads")
    if pads is not None and len(pads) == 2 * axes:
        return tuple((pads[axis], pads[axis + axes]) for axis in range(axes))
    if call.params.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"):
        return ((0, 0),) * axes
    reach = [dilation[axis] * (kernel[axis] - 1) + 1 for axis in range(axes)]
    total = [max((out[axis] - 1) * strides[axis] + reach[axis] - size[axis], 0) for axis in range(axes)]
    return tuple((each // 2, each - each // 2) for each in total)


def _described(call: Call, conv: Convolution) -> Description:
    operands = call.inputs[:2]
    moved = (float(sum(value.size for value in operands)), float(call.outputs[0].size))
    return Description(Kind.PRODUCT, conv.flops, (convolution_op(conv, product_dtype(operands), moved),))


def attention(call: Call) -> Description:
    """Scaled dot-product attention on [batch, heads, tokens, width], or [batch, tokens, heads x width] with the heads
    as attributes: 4 batch heads pairs width FLOP, of a causal mask only the pairs it leaves."""
    query, key = call.inputs[0].shape, call.inputs[1].shape
    if len(query) == 4 and len(key) == 4:
        (batch, heads, queries, width), kv_heads, keys = query, key[1], key[2]
    else:
        heads = call.params.get("q_num_heads") or call.params.get("num_heads") or 0
        kv_heads = call.params.get("kv_num_heads", heads)
        if len(query) != 3 or len(key) != 3 or not heads or query[2] % heads:
            return Description(Kind.UNKNOWN)
        (batch, queries, whole), keys = query, key[1]
        width = whole // heads
    causal = bool(call.params.get("is_causal") or call.params.get("unidirectional"))
    dtype = product_dtype(call.inputs[:2])
    shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": width}
    pairs = queries * keys
    if causal and queries == keys:
        ops = (Op("attention_prefill", shape | {"q_len": queries}, dtype),)
        pairs = queries * (queries + 1) // 2
    elif queries == 1:
        ops = (Op("attention_decode", shape | {"kv_len": keys}, dtype),)
    else:
        ops = (
            matrix_product(batch * heads, queries, keys, width, dtype)[0],
            Op("softmax", {"rows": batch * heads * queries, "columns": keys}, dtype, 1.0, "softmax"),
            matrix_product(batch * heads, queries, width, keys, dtype)[0],
        )
    # Apart, the two products and the softmax pass all scores through memory twice.
    scores = 2.0 * batch * heads * pairs * call.inputs[0].itemsize if len(ops) > 1 else 0.0
    read = sum(value.nbytes for value in call.inputs) + scores
    written = sum(value.nbytes for value in call.outputs) + scores
    return Description(Kind.PRODUCT, 4.0 * batch * heads * pairs * width, ops, read, written)


def recurrent(call: Call) -> Description:
    """`LSTM`, `GRU`, `RNN`: the inputs of all steps in one product, then one small product a step and direction."""
    steps, batch, width = call.inputs[0].shape
    if call.params.get("layout"):
        steps, batch = batch, steps
    directions, gates, _ = call.inputs[1].shape
    hidden = call.params["hidden_size"]
    dtype = product_dtype(call.inputs[:2])
    whole, first = matrix_product(1, steps * batch, gates, width, dtype)
    each, then = matrix_product(1, batch, gates, hidden, dtype)
    ops = (
        Op(whole.family, whole.shape, dtype, float(directions)),
        Op(each.family, each.shape, dtype, float(directions * steps)),
    )
    return Description(Kind.PRODUCT, directions * (first + steps * then), ops)
