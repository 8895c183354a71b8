"""Tables of iterations: device, model, mode, seq, batch, variant a row, with measured times where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import hwspecs
from calibration.composition.parallel import ONE_DEVICE, Layout, parse_layout
from calibration.composition.row_sizes import stated_seq
from calibration.datasets.columns import parse_numbers, parse_text, standard_columns
from calibration.datasets.files import read_pieces
from calibration.datasets.names import device_name, dtype_name
from calibration.datasets.shapes import MOST
from calibration.datasets.spellings import stated
from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.column_names import misspelled_notes
from jaxperf.models.workloads.tape import ITEMSIZES

TEXT = ("device", "model", "mode", "variant", "dtype")
ALIASES = {"device": "gpu"}  # column -> what tables of other commands call it
NUMBERS = ("seq", "batch")
MODES = {"inf": "inf", "inference": "inf", "train": "train", "training": "train"}
VARIANTS = {"": "plain", "plain": "plain", "fusion": "fusion", "fused": "fusion"}
LABELS = ("label_ms", "label_fw_ms", "label_bwall_ms")
PEERS = ("pred_neusight", "pred_habitat", "pred_micro", "pred_roofline")
READ = frozenset((*TEXT, *ALIASES.values(), *NUMBERS, *LABELS, *PEERS))
MILLI = 1e-3
FITTED = "fp32"  # what the compositions were fitted in, and the folder of graphs is of


@dataclass(frozen=True)
class Row:
    """One row: `device` of hwspecs or "", `reason` why it cannot be predicted or ""; `label`: measured forward and
    whole iteration [s], NaN where absent; `peers`: the predictions of other tools [s]; `layout` over devices; `part`:
    what of an iteration the row stands for, "" for all of it; `dtype` of all tensors, one of `tape.ITEMSIZES`."""

    place: int
    device: str
    model: str
    mode: str
    seq: int
    batch: int
    variant: str
    reason: str
    label: float = float("nan")
    label_forward: float = float("nan")
    peers: tuple[float, ...] = ()
    layout: Layout = ONE_DEVICE
    part: str = ""
    dtype: str = FITTED

    @property
    def configuration(self) -> tuple[str, str, int, int, str, str, str]:
        """What its graph depends on."""
        return self.model, self.mode, self.seq, self.batch, self.variant, self.part, self.dtype

    @property
    def file(self) -> str:
        """Name of its graph's file, as NeuSight calls it."""
        end = "" if self.variant == "plain" else f"-{self.variant}"
        return f"{self.model}-{self.mode}-{self.seq}-{self.batch}{end}.csv"


def read_rows(path: str | Path, directories: Sequence[str] = ()) -> list[Row]:
    """The rows of a table.

    **Raises:** `InputError` for a file that cannot be read, and a column that is missing.
    """
    registry = hwspecs.open_registry(list(directories))
    rows: list[Row] = []
    for piece in read_pieces(path, 1 << 16):
        table = _standard(path, piece)
        _check_columns(path, table.column_names)
        text = {name: _texts(table, name) for name in (*TEXT, *ALIASES.values(), "seq")}
        numbers = {name: _numbers(table, name) for name in (*NUMBERS, *LABELS, *PEERS)}
        for place in range(len(table)):
            one = {name: column[place] for name, column in text.items()}
            row = _row(len(rows), one, {name: column[place] for name, column in numbers.items()}, registry)
            rows.append(row)
    if not rows:
        raise InputError(f"{path} has no rows.")
    return rows


def unread_columns(path: str | Path) -> tuple[str, ...]:
    """A sentence for each column of a table that nobody reads and that is spelled nearly as one that it lacks."""
    written = standard_columns(path, next(read_pieces(path, 1)).column_names, READ.__contains__)
    optional = [name for name in (*TEXT[3:], LABELS[0]) if name not in written]
    return misspelled_notes(written.values(), {written[name] for name in written if name in READ}, optional)


