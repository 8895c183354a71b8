"""What is believed of a family's residuals on a device that few rows are known of, where that is more than usual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

IGNORED = 1.0 / 8.0


@dataclass(frozen=True)
class Belief:
    """`apart`: how much a coordinate counts beside others, by the name of a feature or of a part of the law [1];
    `settling`: how often what counts as far from the others is asked anew before a process learns, 0 where at
    first all rows are believed, and `surety`, by how much the spreads of the priors are narrower than usual [1]."""

    apart: Mapping[str, float] = field(default_factory=dict)
    settling: int = 0
    surety: float = 1.0


USUAL = Belief()
# Of experts; how each was chosen is in docs/notes/kernels.md, "Adaptation". Counts of rows that are no multiple of 8 or
# 64 are rare, so that their spread is small and they would lie far apart. Whole columns are untuned, three to five
# times as slow as others: ten rows of a stack follow them unless they are told apart before anything is learned; in
# eight rounds what counts as far settles. And ten rows tell little of lengths and variances.
EXPERTS = Belief(
    apart=MappingProxyType(
        {"compute over memory": 2.0, "memory": 2.0, "log2 tokens": 2.0, "log2 inter": 0.5, "skewed": 0.5}
        | dict.fromkeys(("rows not of 8", "rows not of 64"), IGNORED)
    ),
    settling=8,
    surety=3.0,
)
BELIEFS: Mapping[str, Belief] = MappingProxyType({"moe": EXPERTS})


def belief(family: str) -> Belief:
    """That of a family, the usual one where it has none of its own."""
    return BELIEFS.get(family, USUAL)
