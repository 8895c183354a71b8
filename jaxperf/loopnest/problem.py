"""The problem: an affine loop nest around one multiply-accumulate, as Timeloop and Einsums state it.

Every operand is an array whose axes are sums of loop indices times coefficients; the input of a strided convolution
has the axis `stride * p + dilation * r`. What is indexed by what is structure; bounds and coefficients are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Float

from jaxperf.core.numerics import as_float

Term = tuple[int, int]  # (dimension, coefficient): their positions in `Problem.bounds` and `Problem.coefficients`
Axis = tuple[Term, ...]
NamedAxis = Sequence[tuple[str, str]]  # (name of a dimension, name of its coefficient or "")


@dataclass(frozen=True)
class Operand:
    """Which loops index the axes of an array, and whether the nest writes it."""

    axes: tuple[Axis, ...]
    written: bool = False

    @property
    def relevant(self) -> frozenset[int]:
        """The dimensions that index it; all others reuse its words."""
        return frozenset(dimension for axis in self.axes for dimension, _ in axis)


class Problem(eqx.Module):
    """One nest. `bounds`: iterations of each of D loops [1]; `coefficients`: of the axes, the first is one [1]."""

    bounds: Float[Array, "*batch D"] = eqx.field(converter=as_float)
    coefficients: Float[Array, "*batch C"] = eqx.field(converter=as_float)
    operands: tuple[Operand, ...] = eqx.field(static=True)


@dataclass(frozen=True)
class Names:
    """What the positions in a problem are called, in their order."""

    dimensions: tuple[str, ...]
    operands: tuple[str, ...]


def build_problem(
    bounds: Dictionary[str, float],
    operands: Dictionary[str, Sequence[NamedAxis]],
    written: Sequence[str],
    coefficients: Dictionary[str, float] | None = None,
) -> tuple[Problem, Names]:
    """A problem from names.

    **Arguments:** `bounds` [1]: of each dimension; `operands`: axes of each array, sums of (dimension, coefficient),
    the coefficient "" being one; `written`: the arrays that are results; `coefficients` [1]: strides and dilations.
    """
    values = {"": 1.0, **(coefficients or {})}
    names, structure = build_structure([*bounds], operands, written, [*values][1:])
    return Problem([*bounds.values()], [*values.values()], structure), names


def build_structure(
    dimensions: Sequence[str],
    operands: Dictionary[str, Sequence[NamedAxis]],
    written: Sequence[str],
    coefficients: Sequence[str] = (),
) -> tuple[Names, tuple[Operand, ...]]:
    """The part of `build_problem` that holds no numbers."""
    factors = ["", *coefficients]
    structure = tuple(
        Operand(
            tuple(tuple((dimensions.index(d), factors.index(c)) for d, c in axis) for axis in axes), name in written
        )
        for name, axes in operands.items()
    )
    return Names(tuple(dimensions), tuple(operands)), structure
