"""From a primitive's name to its description: the rule of its own, or that of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jaxperf.io.primitives import movers, products
from jaxperf.io.primitives.call import Call, Description, arithmetic
from jaxperf.io.primitives.kinds import (
    ALIASES,
    COLLECTIVES,
    COPIES,
    ELEMENTWISE,
    FREE,
    REDUCTIONS,
    SCANS,
    SCATTERS,
    VIEWS,
    WINDOWS,
)
from jaxperf.io.program import Kind

Rule = Callable[[Call], Description]


def elementwise(call: Call) -> Description:
    """One operation per element written."""
    return Description(Kind.STREAM, arithmetic(call, float(sum(value.size for value in call.outputs))))


def reduction(call: Call) -> Description:
    """One operation per element read."""
    return Description(Kind.STREAM, arithmetic(call, float(call.inputs[0].size)))


def of_kind(kind: Kind) -> Rule:
    """The rule of all that has neither arithmetic nor a size of its own."""
    return lambda call: Description(kind)


RULES: Mapping[str, Rule] = {
    "dot_general": products.dot_general,
    "ragged_dot_general": products.ragged_dot,
    "ragged_dot": products.ragged_dot,
    "conv_general_dilated": products.conv_general_dilated,
    "gather": movers.gather,
    "dynamic_update_slice": movers.dynamic_update_slice,
    "select_and_scatter_add": movers.window_gradient,
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(COPIES, of_kind(Kind.STREAM)),
    **dict.fromkeys(VIEWS, of_kind(Kind.VIEW)),
    **dict.fromkeys(ALIASES, of_kind(Kind.ALIAS)),
    **dict.fromkeys(SCANS, movers.cumulative),
    **dict.fromkeys(WINDOWS, movers.window_reduction),
    **dict.fromkeys(SCATTERS, movers.scatter),
    **dict.fromkeys(COLLECTIVES, of_kind(Kind.COLLECTIVE)),
    **dict.fromkeys(FREE, of_kind(Kind.FREE)),
}


def describe(call: Call, rules: Mapping[str, Rule] = RULES) -> Description:
    """What a primitive is to the device, or by other `rules` an operator; `Kind.UNKNOWN` for one without a rule."""
    rule = rules.get(call.operation)
    return Description(Kind.UNKNOWN) if rule is None else rule(call)
