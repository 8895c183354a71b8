"""Parquet files: written whole or not at all, read back column by column."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hwspecs.errors import InputError
from jaxperf.sweeps.columns import Column

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 2**18  # small parts are joined into row groups of at least this many rows
# Measured on 1 M rows: 0.25 s and 39 MB, against 0.18 s and 51 MB uncompressed; higher levels gain nothing.
_COMPRESSION = {"compression": "zstd", "compression_level": 1}


def write_atomically(
    final: Path, temporary: Path, tables: Iterable[pa.Table], schema: pa.Schema, metrics: Sequence[str]
) -> None:
    """Write `tables` one after the other to `temporary`, then move it to `final`; nothing half-written stays behind.

    **Arguments:** `metrics`: the columns whose values rarely repeat; all others are dictionary-encoded in the file.

    **Raises:** `OSError` if the file system refuses.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    floats = [name for name in metrics if pa.types.is_floating(schema.field(name).type)]
    repeating = [name for name in schema.names if name not in metrics]
    try:
        with pq.ParquetWriter(
            temporary,
            schema,
            use_dictionary=repeating,  # pyright: ignore[reportArgumentType]  (a list of columns is allowed)
            column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
            write_page_checksum=True,
            **_COMPRESSION,
        ) as writer:
            for table in tables:
                writer.write_table(table)
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def join_parts(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """The tables at `paths` in order, small ones joined so that the final file has row groups of a sensible size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[pa.Table] = []
    for path in paths:
        with pq.ParquetFile(path) as file:  # unlike read_table, takes no column from folders named key=value
            waiting.append(file.read())
        if sum(table.num_rows for table in waiting) >= _GROUP_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def read_columns(path: Path, dtypes: Mapping[str, np.dtype]) -> Iterator[dict[str, Column]]:
    """The given columns of a file, a bounded number of rows at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_GROUP_ROWS, columns=list(dtypes)):
            yield {
                name: batch.column(name).to_numpy(zero_copy_only=False).astype(dtype, copy=False)
                for name, dtype in dtypes.items()
            }


def undamaged(path: Path, rows: int) -> bool:
    """Whether `path` is a Parquet file of so many rows that are as they were written; a part truncated by a crash or
    with a flipped byte is not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        return False
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return rows == sum(batch.num_rows for batch in file.iter_batches(batch_size=_GROUP_ROWS))
    except (OSError, pa.ArrowException):
        return False


def stored_metadata(path: Path) -> dict[str, str]:
    """The schema metadata of a Parquet file; empty for a file that is not Parquet, or damaged there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pairs = pq.read_schema(path).metadata or {}
        return {key.decode(): value.decode() for key, value in pairs.items() if key != b"ARROW:schema"}
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return {}


@contextmanager
def plain_errors(target: Path, state: str = "") -> Iterator[None]:
    """Raises what the file system refuses as an `InputError` about `target`, followed by `state`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise InputError(f"Cannot write '{target}': {reason}{state}.") from error