def _standard(path: str | Path, table: pa.Table) -> pa.Table:
    """A piece with its columns under their standard names."""
    written = standard_columns(path, table.column_names, READ.__contains__)
    return table.select(list(written.values())).rename_columns(list(written))


def _check_columns(path: str | Path, columns: Sequence[str]) -> None:
    """Raises `InputError` for a column that is missing, naming the nearest of those that mean nothing here."""
    required = (*TEXT[:3], *NUMBERS)
    missing = [name for name in required if not {name, ALIASES.get(name)} & set(columns)]
    if missing:
        hint = did_you_mean(missing[0], [name for name in columns if name not in READ])
        raise InputError(f"{path} has no column '{missing[0]}'; a table of iterations has {', '.join(required)}.{hint}")


def _texts(table, name: str) -> list[str]:
    if name not in table.column_names:
        return [""] * len(table)
    column = parse_text(table[name])
    return [str(column.values[code]) if code >= 0 else "" for code in column.codes.tolist()]


def _numbers(table, name: str) -> np.ndarray:
    return parse_numbers(table[name])[0] if name in table.column_names else np.full(len(table), np.nan)


def _row(place: int, text: dict[str, str], number: dict[str, float], registry: hwspecs.Registry) -> Row:
    device, reason = _device(text, registry)
    mode = MODES.get(text["mode"].strip().lower(), "")
    if not mode:
        reason = reason or f"mode '{text['mode']}' is neither inf nor train"
    number["seq"], wrong = stated_seq(text["model"].strip(), text["seq"], number["seq"])
    reason = reason or wrong
    for name in NUMBERS:
        if not (1 <= number[name] <= MOST and number[name] == round(number[name])):
            reason = reason or f"{name} is not a whole number from 1 to 2**53"
    written = text["variant"].strip().lower()
    variant = VARIANTS.get(written, written)
    layout = ONE_DEVICE if variant in VARIANTS.values() else parse_layout(written)
    if layout is None:
        reason = reason or f"variant '{written}' is neither plain, fusion nor devices as in dp4, tp4, pp4_1 and cp8"
    elif variant not in VARIANTS.values() and layout == ONE_DEVICE:
        variant = "plain"
    dtype, wrong = _dtype(text["dtype"], layout or ONE_DEVICE)
    reason = reason or wrong
    whole = lambda value: int(value) if np.isfinite(value) else 0  # noqa: E731
    label, forward = number["label_ms"], number["label_fw_ms"]
    return Row(
        place,
        device,
        text["model"].strip(),
        mode,
        whole(number["seq"]),
        whole(number["batch"]),
        variant,
        reason,
        label * MILLI if label > 0 else np.nan,
        forward * MILLI if forward > 0 else np.nan,
        tuple(number[name] * MILLI for name in PEERS),
        layout or ONE_DEVICE,
        dtype=dtype,
    )


def _device(text: dict[str, str], registry: hwspecs.Registry) -> tuple[str, str]:
    """A row's device and "", or "" and why it has none."""
    try:
        cells = {column: text[column] for column in ("device", ALIASES["device"])}
        device, reason = device_name(stated("device", cells, lambda cell: device_name(cell, registry)[0]), registry)
    except InputError as error:
        return "", str(error)
    return device, reason or ("" if device else "the device is not given")


def _dtype(written: str, layout: Layout) -> tuple[str, str]:
    """The format of a row's tensors, `FITTED` where it states none, and why it cannot be predicted or ""."""
    dtype, wrong = dtype_name(written)
    dtype = dtype or FITTED
    if wrong or dtype not in ITEMSIZES:
        return FITTED, wrong or f"dtype '{written}' is none of {', '.join(ITEMSIZES)}"
    if dtype != FITTED and layout != ONE_DEVICE and layout.context_parallel == 1:
        return dtype, f"several devices are predicted in {FITTED} only; dtype is {dtype}"
    return dtype, ""
