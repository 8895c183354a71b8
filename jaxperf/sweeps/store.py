"""Stream a sweep to Parquet: bounded memory, every finished block safe on disk, the same command resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hwspecs.errors import InputError
from jaxperf.sweeps.columns import arrow_schema, arrow_table, codes_of_block, codes_of_rows
from jaxperf.sweeps.files import join_parts, plain_errors, read_columns, stored_metadata, undamaged, write_atomically
from jaxperf.sweeps.manifest import Fingerprint, Place, fingerprint, from_text, require_mine, require_same
from jaxperf.sweeps.reduce import Reducer, Selection, update_all
from jaxperf.sweeps.run import BlockResult, Progress, Sweep

if TYPE_CHECKING:
    import pyarrow as pa

SWEEP_KEY = "jaxperf.sweep"  # the schema metadata entry that holds the fingerprint


class Interrupted(KeyboardInterrupt):
    """A sweep was stopped (Ctrl-C); what was finished is kept, and the same call resumes it.

    A `KeyboardInterrupt`, so that no handler of ordinary errors swallows it.
    """

    def __init__(self, path: Path, done_blocks: int, total_blocks: int, done_points: int, total_points: int) -> None:
        self.path = path
        self.done_blocks = done_blocks
        self.total_blocks = total_blocks
        self.done_points = done_points
        self.total_points = total_points
        super().__init__(
            f"Interrupted: {done_blocks:,} of {total_blocks:,} blocks ({done_points:,} of {total_points:,} points) "
            f"are finished and kept in '{path}'; the same command resumes from there."
        )


@dataclass(frozen=True)
class Stored:
    """What `stream_parquet` wrote.

    **Arguments:** `path`: file or folder. `rows`: number of rows in it. `resumed_points`: points taken from an
    earlier, interrupted run. `selections`: one per reducer.
    """

    path: Path
    rows: int
    resumed_points: int
    selections: tuple[Selection, ...]


def stream_parquet(
    sweep: Sweep,
    path: str | os.PathLike,
    *,
    metadata: Mapping[str, str] | None = None,
    identity: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    reducers: Sequence[Reducer] = (),
    overwrite: bool = False,
) -> Stored:
    """Write one row per point, in C order of the axes whatever the block shape; run again to resume.

    **Arguments:**

    - `path`: ending in .parquet, one file (parts lie in `<path>.parts` until it is complete); otherwise a folder of
        parts that Parquet readers open as one data set.
    - `metadata`: provenance, stored in the schema. `units`: column -> unit, stored with each column.
    - `identity`: what, besides axes and formula, makes two runs the same sweep. Defaults to `metadata`; give it when
        `metadata` holds a date or anything else that differs from run to run.
    - `progress`: called at the start (with points of an earlier run) and after each block.
    - `reducers`: fed with every row, also those of an earlier run.
    - `overwrite`: replace the results of a different sweep instead of refusing.

    **Returns:** a `Stored`.

    **Raises:** `InputError` for a path that cannot be written (found before computing), a full disk (finished parts
    stay), or another sweep's results in the same place. `Interrupted` on Ctrl-C.
    """
    for reducer in reducers:
        reducer.check(tuple(sweep.metrics))
    metadata = dict(metadata or {})
    mine = fingerprint(sweep, metadata if identity is None else identity)
    schema = arrow_schema(sweep.axes, sweep.metrics, units, metadata | {SWEEP_KEY: json.dumps(mine)})
    place = Place.named(path)
    run = _Run(sweep, place, schema, tuple(reducers), progress)
    with plain_errors(place.target):
        place.check()
        if _is_complete(place, mine, sweep.plan.points, overwrite):
            place.clear()
            return run.reread()
        found = place.found(overwrite)
        if found is not None and found != mine:
            if not overwrite:
                require_same(place.parts, found, mine)
            place.clear()
        place.open(mine)
    return run.write()


def write_selection(
    sweep: Sweep,
    selection: Selection,
    path: str | os.PathLike,
    *,
    metadata: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
) -> None:
    """Write the rows a reducer kept as one Parquet file, replacing it if it exists.

    **Raises:** `InputError` if the file cannot be written.
    """
    schema = arrow_schema(sweep.axes, sweep.metrics, units, metadata)
    table = arrow_table(sweep.axes, codes_of_rows(sweep.plan.sizes, selection.indices), selection.metrics, schema)
    target = Path(path)
    if not target.absolute().parent.is_dir():
        raise InputError(f"Cannot write '{target}': the folder '{target.absolute().parent}' does not exist.")
    with plain_errors(target):
        write_atomically(target, target.with_name(f".tmp-{target.name}"), [table], schema, list(selection.metrics))


@dataclass(frozen=True)
class _Run:
    """One call of `stream_parquet`, after its place was found fit."""

    sweep: Sweep
    place: Place
    schema: pa.Schema
    reducers: tuple[Reducer, ...]
    progress: Progress | None

    def write(self) -> Stored:
        """Evaluate what is missing, one part per block; then join the parts where one file was asked for."""
        plan = self.sweep.plan
        finished = {block.index for block in plan.iterate() if undamaged(self.place.part(block.index), block.points)}
        done = resumed = sum(plan.block(index).points for index in finished)
        try:
            kept = self._reduce_finished(sorted(finished))
            self._report(done)
            with closing(self.sweep.blocks(skip=frozenset(finished))) as blocks:
                for result in blocks:
                    with plain_errors(self.place.target, self._state(len(finished))):
                        self._write_part(result)
                    finished.add(result.index)
                    done += result.block.points
                    kept = update_all(self.reducers, kept, result.block.start, result.columns)
                    self._report(done)
            if self.place.single:
                with plain_errors(self.place.target, self._state(len(finished))):
                    self._join()
        except KeyboardInterrupt:
            raise Interrupted(self.place.parts, len(finished), plan.blocks, done, plan.points) from None
        return Stored(self.place.target, plan.points, resumed, tuple(one for one in kept if one is not None))

    def reread(self) -> Stored:
        """The file is complete already: only the reducers need its rows."""
        points = self.sweep.plan.points
        kept: list[Selection | None] = [None] * len(self.reducers)
        if self.reducers:
            kept = self._reduce_file(self.place.target, 0, kept)
        self._report(points)
        return Stored(self.place.target, points, points, tuple(one for one in kept if one is not None))

    def _reduce_finished(self, indices: Sequence[int]) -> list[Selection | None]:
        kept: list[Selection | None] = [None] * len(self.reducers)
        if self.reducers:
            for index in indices:
                kept = self._reduce_file(self.place.part(index), self.sweep.plan.block(index).start, kept)
        return kept

    def _reduce_file(self, path: Path, start: int, kept: list[Selection | None]) -> list[Selection | None]:
        for columns in read_columns(path, self.sweep.metrics):
            kept = update_all(self.reducers, kept, start, columns)
            start += len(next(iter(columns.values())))
        return kept

    def _write_part(self, result: BlockResult) -> None:
        table = arrow_table(self.sweep.axes, codes_of_block(result.slices), result.columns, self.schema)
        final = self.place.part(result.index)
        write_atomically(final, self.place.temporary(final), [table], self.schema, list(self.sweep.metrics))

    def _join(self) -> None:
        parts = [self.place.part(block.index) for block in self.sweep.plan.iterate()]
        temporary = self.place.temporary(self.place.target)
        write_atomically(self.place.target, temporary, join_parts(parts), self.schema, list(self.sweep.metrics))
        self.place.clear()

    def _state(self, finished: int) -> str:
        return (
            f"; {finished:,} of {self.sweep.plan.blocks:,} blocks are finished and kept in '{self.place.parts}', "
            "and the same command resumes from there"
        )

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.sweep.plan.points)


def _is_complete(place: Place, mine: Fingerprint, points: int, overwrite: bool) -> bool:
    """Whether the one file asked for already holds this sweep.

    **Raises:** `InputError` if it holds anything else, or this one damaged, and may not be overwritten.
    """
    if not place.single or not place.target.exists():
        return False
    stored = stored_metadata(place.target).get(SWEEP_KEY)
    if from_text(stored) == mine:
        if undamaged(place.target, points):
            return True
        if not overwrite:
            raise InputError(f"'{place.target}' is damaged: delete it, or ask to overwrite it.")
    elif not overwrite:
        require_mine(place.target, stored, mine)
    return False
