"""`dot_general` and `conv_general_dilated` of any layout."""

from __future__ import annotations

import math

from jaxperf.io.primitives.call import Call, Description
from jaxperf.io.products import Convolution, convolution_op, matrix_product, product_dtype
from jaxperf.io.program import Kind
from jaxperf.models.graph import Op

FULL_PRECISION = ("HIGHEST", "F32_F32_F32")  # the `jax.lax.Precision` and `DotAlgorithmPreset` that ask for fp32


def _dtype(call: Call) -> str:
    """The format of a product. Below the highest precision JAX multiplies fp32 as TF32 on a GPU that has it
    (`jax.lax.Precision`); which a device has is known only where the time is asked for."""
    found = product_dtype(call.inputs[:2])
    asked = call.params.get("precision")
    each = asked if isinstance(asked, tuple) else (asked,)  # one an operand, or one for both
    full = all(str(precision).split(".")[-1] in FULL_PRECISION for precision in each)
    return "tf32" if found == "fp32" and not full else found


def dot_general(call: Call) -> Description:
    """[batch, m, k] x [batch, k, n], each of the four the product of its dimensions, in whatever order they stand."""
    left, right = (value.shape for value in call.inputs[:2])
    (contracted, contracted_right), (batch, batch_right) = call.params["dimension_numbers"]
    k = math.prod(left[axis] for axis in contracted)
    batches = math.prod(left[axis] for axis in batch)
    m = math.prod(extent for axis, extent in enumerate(left) if axis not in {*contracted, *batch})
    n = math.prod(extent for axis, extent in enumerate(right) if axis not in {*contracted_right, *batch_right})
    op, flops = matrix_product(batches, m, n, k, _dtype(call))
    return Description(Kind.PRODUCT, flops, (op,))


def ragged_dot(call: Call) -> Description:
    """[m, k] x [groups, k, n]: every row meets the matrix of its group, of which each is read once."""
    left, right = (value.shape for value in call.inputs[:2])
    if len(left) != 2 or len(right) != 3 or left[1] != right[1]:
        return Description(Kind.UNKNOWN)
    (m, k), (groups, _, n) = left, right
    shape = {"batch": groups, "m": m / groups, "n": n, "k": k}
    return Description(Kind.PRODUCT, 2.0 * m * n * k, (Op("bmm", shape, _dtype(call)),))


def conv_general_dilated(call: Call) -> Description:
    """A convolution of any layout, groups, stride and dilation, with its gradients."""
    image, window = (value.shape for value in call.inputs[:2])
    out, p = call.outputs[0].shape, call.params
    batch, channels, *axes = p["dimension_numbers"].lhs_spec
    _, _, *window_axes = p["dimension_numbers"].rhs_spec
    _, out_channels, *out_axes = p["dimension_numbers"].out_spec
    groups = max(p["feature_group_count"], p["batch_group_count"])
    # Groups of the batch appear in the gradient of a grouped convolution: each group reads its part of the batch.
    conv = Convolution(
        batch=image[batch] // p["batch_group_count"],
        input_channels=image[channels] * p["batch_group_count"],
        output_channels=out[out_channels],
        spatial=tuple(image[axis] for axis in axes),
        out=tuple(out[axis] for axis in out_axes),
        kernel=tuple(window[axis] for axis in window_axes),
        stride=tuple(p["window_strides"]),
        padding=tuple((int(before), int(after)) for before, after in p["padding"]),
        dilation=tuple(p["rhs_dilation"]),
        spread=tuple(p["lhs_dilation"]),
        groups=groups,
    )
    operands = call.inputs[:2]
    moved = (float(sum(value.size for value in operands)), float(call.outputs[0].size))
    return Description(Kind.PRODUCT, conv.flops, (convolution_op(conv, _dtype(call), moved),))
