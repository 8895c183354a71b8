"""Results as rows, and rows as a plain table."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One result: `value` in `unit`, what it is, and the target it has to meet (">= 8"), if any."""

    benchmark: str
    what: str
    value: float
    unit: str
    target: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; `None` without one. A value that could not be measured (NaN) meets none."""
        if not self.target:
            return None
        relation, limit = self.target.split()
        compare = {">=": operator.ge, "<=": operator.le, "==": operator.eq}[relation]
        return bool(compare(self.value, float(limit)))  # a NumPy value compares to what JSON does not know

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a value that could not be measured is null."""
        return {**asdict(self), "value": self.value if self.value == self.value else None, "met": self.met}


def from_dict(row: dict[str, Any]) -> Row:
    """The inverse of `Row.to_dict`."""
    fields = {name: row[name] for name in Row.__dataclass_fields__}
    return Row(**{**fields, "value": float("nan") if row["value"] is None else row["value"]})


def number(value: float) -> str:
    """Three digits, thousands separated; "-" for what could not be measured."""
    if value != value:
        return "-"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text: benchmark, value, target, verdict, what was measured."""
    verdict = {True: "met", False: "MISSED", None: ""}
    header = ("benchmark", "value", "target", "", "what")
    cells = [
        (row.benchmark, f"{number(row.value)} {row.unit}".strip(), row.target, verdict[row.met], _described(row))
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [header, *cells]) for column in range(4)]
    lines = [header, tuple("-" * width for width in widths) + ("-" * 4,), *cells]
    return "\n".join(
        "  ".join(
            [f"{line[0]:<{widths[0]}}", f"{line[1]:>{widths[1]}}", f"{line[2]:>{widths[2]}}"]
            + [f"{line[3]:<{widths[3]}}", line[4]]
        ).rstrip()
        for line in lines
    )


def _described(row: Row) -> str:
    return f"{row.what} ({row.note})" if row.note else row.what
