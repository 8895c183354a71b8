"""Read a table of measured or wanted kernels: any of the shared tables, or a user's own with named columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import hwspecs
from calibration.datasets import names, neusight
from calibration.datasets.columns import Notes, Sheet, open_sheet, standard_columns
from calibration.datasets.families import COLLECTIVES, split_by_family
from calibration.datasets.files import counts_lines, line_numbers, read_pieces
from calibration.datasets.groups import IDENTITY, grouped
from calibration.datasets.identities import read_identity
from calibration.datasets.latency import is_time, read_latency
from calibration.datasets.norms import with_kind
from calibration.datasets.published import rewrite
from calibration.datasets.schema import FAMILIES, KernelTable, Read
from calibration.datasets.shapes import MOST, read_shape
from calibration.datasets.stated_formats import COLUMNS, known_formats, stated_formats
from calibration.datasets.text import Column, Text, as_text, joined
from hwspecs.errors import InputError
from hwspecs.registry import Directory, Registry
from jaxperf.io.column_names import misspelled

DEVICE_COLUMNS = ("device", "gpu", "device_name", "gpu_name", "accelerator")
# The names a table may use for what identifies a row, save the number formats (`stated_formats.COLUMNS`).
_IDENTITY = {
    "device": (DEVICE_COLUMNS, names.device_name),
    "framework": (("framework", "backend"), names.framework_name),
    "version": (("version", "framework_version"), names.version_name),
    "kernel": (("kernel", "kernel_source", "kernel_name"), names.as_written),
}
_WORDS = dict.fromkeys(("op", "distribution", "topology"), names.in_lower_case)
_TEXT = ("model", "source", "split", "origin")
TEXT_COLUMNS = frozenset(
    (*_WORDS, *_TEXT, "kind", "family", *(name for known, _ in _IDENTITY.values() for name in known))
) | frozenset(name for known in COLUMNS.values() for name in known)
_SHAPES = {name for family in FAMILIES.values() for column in family for name in (column.name, *column.other)}
_READ = TEXT_COLUMNS | _SHAPES | neusight.COLUMNS | {"flag"}
_ITEMSIZE = {"fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5}


def read_table(
    path: str | Path,
    family: str | None = None,
    chunk: int | None = None,
    directories: Iterable[Directory] = (),
    timed: bool = True,
) -> Read:
    """All rows of a table, as one `KernelTable` a family, and everything that was wrong.

    **Arguments:** `path`: .parquet, .csv, .tsv (also .gz), .json or .jsonl; `family`: one of `FAMILIES` where the
    columns do not tell it; `chunk`: rows decoded at a time, which bounds the memory beside the result;
    `directories`: the user's own devices, as for `hwspecs.open_registry`; `timed`: whether the measured times are what
    the table is read for.
    **Raises:** `InputError` for a file that cannot be read, lacks a column its family needs or, if `timed`, has a time
    without a unit or two that contradict each other. A bad row is a `Problem`, as is a repeated one; none is dropped
    silently.
    """
    notes = Notes()
    pieces: dict[str, list[KernelTable]] = {}
    registry = hwspecs.open_registry(directories)
    rows = 0
    for sheet in _sheets(path, chunk, notes, timed):
        rows += sheet.rows
        for table in _tables(sheet, family, registry, timed):
            pieces.setdefault(table.family, []).append(table)
    if rows == 0:
        raise InputError(f"{path} has no rows.")
    tables = tuple(_joined(pieces.pop(name)) for name in FAMILIES if name in pieces)
    for table in tables:
        _note_repeats(table, notes)
    problems = notes.problems()
    return Read(tables, problems, rows, str(path), line_numbers(Path(path)) if problems and counts_lines(path) else ())


def iterate_table(
    path: str | Path, chunk: int, family: str | None = None, directories: Iterable[Directory] = ()
) -> Iterator[Read]:
    """The same a piece of at most `chunk` rows at a time, for tables larger than the memory; `row` counts on.

    The family is told by each piece's columns, and repeated rows are counted within a piece.
    """
    registry = hwspecs.open_registry(directories)
    start = 0
    for table in read_pieces(path, chunk):
        notes = Notes()
        sheet = _sheet(table, str(path), start, notes)
        tables = tuple(_tables(sheet, family, registry))
        for part in tables:
            _note_repeats(part, notes)
        start += sheet.rows
        yield Read(tables, notes.problems(), sheet.rows, str(path))
    if start == 0:
        raise InputError(f"{path} has no rows.")


def _sheets(path: str | Path, chunk: int | None, notes: Notes, timed: bool) -> Iterator[Sheet]:
    start = 0
    for table in read_pieces(path, chunk):
        yield _sheet(table, str(path), start, notes, timed)
        start += len(table)


def _sheet(table: pa.Table, path: str, start: int, notes: Notes, timed: bool = True) -> Sheet:
    """A piece with standard columns. Which of N and K is the reduction may be unclear: say so."""
    standard = standard_columns(path, table.column_names, lambda name: name in _READ or (timed and is_time(name)))
    written, product = set(table.column_names), {"B", "M", "N", "K"}
    rows = np.arange(start, start + len(table))
    if neusight.is_neusight(set(standard)) and not product <= written and product <= {name.upper() for name in written}:
        notes.alike(rows, "n", "read as NeuSight's: B times [M, N] by [N, K], N the reduction.")
    elif product <= written and not neusight.is_neusight(set(standard)):
        message = "read as B times [M, K] by [K, N], K the reduction; NeuSight's tables have a column OPName or H."
        notes.alike(rows, "K", message)
    return open_sheet(rewrite(table.select(list(standard.values())).rename_columns(list(standard))), path, start, notes)


def _tables(sheet: Sheet, family: str | None, registry: Registry, timed: bool = True) -> Iterator[KernelTable]:
    if sheet.rows == 0:
        return
    groups = split_by_family(sheet, family)
    formats = stated_formats(sheet)
    identity, unclear = _identity(sheet, registry)
    identity |= {name: each.name for name, each in formats.items()}
    text = {name: sheet.named(name, names.as_written) for name in _TEXT if name in sheet}
    words = _WORDS | {"distribution": names.routing_name} if any(name == "moe" for name, _ in groups) else _WORDS
    text |= {name: sheet.named(name, meaning) for name, meaning in words.items() if name in sheet}
    wire = {"wire": sheet.named("dtype", names.wire_format)} if "dtype" in sheet else {}
    latency = read_latency(sheet, timed)
    _note_misspelled(sheet, [name for name, _ in groups])
    flag = _flags(sheet)
    for name, index in groups:
        shape, good = read_shape(sheet, name, index, alone=len(groups) == 1)
        good &= known_formats(sheet, formats, name, index) & ~unclear[index]
        if not good.any():
            continue
        kept = index[good]
        table = KernelTable(
            family=name,
            row=kept.astype(np.int64) + sheet.start,
            **{key: column[kept] for key, column in identity.items()},
            shape={key: values[good] for key, values in shape.items()},
            latency=None if latency is None else latency[kept],
            flag=flag[kept],
            text={key: column[kept] for key, column in (text | wire if name == "collective" else text).items()},
        )
        yield _NAMED[name](table) if name in _NAMED else table


def _identity(sheet: Sheet, registry: Registry) -> tuple[dict[str, Column], np.ndarray]:
    """What identifies each row, by name, and whether two columns name two devices, of which none can be chosen [R]."""
    found: dict[str, Column] = {}
    unclear = np.zeros(sheet.rows, bool)
    for name, (columns, meaning) in _IDENTITY.items():
        of_device = name == "device"
        meant = (lambda text: names.device_name(text, registry)) if of_device else meaning
        found[name], differing = read_identity(sheet, columns, meant)
        for (column, first), rows in differing.items():
            if of_device:
                unclear[rows] = True
                wrong = f"names another device than '{first}'; they mean the same, remove one."
                sheet.notes.rows(rows + sheet.start, column, lambda _, wrong=wrong: wrong, True)
            else:
                sheet.notes.alike(rows + sheet.start, column, f"is not read where '{first}' says something else.")
    return found, unclear


def _note_misspelled(sheet: Sheet, families: Iterable[str]) -> None:
    """Notes columns that nobody reads and that are spelled nearly as one that these families may have."""
    optional = [column for family in families for column in FAMILIES[family] if column.default is not None]
    meanings = [*(names for names, _ in _IDENTITY.values()), *COLUMNS.values(), *((word,) for word in _WORDS)]
    meanings += [(column.name, *column.other) for column in optional]
    lacking = [name for names in meanings if not any(name in sheet for name in names) for name in names]
    if not any(map(is_time, sheet.columns)):
        lacking.append("latency_us")
    read = [name for name in sheet.columns if name in _READ or is_time(name)]
    for column, meant in misspelled(sheet.columns, read, lacking).items():
        rows = np.arange(sheet.rows) + sheet.start
        sheet.notes.alike(rows, column, f"is not read. Did you mean {meant}?")


def _flags(sheet: Sheet) -> np.ndarray:
    if "flag" not in sheet:
        return np.zeros(sheet.rows, np.int64)
    flags = sheet.number("flag")
    wrong = np.zeros(sheet.rows, bool)
    wrong[sheet.bad("flag")] = True
    wrong |= (flags < 0) | (flags > MOST) | (flags != np.floor(flags)) & ~np.isnan(flags)
    rows = np.flatnonzero(wrong)

    def message(position: int) -> str:
        return f"{sheet.written('flag', rows[position])} is no sum of flags; taken as 0."

    sheet.notes.rows(rows + sheet.start, "flag", message, False)
    return np.where(wrong | np.isnan(flags), 0.0, flags).astype(np.int64)


def _collective(table: KernelTable) -> KernelTable:
    """One word for each operation; the element count that stands for a MoE exchange's bytes turned into bytes."""
    if "op" in table.text:
        op = as_text(table.text["op"])
        table.text["op"] = op.translated(lambda word: COLLECTIVES.get(word.lower(), word.lower()))
    elements = table.shape["tokens"] * table.shape["hidden"]
    counted = (elements > 0.0) & (table.shape["bytes"] == elements)
    dtype = as_text(table.dtype)
    sizes = np.array([_ITEMSIZE.get(name, 1.0) for name in dtype.values.tolist()])[dtype.codes]
    table.shape["bytes"] = np.where(counted, elements * sizes, table.shape["bytes"])
    return table


