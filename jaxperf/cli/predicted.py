"""What the commands that predict a table share: the errors they report, the source they name, how they end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxperf.cli.measured import counted, print_reasons
from jaxperf.cli.options import EXIT_INFEASIBLE

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

FEW = 8  # rows of a table whose answers are printed too
Shown = tuple[str, float]  # the head of a column, and the factor to its unit
OutTable = Annotated[
    Path, typer.Option("-o", "--out", metavar="FILE", help="The same rows with predictions; never TABLE itself.")
]


def answer_record(
    table: Path,
    out: Path,
    columns: Mapping[str, np.ndarray],
    shown: Mapping[str, Shown],
    notes_of: Callable[[str], Iterable[str]] = lambda reason: [reason],
    of_all: Sequence[str] = (),
) -> dict[str, Any]:
    """How many rows were predicted, why others were not, what to know of those that were, and the answers of a few.

    **Arguments:** `columns`: of the prediction [rows]; `shown`: as of `few_answers`, first the column that every
    predicted row has; `notes_of`: the notes in the reason of such a row; `of_all`: what is to be known of all rows.
    """
    import numpy as np

    known = np.isfinite(columns[next(iter(shown))])
    reasons = columns["reason"]
    return {
        "table": str(table),
        "out": str(out),
        "rows": len(known),
        "predicted": int(known.sum()),
        "without_prediction": counted(Counter(reasons[~known].tolist())),
        "notes": [
            *({"reason": note, "rows": len(known)} for note in of_all),
            *counted(Counter(note for reason in reasons[known].tolist() for note in notes_of(reason))),
        ],
        "answers": few_answers(columns, shown),
    }


def tiers_of(columns: Mapping[str, np.ndarray], shown: Mapping[str, Shown]) -> dict[str, int]:
    """How many predicted rows there are of each tier; arguments as of `answer_record`."""
    import numpy as np

    return dict(Counter(columns["tier"][np.isfinite(columns[next(iter(shown))])].tolist()))


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


def source_line(source: Mapping[str, Any], made_on: str) -> str:
    """The sentence on where the fitted scalars are from, and what errors on the rows they saw are worth."""
    made = f"scalars: {source['path']}, made {source['created']} on {made_on}"
    return f"{made}; errors are no test where these have seen the rows"


def error_cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """`error_figures` as they are printed."""
    return f"{row['rows']:,}", f"{row['mean']:.1%}", f"{row['median']:.1%}"


def print_answer(
    record: Mapping[str, Any],
    shown: Mapping[str, Shown],
    errors: tuple[str, Sequence[str], Sequence[Sequence[str]]],
    lines: Sequence[str],
    quiet: bool,
) -> None:
    """A record: its errors, the answers of a few rows, reasons, and what else is to be said.

    **Arguments:** `errors`: title, heads and rows of their table, the title alone where there are none; `lines`: with
    the notes left out if `quiet`.
    """
    from jaxperf.report.text import console, table

    out = console()
    out.print(table(*errors) if errors[2] else errors[0])
    print_few(out, record["answers"], shown)
    print_reasons(out, record, quiet)
    for line in (*(() if quiet else lines), f"written: {record['out']}"):
        out.print(line, soft_wrap=True)


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
