"""The graph of a row of iterations, from a folder or built, and what is known of its model by name."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
from pathlib import Path

from calibration.composition.parallel import ONE_DEVICE
from calibration.composition.rows import FITTED, Row
from hwspecs.errors import InputError, letters
from jaxperf.io.huggingface import load_model, read_config
from jaxperf.io.op_graph import read_op_graph
from jaxperf.io.workloads import NEUSIGHT, load_workload
from jaxperf.models.config import ModelConfig
from jaxperf.models.graph import Graph
from jaxperf.models.workloads.catalog import BUILT_IN
from jaxperf.models.workloads.operations import cross_entropy
from jaxperf.models.workloads.shards import TOKEN_TABLE
from jaxperf.models.workloads.tape import Tape
from jaxperf.models.workloads.video import VIDEO

LOSS = "loss"


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
