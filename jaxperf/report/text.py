"""Numbers as people write them, and plain-text tables."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

import hwspecs
from jaxperf.core.cost import Limiter
from jaxperf.serving.unit_costs import DOLLARS, ENERGY

ENDS = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)  # spaces before a line's end, and what ends a style
LIMITER_WORDS = {
    Limiter.COMPUTE: "compute",
    Limiter.MEMORY: "memory",
    Limiter.NETWORK: "network",
    Limiter.LATENCY: "kernel launch",
    Limiter.HOST: "host",
}


def quantity(value: float, unit: str, digits: int = 3) -> str:
    """A value with a readable prefix: `21.4 ms`, `80 GB`; "-" where it is NaN."""
    return "-" if math.isnan(value) else hwspecs.format_quantity(value, unit, digits)


def number(value: float) -> str:
    """Three significant digits without an exponent: 0.0124, 12.4, 1240."""
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100.0 else f"{value:#.3g}".rstrip(".")


def counted(count: int, word: str) -> str:
    """`1 layer`, `1,200 layers`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def milliseconds(value: float) -> str:
    """A time in milliseconds, so that a column can be compared at a glance."""
    return number(value * 1e3)


def gigabytes(value: float) -> str:
    """Bytes as decimal gigabytes with three digits."""
    return f"{value / 1e9:.3g} GB"


def interval(lower: float, upper: float, scale: float = 1.0) -> str:
    """`[19.6, 24.0]` after multiplying by `scale`."""
    return f"[{number(lower * scale)}, {number(upper * scale)}]"


def unit_cost_words(costs: Mapping[str, float]) -> str:
    """`0.69 kWh at most and $3.40 a million output tokens`, of `serving.unit_costs`."""
    words = [f"{number(costs[ENERGY])} kWh at most"]
    words += [f"${number(costs[DOLLARS])}"] if not math.isnan(costs.get(DOLLARS, math.nan)) else []
    return f"{' and '.join(words)} a million output tokens"


def layout_words(point: Mapping[str, Any]) -> str:
    """A parallel layout the way people say it: `TP8`, `TP4 PP2`, `DP8 EP8`; ranks that are not told are one."""
    short = {"tensor_parallel": "TP", "pipeline_parallel": "PP", "data_parallel": "DP", "expert_parallel": "EP"}
    parts = [f"{word}{int(point[name])}" for name, word in short.items() if int(point.get(name, 1)) > 1]
    return " ".join(parts) or "TP1"


def limiter_words(shares: dict[Limiter, float], count: int = 3) -> str:
    """`memory 71 %, network 12 %`: the largest shares."""
    return ", ".join(f"{LIMITER_WORDS[limiter]} {share:.0%}" for limiter, share in list(shares.items())[:count])


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose first column and text columns are left-aligned, numbers right."""
    whole = Text(title, "bold", no_wrap=True, overflow="ignore")  # a title longer than its table is not folded to it
    built = Table(title=whole if title else None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, name in enumerate(columns):
        numeric = all(_looks_numeric(row[index]) for row in rows)
        built.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        built.add_row(*row)
    return built


def paragraph(label: str, text: str) -> str:
    """Text wrapped to 100 columns under a short label."""
    return textwrap.fill(text, 100, initial_indent=f"{label:6s}", subsequent_indent=" " * 6)


def print_notes(out: Console, notes: Iterable[str], quiet: bool) -> None:
    """What an answer assumes or leaves out, a line each; nothing if `quiet`."""
    for note in () if quiet else notes:
        out.print(f"note: {note}", soft_wrap=True)


def console(stderr: bool = False) -> Console:
    """Plain output when piped. A table is as wide as it needs on a terminal too, so that nothing is cut: a narrower
    one wraps its lines.

    Text is printed as it is: a name of the user's may hold what rich would take for its markup or for an emoji.
    """
    found = (Console if stderr else _Trimmed)(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = 200
    return found


class _Trimmed(Console):
    """Prints tables whole, and no spaces at the ends of lines, with which tables fill their last column."""

    def print(self, *objects: Any, **options: Any) -> None:
        there = self.width
        self.width = max([there, *(_width(each) for each in objects if isinstance(each, Table))])
        try:
            with self.capture() as captured:
                super().print(*objects, **options)
        finally:
            self.width = there
        self.file.write(ENDS.sub(r"\1", captured.get()))
        self.file.flush()


def _width(whole: Table) -> int:
    """Characters of a table's longest line, or its title, when nothing is cut."""
    unbounded = Console(width=10**6, markup=False, emoji=False)
    title = whole.title.cell_len if isinstance(whole.title, Text) else 0
    return max(title, Measurement.get(unbounded, unbounded.options, whole).maximum)


def bold(head: str, rest: str = "") -> Text:
    """A line whose beginning stands out."""
    return Text.assemble((head, "bold"), rest)


def _looks_numeric(text: str) -> bool:
    listed = ", " in text and not text.startswith("[")
    return (text[:1].isdigit() and not listed) or text[:1] in "-[<" or not text
