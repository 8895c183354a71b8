"""The rows of a sweep that are kept, as it goes: all of them or those selected, where nothing else lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hwspecs.errors import InputError
from jaxperf.core.metric import column_units
from jaxperf.core.version import VERSION
from jaxperf.io.tables import WRITERS, check_folder_of, check_output, csv_holds, json_metadata, json_text, write_rows
from jaxperf.report.sweep_question import REASON, Prepared, codes_of
from jaxperf.sweeps import (
    SWEEP_KEY,
    Count,
    Reducer,
    Selection,
    Sweep,
    fingerprint,
    reduce_sweep,
    require_mine,
    stream_parquet,
    write_selection,
)
from jaxperf.sweeps.files import stored_metadata

if TYPE_CHECKING:
    from jaxperf.io.sweep_file import Keep

NETCDF = (".nc", ".nc4", ".h5", ".hdf5")
# What ends so is meant as a file, so that no folder is made of that name.
OTHER_FILES = {*WRITERS, *NETCDF, ".arrow", ".feather", ".npz", ".parq", ".pq", ".tsv", ".txt", ".xlsx"} - {".parquet"}


class Kept(NamedTuple):
    """One selection per reducer, how many rows have each `reason` where it is known, and where rows were written, if
    they were."""

    selections: Sequence[Selection]
    reasons: Selection | None
    out: Path | None


def write_kept(
    built: Sweep,
    asked: Prepared,
    keep: Keep,
    reducers: Sequence[Reducer],
    out: Path,
    progress: Callable[[int, int], None] | None,
    overwrite: bool,
) -> Kept:
    """Write every row (resumable) or only the selected ones.

    **Raises:** `InputError` where `out` holds something else and is not to be overwritten.
    """
    study, origin = asked.study, asked.origin
    wanted = [*reducers, *([Count(REASON)] if REASON in study.metrics else [])]
    metadata = {
        "jaxperf.version": VERSION,
        "jaxperf.model": study.model.name,
        "jaxperf.task": study.task,
        "jaxperf.efficiencies": origin.sentence,
        "jaxperf.provenance": json_text(origin.record),
        "jaxperf.codes": json_text(codes_of(study)),
    }
    if keep.kind == "all":
        stored = stream_parquet(
            built,
            out,
            metadata=metadata,
            units=column_units(study.facts),
            progress=progress,
            reducers=wanted,
            overwrite=overwrite,
        )
        return Kept(*_apart(stored.selections, len(reducers)), out)
    mine = fingerprint(built, metadata | {"keep": str(keep)})
    if not overwrite:
        _require_same_file(out, mine)
    selections = reduce_sweep(built, wanted, progress)
    kept = selections[0]
    if not len(kept) and out.exists():
        return Kept(*_apart(selections, len(reducers)), None)
    metadata[SWEEP_KEY] = json_text(mine)
    if out.suffix.lower() == ".parquet":
        write_selection(built, kept, out, metadata=metadata, units=column_units(study.facts))
    else:
        rows, columns = rows_of(built, kept), list(built.rows(kept))
        if out.suffix.lower() == ".csv" and not overwrite:
            _require_same_csv(out, rows, columns)
        write_rows(rows, out, metadata, columns)
    return Kept(*_apart(selections, len(reducers)), out)


def reasons_of(asked: Prepared) -> Selection:
    """How many points have each `reason`, of a question that need not have it among its metrics."""
    (counted,) = reduce_sweep(Sweep(asked.study.asking((REASON,)).point(), asked.axes), [Count(REASON)])
    return counted


def _require_same_file(out: Path, mine: Mapping[str, str]) -> None:
    """Refuse to replace what another sweep wrote, or no sweep, before anything is computed; a CSV does not tell."""
    if out.exists() and out.suffix.lower() != ".csv":
        stored = stored_metadata(out) if out.suffix.lower() == ".parquet" else json_metadata(out)
        require_mine(out, stored.get(SWEEP_KEY), mine)


def _require_same_csv(out: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Refuse to replace other rows; of which sweep a CSV is, its rows alone tell."""
    if out.exists() and not csv_holds(out, rows, columns):
        raise InputError(f"'{out}' holds other rows: name another path, delete it, or ask to overwrite it.")


def _apart(selections: Sequence[Selection], reducers: int) -> tuple[Sequence[Selection], Selection | None]:
    """Those of the reducers, and what was counted beside them."""
    return selections[:reducers], next(iter(selections[reducers:]), None)


def check_place(keep: Keep, out: Path) -> None:
    """Refuse a place that cannot be written before anything is computed.

    **Raises:** `InputError`.
    """
    if keep.kind != "all":
        check_output(out)
    elif out.suffix.lower() in OTHER_FILES and not out.is_dir():
        xarray = "; in Python, jaxperf.sweep(...).to_netcdf writes one" if out.suffix.lower() in NETCDF else ""
        raise InputError(f"Cannot write '{out}': all rows of a sweep go to a .parquet file or to a folder{xarray}.")
    else:
        check_folder_of(out)


def rows_of(sweep: Sweep, selection: Selection) -> list[dict[str, Any]]:
    """What a selection holds, as plain data."""
    columns = sweep.rows(selection)
    return [{name: column[index].item() for name, column in columns.items()} for index in range(len(selection))]
