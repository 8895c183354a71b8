"""What the commands that predict a table share: the errors they report, the source they name, how they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jaxperf.cli.options import EXIT_INFEASIBLE

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

FEW = 8  # rows of a table whose answers are printed too
Shown = tuple[str, float]  # the head of a column, and the factor to its unit


def error_figures(error: np.ndarray) -> dict[str, Any]:
    """Rows, mean and median of the errors that are known; empty where none is."""
    import numpy as np

    known = error[np.isfinite(error)]
    if not len(known):
        return {}
    return {"rows": len(known), "mean": float(known.mean()), "median": float(np.median(known))}


def errors_by_tier(error: np.ndarray, tiers: np.ndarray) -> list[dict[str, Any]]:
    """`error_figures` of every tier that has a known error."""
    names = sorted(set(tiers.tolist()) - {""})
    found = [{"tier": name, **error_figures(error[tiers == name])} for name in names]
    return [row for row in found if "rows" in row]


def source_record(card: Mapping[str, Any], path: Path | None, **more: Any) -> dict[str, Any]:
    """Which fitted file gave an answer: where it lies, when and of what data it was made, and what it knows."""
    stated = "shipped" if path is None else str(path)
    return {"path": stated, "created": card.get("created"), **more, "data": card.get("data", [])}


def stamp(sources: Mapping[str, Any]) -> dict[str, str]:
    """Metadata of a Parquet file: the version and the fitted files that its predictions come from."""
    from jaxperf.core.version import VERSION
    from jaxperf.io.tables import json_text

    return {"jaxperf": json_text({"version": VERSION, **sources})}


def print_source(out: Console, source: Mapping[str, Any], made_on: str) -> None:
    """The sentence on where the fitted scalars are from, and what errors on the rows they saw are worth."""
    out.print(
        f"scalars: {source['path']}, made {source['created']} on {made_on}; errors are no test where these have seen "
        "the rows",
        soft_wrap=True,
    )


def few_answers(columns: Mapping[str, np.ndarray], shown: Mapping[str, Shown]) -> list[dict[str, Any]]:
    """The answers of a table of at most `FEW` rows, `row` from 1 on, for whoever asks about one; of more rows none.

    **Arguments:** `columns`: of a prediction [rows]; `shown`: which of them -> how they are printed; what has an
    interval has it here, printed or not.
    """
    first = columns[next(iter(shown))]
    ends = [f"{name}_{end}" for name in shown for end in ("lower", "upper") if f"{name}_{end}" in columns]
    names = dict.fromkeys([*shown, *ends])
    if len(first) > FEW:
        return []
    return [
        {"row": place + 1, **{name: float(columns[name][place]) for name in names}}
        for place, value in enumerate(first.tolist())
        if math.isfinite(value)
    ]


def print_few(out: Console, answers: Sequence[Mapping[str, Any]], shown: Mapping[str, Shown]) -> None:
    """The table of `few_answers`; nothing where there are none."""
    from jaxperf.report.text import number, table

    if answers:
        cells = [
            (str(each["row"]), *(number(each[name] * scale) for name, (_, scale) in shown.items())) for each in answers
        ]
        out.print(table("", ("row", *(head for head, _ in shown.values())), cells))


def end(record: dict[str, Any], as_json: bool, quiet: bool, show: Callable[[dict[str, Any], bool], None]) -> None:
    """Prints the record as JSON or by `show`, and ends the command: infeasible where no row was predicted."""
    from jaxperf.io.tables import json_text

    if as_json:
        typer.echo(json_text(record))
    else:
        show(record, quiet)
    if not record["predicted"]:
        raise typer.Exit(EXIT_INFEASIBLE)
