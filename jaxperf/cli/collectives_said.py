"""What `jaxperf collectives` says of its answer: rows by tier, errors where times are stated, and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxperf.cli.measured import counted, print_problems, print_reasons
from jaxperf.cli.predicted import error_figures, source_line

if TYPE_CHECKING:
    import numpy as np

    from calibration.collectives.predict import Columns
    from calibration.datasets import Read

MICRO = 1e6


def summary(read: Read, columns: Columns) -> dict[str, Any]:
    """Rows by tier with errors where the table states a time, and why rows have no prediction, as plain data."""
    import numpy as np

    from calibration.collectives.rows import FAMILY
    from calibration.datasets import scatter
    from calibration.datasets.text import as_text

    found = read.table(FAMILY)
    time, tier, reason = np.asarray(columns["predicted_us"]), as_text(columns["tier"]), as_text(columns["reason"])
    stated = None if found is None or found.latency is None else found.latency
    unknown = np.full(read.rows, np.nan)
    measured = unknown if found is None or stated is None else scatter(read.rows, found.row, stated * MICRO)
    known = np.isfinite(time)
    numbers = {name: np.asarray(columns[name]) for name in ("predicted_us", "lower_us", "upper_us", "roofline_us")}
    names = sorted(tier[known].counts())
    return {
        "rows": read.rows,
        "predicted": int(known.sum()),
        "groups": [_group(name, known & (tier == name), numbers, measured) for name in names],
        "without_prediction": counted(Counter(reason[~known].counts())),
        "notes": counted(Counter({text: count for text, count in reason[known].counts().items() if text})),
    }


def _group(tier: str, at: np.ndarray, numbers: Mapping[str, np.ndarray], measured: np.ndarray) -> dict[str, Any]:
    """Medians over the rows of a tier; errors over those that state a time."""
    import numpy as np

    time, stated = numbers["predicted_us"], at & np.isfinite(measured)
    error = lambda values: np.abs(values[stated] / measured[stated] - 1.0)  # noqa: E731
    median = lambda values: float(np.median(values)) if len(values) else float("nan")  # noqa: E731
    own = error_figures(error(time))
    return {
        "tier": tier,
        "rows": int(at.sum()),
        "lower": median(numbers["lower_us"][at] / time[at] - 1.0),
        "upper": median(numbers["upper_us"][at] / time[at] - 1.0),
        "measured": own.get("rows", 0),
        "median_error": own.get("median", float("nan")),
        "mean_error": own.get("mean", float("nan")),
        "roofline_error": median(error(numbers["roofline_us"])),
    }


def print_record(record: dict[str, Any], quiet: bool) -> None:
    """The record as a table and sentences."""
    from jaxperf.report.text import console, table

    out = console()
    heads = ("tier", "rows", "90 % interval", "with a time", "error", "mean", "alpha-beta's")
    percent = lambda share: "-" if share != share else f"{share:.1%}"  # noqa: E731
    cells = [
        (
            group["tier"],
            f"{group['rows']:,}",
            f"{group['lower']:+.0%} {group['upper']:+.0%}",
            f"{group['measured']:,}",
            *(percent(group[name]) for name in ("median_error", "mean_error", "roofline_error")),
        )
        for group in record["groups"]
    ]
    title = f"{record['predicted']:,} of {record['rows']:,} rows predicted"
    out.print(table(title, heads, cells) if cells else title)
    print_reasons(out, record, quiet)
    if not quiet and "problems" in record:
        print_problems(out, record["problems"])
        source = record["parameters"]
        out.print(source_line(source, f"{len(source['devices'])} devices"), soft_wrap=True)
    out.print(f"written: {record['out']}", soft_wrap=True)
