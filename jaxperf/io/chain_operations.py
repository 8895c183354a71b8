"""Which operations of the kernel models a kernel of a program is."""

from __future__ import annotations

from collections.abc import Sequence

from jaxperf.io.program import Kind, Program, Step, Value
from jaxperf.io.streams import last_axis, rows_op, stream_dtype, stream_op
from jaxperf.models.graph import Op

EXPONENTIALS = frozenset(("exp", "exp2", "Exp"))
ROOTS = frozenset(("rsqrt", "sqrt", "Sqrt"))
SUMS = frozenset(("reduce_sum", "ReduceSum", "ReduceMean"))
MAXIMA = frozenset(("reduce_max", "ReduceMax"))


def operations(
    program: Program,
    group: Sequence[Step],
    reads: Sequence[tuple[Value, float]],
    out: Sequence[Value],
    read: float,
    wrote: float,
) -> tuple[Op, ...]:
    """The operations of a kernel; "none" of a collective, which is not timed."""
    step = group[-1]
    if step.kind is Kind.COLLECTIVE:
        return (Op("none", {}, note=step.operation),)
    if step.kind is Kind.UNKNOWN:
        return (Op("memory", {"bytes_in": read, "bytes_out": wrote}, note=step.operation),)
    if step.ops:
        return step.ops
    values = [*(value for value, _ in reads), *out]
    dtype = stream_dtype(*values)
    if step.kind is Kind.STREAM or len(group) > 1:
        return (_chain_operation(program, group, values, read, wrote, dtype),)
    return (stream_op(read, wrote, last_axis(values), dtype, step.operation),)


def _chain_operation(
    program: Program, group: Sequence[Step], values: Sequence[Value], read: float, wrote: float, dtype: str
) -> Op:
    """A chain with the reductions of a softmax or of a normalization is one; any other is elementwise."""
    family, columns = _row_wise(program, group)
    if not family:
        return stream_op(read, wrote, last_axis(values), dtype, group[0].operation if len(group) == 1 else "fused")
    rows = max(value.size for value in values) / columns
    return rows_op(family, rows, columns, dtype, read + wrote, family)


def _row_wise(program: Program, group: Sequence[Step]) -> tuple[str, float]:
    """The family of a row-wise chain and the columns of its rows; "" of another."""
    stated = next((step.row_wise for step in group if step.row_wise is not None), None)
    if stated is not None:
        return stated
    words = {step.operation for step in group}
    family = "softmax" if words & EXPONENTIALS and words & MAXIMA else "norm" if words & ROOTS else ""
    # A sum to a single number, as of a loss that joined the chain, is not what makes it row-wise.
    sums = [_reduced(program, step) for step in group if step.operation in SUMS and _leaves_rows(program, step)]
    return (family, max(sums)) if family and sums else ("", 1.0)


def _leaves_rows(program: Program, step: Step) -> bool:
    return program.values[step.outputs[0]].size > 1


def _reduced(program: Program, step: Step) -> float:
    """Elements that a reduction makes one of."""
    inside = program.values[step.inputs[0]].size if step.inputs else 1
    return max(inside / program.values[step.outputs[0]].size, 1.0)
