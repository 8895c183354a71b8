"""Tables of iterations: device, model, mode, seq, batch, variant a row, with measured times where there are any."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
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
from hwspecs.errors import InputError, did_you_mean, letters
from jaxperf.io.column_names import misspelled_notes
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.io.op_graph import read_op_graph
from jaxperf.io.workloads import NEUSIGHT, load_workload
from jaxperf.models.config import ModelConfig
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.catalog import BUILT_IN
from jaxperf.models.workloads.operations import cross_entropy
from jaxperf.models.workloads.shards import TOKEN_TABLE
from jaxperf.models.workloads.tape import ITEMSIZES, Tape
from jaxperf.models.workloads.video import VIDEO

TEXT = ("device", "model", "mode", "variant", "dtype")
ALIASES = {"device": "gpu"}  # column -> what tables of other commands call it
NUMBERS = ("seq", "batch")
MODES = {"inf": "inf", "inference": "inf", "train": "train", "training": "train"}
VARIANTS = {"": "plain", "plain": "plain", "fusion": "fusion", "fused": "fusion"}
LABELS = ("label_ms", "label_fw_ms", "label_bwall_ms")
PEERS = ("pred_neusight", "pred_habitat", "pred_micro", "pred_roofline")
READ = frozenset((*TEXT, *ALIASES.values(), *NUMBERS, *LABELS, *PEERS))
MILLI = 1e-3
LOSS = "loss"
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


class Graphs:
    """The graphs of rows: those of a folder, and built ones of the rest.

    A compiled graph is built where its model is known: NeuSight's files join only operations with one reader, where a
    compiler joins all that are pointwise, recomputing what several read (Ansel et al. 2024, TorchInductor).
    """

    def __init__(self, folder: str | Path | None = None):
        self.folder = None if folder is None else Path(folder)
        self.found: dict[tuple, tuple[Graph | None, str]] = {}
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"'{self.folder}' is not a folder of graphs.")

    def of(self, row: Row) -> tuple[Graph | None, str]:
        """The graph of a row and what to know of it, or None and why there is none; of several devices what one would
        work through.

        **Raises:** `InputError` for a file of the folder that is not understood.
        """
        if row.configuration not in self.found:
            self.found[row.configuration] = self._open(row)
        return self.found[row.configuration]

    def _open(self, row: Row) -> tuple[Graph | None, str]:
        path = self._file(row) if row.layout == ONE_DEVICE else None
        found, note = _built(row) if path is None or row.variant == "fusion" else (None, "")
        if found is not None:
            note = self.unused(row) if row.variant == "fusion" else ""
        elif path is not None:
            found, note = read_op_graph(path, number_of_layers(row.model)), ""
        return (with_loss(found, row) if found is not None and row.mode == "train" else found), note

    def unused(self, row: Row) -> str:
        """The note of a row whose graph is built although the folder has a file of it; "" where it has none."""
        path = self._file(row)
        return "" if path is None else f"the graph is built; {path.name} is not used"

    def _file(self, row: Row) -> Path | None:
        if self.folder is None or row.dtype != FITTED:
            return None
        path, end = self.folder / row.file, row.file.removeprefix(row.model)
        if os.path.isfile(path):
            return path
        files = self.folder.glob(f"*{glob.escape(end)}")
        # A folder of gpt2_large has the graphs of gpt2-large.
        alike = [each for each in files if letters(each.name.removesuffix(end)) == letters(row.model)]
        return alike[0] if len(alike) == 1 else None


def _built(row: Row) -> tuple[Graph | None, str]:
    variant = row.variant if row.layout == ONE_DEVICE else "plain"
    try:
        return load_workload(row.model, row.mode, row.seq, row.batch, variant, row.dtype), ""
    except InputError as error:
        return None, f"no graph: {error}"


def taken(row: Row) -> str:
    """What a row's numbers are taken for where that is not plain, in a sentence; "" for sequences in `FITTED`."""
    notes = [] if row.dtype == FITTED else [f"all tensors in {row.dtype}; the composition was fitted in {FITTED}"]
    if row.model.lower() in VIDEO:
        notes.append(f"one step without guidance on {row.seq:,} tokens; text encoder and video decoder are not in it")
    elif row.model.lower() in BUILT_IN:
        notes.append("seq is the side of the image or latent map")
    elif _image_side(row.model):
        notes.append("seq is not used: the image's side is the model's")
    return "; ".join(notes)


@functools.lru_cache(maxsize=256)
def _image_side(model: str) -> bool:
    """Whether a model of a known name is nothing but a tower of images, which has a side of its own."""
    try:
        config = described(model)
    except InputError:
        return False
    return not config.layers and any(tower.kind == "image" for tower in config.encoders)


def with_loss(graph: Graph, row: Row) -> Graph:
    """The graph with the backward pass of a cross-entropy loss over its tokens, which a measured backward pass begins
    with; the loss itself is computed between the passes and is in neither. Unchanged for an unknown model, and where a
    node of the graph is called "loss"."""
    classes = vocabulary(row.model)
    if not classes or LOSS in graph.place:
        return graph
    tape = Tape(LOSS, True, row.dtype)
    loss = cross_entropy(tape, tape.input("scores", row.seq * row.batch, classes, gradient=True), LOSS)
    node = dataclasses.replace(tape.graph()[loss.node], forward=(), before=(graph.nodes[-1].name,))
    return Graph(graph.name, (*graph.nodes, node))


def vocabulary(model: str) -> int:
    """Rows of the token table of a model of a known name, 0 for an unknown one."""
    try:
        config = described(model)
    except InputError:
        return 0
    tables = [table.rows for tower in config.encoders for table in tower.tables if table.name == TOKEN_TABLE]
    return max([config.vocabulary, *(tower.vocabulary for tower in config.encoders), *tables])


def described(model: str) -> ModelConfig:
    """The description of a model by NeuSight's or its own name. Raises `InputError` for an unknown one."""
    known = NEUSIGHT.get(model.lower(), model)
    return load_model(known) if isinstance(known, str) else read_config(known, model)


def number_of_layers(model: str) -> int | None:
    """How many layers a model of a known name has; None for an unknown one."""
    try:
        config = described(model)
    except InputError:
        return None
    return max([len(config.layers), *(len(encoder.layers) for encoder in config.encoders)])
