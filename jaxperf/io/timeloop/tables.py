"""Tables of mapped nests in, predictions out: the kinds of table that are known, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dictionary
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from hwspecs.errors import InputError
from jaxperf.io.timeloop import gemmini, random
from jaxperf.io.timeloop.batch import Row, predict_points
from jaxperf.io.timeloop.systolic import predict_systolic
from jaxperf.loopnest.reuse import RULES


class Kind(NamedTuple):
    """One kind of table. `columns`: that tell it; `predict`: records of rows under the rules of a version, or of the
    version that wrote the table; `answers`: what is kept of a record; `checks`: (answer, column it is compared with,
    unit of that column)."""

    name: str
    columns: tuple[str, ...]
    predict: Callable[[Sequence[Row], str | None], list[Row]]
    answers: tuple[str, ...]
    checks: tuple[tuple[str, str, float], ...]


def _random(rows: Sequence[Row], version: str | None) -> list[Row]:
    unit, levels = random.eyeriss_like().unit, random.STORAGE
    rules = RULES[version or "head"]
    return predict_points(rows, random.parse_random, random.NAMES, levels, unit, rules)


def _gemmini(rows: Sequence[Row], version: str | None) -> list[Row]:
    unit, levels = gemmini.UNIT, gemmini.LEVELS
    rules = RULES[version or "dosa"]
    return predict_points(rows, gemmini.parse_gemmini, gemmini.NAMES, levels, unit, rules)


def _systolic(rows: Sequence[Row], version: str | None) -> list[Row]:
    if version is not None:
        raise InputError("--timeloop: a table of systolic arrays follows SCALE-Sim; leave the option away.")
    return [predict_systolic(row) for row in rows]


NEST = ("cycles", "energy_j", "utilization", "edp_j_cycle", "limiter")
GEMMINI = Kind(
    "mappings of Gemmini",
    ("mapping.mapping", "prob.C", "arch.pe"),
    _gemmini,
    NEST,
    (
        ("cycles", "target.cycle", 1.0),
        ("energy_j", "target.energy", 1e-6),
        ("edp_j_cycle", "target.edp", 1.0),
        ("rtl_cycles", "target.gemmini_cycle", 1.0),
    ),
)
KINDS = (
    Kind(
        "mappings of the Eyeriss-like machine",
        ("dims", "factors"),
        _random,
        (*NEST, "levels"),
        (("cycles", "cycles", 1.0), ("energy_j", "energy_uJ", 1e-6), ("utilization", "utilization", 1e-2)),
    ),
    GEMMINI,
    Kind(
        "systolic arrays",
        ("dataflow", "array", "M", "N", "K"),
        _systolic,
        ("cycles", "utilization", "mapping_efficiency"),
        (
            ("cycles", "cycles", 1.0),
            ("utilization", "overall_util", 1e-2),
            ("mapping_efficiency", "mapping_eff", 1e-2),
        ),
    ),
)


def read_rows(path: Path) -> list[Row]:
    """The rows of a Parquet or CSV file. Raises `InputError` for one that cannot be read."""
    import pyarrow
    from pyarrow import csv, parquet

    if not path.is_file():
        raise InputError(f"Cannot read '{path}': {'it is a folder' if path.is_dir() else 'No such file'}.")
    read = parquet.read_table if path.suffix.lower() == ".parquet" else csv.read_csv
    try:
        return read(str(path)).to_pylist()
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from None
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a table: {error}.") from None


def kind_of(rows: Sequence[Any], source: str) -> Kind:
    """The kind of table, by its columns. Raises `InputError` for a table of no known kind."""
    if not rows:
        raise InputError(f"{source} has no rows.")
    columns = {name for row in rows if isinstance(row, Dictionary) for name in row}
    for kind in KINDS:
        if columns.issuperset(kind.columns):
            return kind
    known = "; ".join(f"{kind.name}: {', '.join(kind.columns)}" for kind in KINDS)
    raise InputError(f"{source} is no table of mapped nests; columns that tell one: {known}.")


def predict_rows(rows: Sequence[Any], source: str, version: str | None = None) -> list[Row]:
    """Predictions of every row, in order: columns that begin with `predicted_`, and a `reason` where there are none.

    **Arguments:** `version`: of Timeloop, a key of `RULES`; by default the one that wrote the table.
    """
    kind = kind_of(rows, source)
    found = kind.predict([dict(row) if isinstance(row, Dictionary) else {} for row in rows], version)
    named = [{f"predicted_{name}": record.get(name) for name in kind.answers} for record in found]
    return [{**own, "reason": record["reason"]} for own, record in zip(named, found, strict=True)]


def summary(rows: Sequence[Row], predicted: Sequence[Row], source: str) -> dict[str, Any]:
    """How many rows have a prediction, why others have none, and errors where the table states the answer."""
    kind = kind_of(rows, source)
    known = [row[f"predicted_{kind.answers[0]}"] is not None and not row["reason"] for row in predicted]
    reasons = Counter(row["reason"] for row, good in zip(predicted, known, strict=True) if not good)
    pairs = [(row, own) for row, own, good in zip(rows, predicted, known, strict=True) if good]
    checks = [_errors(pairs, *check) for check in kind.checks]
    return {
        "kind": kind.name,
        "rows": len(rows),
        "predicted": sum(known),
        "errors": [each for each in checks if each["rows"]],
        "reasons": [{"reason": reason, "rows": count} for reason, count in reasons.most_common()],
    }


def _errors(pairs: Sequence[tuple[Row, Row]], answer: str, column: str, unit: float) -> dict[str, Any]:
    """Relative errors of one answer where the table has the column; counts are equal where they are the same number."""
    both = [(row.get(column), own.get(f"predicted_{answer}")) for row, own in pairs]
    stated = [(truth * unit, found) for truth, found in both if _is_number(truth) and found is not None]
    if not stated:
        return {"column": column, "rows": 0}
    truth, found = np.asarray(stated).T
    error = np.abs(found / truth - 1.0)
    return {
        "column": column,
        "rows": len(stated),
        "equal": float((found == truth).mean()),
        "within_1_percent": float((error <= 0.01).mean()),
        "median": float(np.median(error)),
        "mean": float(error.mean()),
        "p90": float(np.percentile(error, 90)),
        "largest": float(error.max()),
    }


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0.0
