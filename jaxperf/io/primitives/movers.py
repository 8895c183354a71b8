"""Gather, scatter, pooling and updates in place: kernels bound by the bytes they really touch."""

from __future__ import annotations

import math

from jaxperf.io.primitives.call import Call, Description, arithmetic
from jaxperf.io.program import Kind
from jaxperf.io.streams import rows_op, stream_dtype


def gather(call: Call) -> Description:
    """Reads the rows it takes, not the table they come from: an embedding of `slice_sizes` elements a row."""
    table, indices, out = call.inputs[0], call.inputs[1], call.outputs[0]
    columns = math.prod(call.params["slice_sizes"])
    rows = out.size / max(columns, 1)
    taken = out.size * table.itemsize
    op = rows_op("embedding", rows, columns, stream_dtype(table), taken + out.nbytes)
    ops = (op,) if columns > 1 else ()  # single elements are no rows
    return Description(Kind.KERNEL, 0.0, ops, taken + indices.nbytes, out.nbytes)


def scatter(call: Call) -> Description:
    """Reads the updates, and of the target only what they touch, which it writes back in place."""
    target, indices, updates = call.inputs[0], call.inputs[1], call.inputs[2]
    touched = updates.size * target.itemsize
    combines = call.operation not in ("scatter", "scatter-update")
    read = indices.nbytes + updates.nbytes + (touched if combines else 0.0)
    flops = arithmetic(call, float(updates.size)) if combines else 0.0
    return Description(Kind.KERNEL, flops, (), read, touched, in_place=True)


def dynamic_update_slice(call: Call) -> Description:
    """Writes a part in place, as into a KV cache; XLA copies the rest only where the old value is still wanted."""
    part = call.inputs[1]
    return Description(Kind.KERNEL, 0.0, (), part.nbytes, part.size * call.outputs[0].itemsize, in_place=True)


def window_reduction(call: Call) -> Description:
    """Pooling: one operation per element of a window."""
    window = math.prod(call.params["window_dimensions"])
    return Description(Kind.KERNEL, arithmetic(call, float(call.outputs[0].size * window)))


def window_gradient(call: Call) -> Description:
    """The gradient of max pooling: compares every window again, then adds its value to the place of the maximum."""
    window = math.prod(call.params["window_dimensions"])
    return Description(Kind.KERNEL, arithmetic(call, float(call.inputs[0].size * (window + 1))))


def cumulative(call: Call) -> Description:
    """A running reduction: one operation per element."""
    return Description(Kind.KERNEL, arithmetic(call, float(call.inputs[0].size)))
