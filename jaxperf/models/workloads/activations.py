"""Activations as eager kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from jaxperf.models.workloads.operations import add, multiply, pointwise, power, scaled, shifted
from jaxperf.models.workloads.tape import Tape, Tensor

Activation = Callable[[Tape, Tensor], Tensor]


def written_out_gelu(tape: Tape, x: Tensor) -> Tensor:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))) as the eight kernels of GPT-2's class (arXiv:1606.08415)."""
    with tape.scope("gelu"):
        half = scaled(tape, x)
        cubic = scaled(tape, power(tape, x))
        inner = scaled(tape, add(tape, x, cubic))
        curve = shifted(tape, pointwise(tape, inner, "tanh"))
        return multiply(tape, half, curve)


def _one_kernel(note: str, tape: Tape, x: Tensor) -> Tensor:
    """Forward one kernel; backward one that reads the gradient and what was saved."""
    return pointwise(tape, x, note)


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu written out": written_out_gelu,
        **{note: partial(_one_kernel, note) for note in ("gelu", "relu", "silu", "tanh", "sigmoid")},
    }
)