def _with_cache(table: KernelTable) -> KernelTable:
    """Where no format of the KV cache is stated, that of the activations, as all serving engines mean it."""
    pairs = grouped([table.cache, table.dtype])
    meant = [
        stated or names.activations_of(dtype)
        for stated, dtype in zip(table.cache[pairs.first], table.dtype[pairs.first], strict=True)
    ]
    return dataclasses.replace(table, cache=Text(np.array(meant, object), pairs.which))


_CACHED = ("attention_prefill", "attention_decode", "mla_prefill", "mla_decode")
# Families whose operations have one name here, or a fuller one, or that read a cache.
_NAMED = {"collective": _collective, "norm": with_kind, **dict.fromkeys(_CACHED, _with_cache)}


def _joined(parts: list[KernelTable]) -> KernelTable:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]

    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    return KernelTable(
        family=first.family,
        row=join("row"),
        **{name: joined([getattr(part, name) for part in parts]) for name in IDENTITY},
        flag=join("flag"),
        shape={name: np.concatenate([part.shape[name] for part in parts]) for name in first.shape},
        latency=None if first.latency is None else join("latency"),
        text={name: joined([part.text[name] for part in parts]) for name in first.text},
    )


def _note_repeats(table: KernelTable, notes: Notes) -> None:
    """Count the rows that repeat the identity and shape of an earlier one (told by a 64-bit mix of their columns)."""
    if not len(table):
        return
    mixed = grouped([getattr(table, name) for name in IDENTITY] + list(table.text.values())).which.astype(np.uint64)
    for column in table.shape.values():
        _mix(mixed, column.view(np.uint64))
    order = np.argsort(mixed)
    alike = mixed[order]
    first = np.minimum.reduceat(order, np.flatnonzero(np.r_[True, alike[1:] != alike[:-1]]))
    repeated = np.ones(len(table), bool)
    repeated[first] = False
    notes.alike(table.row[repeated], "", f"repeats an earlier {table.family} row's identity and shape.")


def _mix(state: np.ndarray, column: np.ndarray) -> None:
    """Fold a column into the hashes, in place (the finalizer of SplitMix64)."""
    state ^= column
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
