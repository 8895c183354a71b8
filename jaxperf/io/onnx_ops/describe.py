"""From an ONNX operator's name to its description: the rule of its own, or that of its kind."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jaxperf.io.onnx_ops import products
from jaxperf.io.onnx_ops.kinds import (
    ALIASES,
    COPIES,
    ELEMENTWISE,
    GATHERS,
    GLOBAL_WINDOWS,
    KERNELS,
    REDUCTIONS,
    ROW_WISE,
    SCATTERS,
    VIEWS,
    WINDOWS,
)
from jaxperf.io.primitives.call import Call, Description, arithmetic
from jaxperf.io.primitives.describe import Rule, elementwise, of_kind, reduction
from jaxperf.io.program import Kind
from jaxperf.io.streams import rows_op, stream_dtype


def row_wise(call: Call) -> Description:
    """Softmax and normalizations over their last axes."""
    family, each = ROW_WISE[call.operation]
    value = call.inputs[0]
    axis = int(call.params.get("axis", -1))
    columns = (
        math.prod(value.shape[axis:]) if family == "norm" and axis < 0 else value.shape[axis] if value.shape else 1
    )
    if call.operation in ("InstanceNormalization", "GroupNormalization"):
        columns = math.prod(value.shape[2:])
    flops = arithmetic(call, each * value.size)
    return Description(Kind.STREAM, flops, row_wise=(family, float(max(columns, 1))))


def batch_normalization(call: Call) -> Description:
    """At inference a scale and a shift of every element."""
    return Description(Kind.STREAM, arithmetic(call, 2.0 * call.inputs[0].size))


def pooling(call: Call) -> Description:
    """One operation per element of a window."""
    window = math.prod(call.params.get("kernel_shape", (1,)))
    return Description(Kind.KERNEL, arithmetic(call, float(call.outputs[0].size * window)))


def global_pooling(call: Call) -> Description:
    """One operation per element read."""
    return Description(Kind.KERNEL, arithmetic(call, float(call.inputs[0].size)))


def gather(call: Call) -> Description:
    """Reads the rows it takes, not the table they come from."""
    table, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    columns = out.size / max(indices.size, 1)
    op = rows_op("embedding", indices.size, columns, stream_dtype(table), 2.0 * out.nbytes)
    ops = (op,) if columns > 1 else ()  # single elements are no rows
    return Description(Kind.KERNEL, 0.0, ops, out.nbytes + indices.nbytes, out.nbytes)


def scatter(call: Call) -> Description:
    """Copies the data, then writes the updates over it."""
    indices, updates = call.inputs[1], call.inputs[2]
    read = call.inputs[0].nbytes + indices.nbytes + updates.nbytes
    return Description(Kind.KERNEL, 0.0, (), read, call.outputs[0].nbytes + updates.nbytes)


RULES: Mapping[str, Rule] = {
    "MatMul": products.matmul,
    "MatMulInteger": products.matmul,
    "Gemm": products.gemm,
    "Einsum": products.einsum,
    "QLinearMatMul": products.quantized,
    "QLinearConv": products.quantized,
    "Conv": products.convolution,
    "ConvInteger": products.convolution,
    "ConvTranspose": products.transposed_convolution,
    "Attention": products.attention,
    "MultiHeadAttention": products.attention,
    "GroupQueryAttention": products.attention,
    "LSTM": products.recurrent,
    "GRU": products.recurrent,
    "RNN": products.recurrent,
    "BatchNormalization": batch_normalization,
    **dict.fromkeys(ROW_WISE, row_wise),
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(COPIES, of_kind(Kind.STREAM)),
    **dict.fromkeys(VIEWS, of_kind(Kind.VIEW)),
    **dict.fromkeys(ALIASES, of_kind(Kind.ALIAS)),
    **dict.fromkeys(KERNELS, of_kind(Kind.KERNEL)),
    **dict.fromkeys(WINDOWS, pooling),
    **dict.fromkeys(GLOBAL_WINDOWS, global_pooling),
    **dict.fromkeys(GATHERS, gather),
    **dict.fromkeys(SCATTERS, scatter),
}
