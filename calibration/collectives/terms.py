"""The correction of the law: a sum of piecewise linear curves, each shared by the rows that have a name in common.

log t = log t_law + clip(sum over terms of f_term[name](coordinate)). A term is a level of the hierarchy and a
coordinate; its curves are hat functions on even knots, with a prior that pulls them to zero and makes them smooth. A
name that was not measured has the curve zero, so that a prediction falls back to what the levels above it share.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """Curves of one level over one coordinate, from `low` in `knots` steps of one (coordinates are logarithms).

    `spread`: standard deviation of a curve from zero, `rough`: of its change in one step [log 1].
    """

    level: str
    coordinate: str
    low: float
    knots: int
    spread: float
    rough: float

    @property
    def name(self) -> str:
        """Of its curves in parameters."""
        return f"{self.level} by {self.coordinate}"


SIZE = ("size", 8.0, 25)  # 256 B to 4 GiB
# What a few rows of a new system move; the system's own curve is shared by its operations.
FEW_ROWS = (
    Term("system", *SIZE, 0.5, 0.1),
    Term("device", *SIZE, 0.4, 0.15),
    Term("device setting", *SIZE, 0.2, 0.05),
    Term("cell", *SIZE, 0.3, 0.1),
    Term("cell setting", *SIZE, 0.1, 0.05),
)
TERMS = (
    Term("kind", *SIZE, 0.3, 0.2),
    Term("kind setting", *SIZE, 0.2, 0.1),
    Term("kind way", *SIZE, 0.5, 0.2),
    Term("kernel", *SIZE, 0.4, 0.2),
    Term("kernel setting", *SIZE, 0.2, 0.1),
    Term("stack", *SIZE, 0.1, 0.05),
    Term("stack shape", *SIZE, 0.1, 0.05),
    Term("generation", *SIZE, 0.5, 0.15),
    Term("generation setting", *SIZE, 0.2, 0.1),
    Term("generation kernel", *SIZE, 0.2, 0.1),
    Term("generation kernel setting", *SIZE, 0.2, 0.1),
    Term("device", *SIZE, 0.2, 0.1),
    Term("device setting", *SIZE, 0.1, 0.05),
    Term("device way", *SIZE, 0.25, 0.2),
    Term("cell", *SIZE, 0.15, 0.1),
    Term("cell setting", *SIZE, 0.15, 0.1),
    Term("cell shape", *SIZE, 0.1, 0.05),
    Term("exchange kind", "token bytes", 9.0, 7, 0.2, 0.2),
    Term("exchange kind", "topk", 0.0, 6, 0.2, 0.2),
    Term("exchange stack", "token bytes", 9.0, 7, 0.2, 0.2),
    Term("exchange stack", "topk", 0.0, 6, 0.2, 0.2),
)
ALL = (*TERMS, FEW_ROWS[0])  # every term that parameters may have curves of
