"""What the intervals of the kernels leave open of a simulation: the same question asked at both ends of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jaxperf.core.efficiency import LEVELS

if TYPE_CHECKING:
    from jaxperf.cli.engines import Served

Found = TypeVar("Found")
ENDS = tuple(level for level in LEVELS if level != "nominal")


def at_ends(ask: Callable[[Served], Found], served: Served) -> list[Found]:
    """What `ask` says of the slowest and of the fastest kernels."""
    return [ask(dataclasses.replace(served, level=level)) for level in ENDS]


def intervals(told: Any, others: Sequence[Any]) -> Any:
    """The lower and the upper end of every number of `told`, in mappings like it, which `others` are too.

    Latencies of requests that queue are no monotone function of a step's time, so each end is the least or the largest.
    """
    if isinstance(told, Mapping):
        return {name: intervals(value, [other[name] for other in others]) for name, value in told.items()}
    return [min([told, *others]), max([told, *others])]  # of no others: steps that have no interval
