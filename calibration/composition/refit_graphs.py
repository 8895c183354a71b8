"""Fit everything that `jaxperf graphs` ships, in one command:

    python -m calibration.composition.refit_graphs FOLDER [-o calibration/fitted/graphs] [--kept FOLDER]

FOLDER holds `ops.parquet` (measured operations), `e2e_labels.csv` (measured iterations), `opgraph/` and
`label_ops.parquet` (measured nodes), as NeuSight publishes them. Kernels are fitted without their names, once on all
devices and once without each; --kept keeps the latter for the next time.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from calibration.composition.evaluate_graphs import (
    LEFT_OUT,
    SUSPECT_DEVICES,
    Result,
    batches_of,
    cells,
    fit_compositions,
    held_out,
    trusted,
    width_of,
)
from calibration.composition.graph_kernels import SETTINGS, Progress, kernels_of_all, kernels_without
from calibration.composition.graph_parameters import save_graphs
from calibration.composition.kernel_times import nameless
from calibration.composition.node_times import NodeCheck, check_nodes, read_node_times, shared_part, table_times
from calibration.composition.predict_graphs import GraphParameters
from calibration.composition.row_graphs import Graphs
from calibration.composition.rows import Row, read_rows
from calibration.datasets import data_hash, read_table
from calibration.datasets.schema import Read
from calibration.kernels.parameters import Parameters
from jaxperf.models.graph_steps import Laid, lay_out

FILES = ("ops.parquet", "e2e_labels.csv", "label_ops.parquet")


@dataclasses.dataclass(frozen=True)
class Measured:
    """Everything measured: operations without kernel names, iterations with a label and a graph, and the folder."""

    reads: tuple[Read, ...]
    rows: tuple[Row, ...]
    graphs: Graphs
    laid: dict[tuple, Laid]
    folder: Path


def load_measured(folder: str | Path) -> Measured:
    """The tables of a folder. Raises `InputError` as the readers do."""
    folder = Path(folder)
    graphs = Graphs(folder / "opgraph")
    rows, laid = [], {}
    for row in read_rows(folder / "e2e_labels.csv"):
        if row.reason or not np.isfinite(row.label):
            continue
        graph, _ = graphs.of(row)
        if graph is not None:
            rows.append(row)
            laid.setdefault(row.configuration, lay_out(graph))
    reads = (nameless(read_table(folder / "ops.parquet")),)
    return Measured(reads, tuple(rows), graphs, laid, folder)


def evaluate(
    measured: Measured, kept: Path | None, progress: Progress
) -> tuple[list[Result], float, dict[str, Parameters]]:
    """Every row in every split, the shared part of the kernels' errors, and the kernels fitted without each device."""
    every = kernels_of_all(measured.reads, kept, progress)
    fitted = kernels_without(measured.reads, sorted({row.device for row in measured.rows}), every, kept, progress)
    arguments = (measured.rows, measured.laid, every, fitted.__getitem__, measured.reads)
    results = held_out(*arguments, progress=progress)
    residuals: dict[str, list[float]] = {}
    for row, check in checked(measured, fitted):
        if trusted(row):
            residuals.setdefault(row.device, []).extend(check.residuals)
    return results, shared_part(residuals), fitted


def checked(measured: Measured, fitted: Mapping[str, Parameters]) -> list[tuple[Row, NodeCheck]]:
    """The rows whose nodes were measured one by one, with kernels fitted without their device."""
    nodes, table = read_node_times(measured.folder / "label_ops.parquet"), table_times(measured.reads)
    found = []
    for row in measured.rows:
        graph, _ = measured.graphs.of(row)
        check = check_nodes(row, graph, nodes, fitted[row.device], table) if graph is not None else None
        if check is not None:
            found.append((row, check))
    return found


def decomposition(
    measured: Measured, results: Sequence[Result], fitted: Mapping[str, Parameters]
) -> list[dict[str, object]]:
    """By device, the mean logarithm of predicted over measured [%] and its three parts (`node_times`); `again`: the
    median of products measured twice, as a node over in the table [%]."""
    whole = {result.row.place: result for result in results if result.split == LEFT_OUT}
    parts: dict[str, list[tuple[float, float, float]]] = {}
    again: dict[str, list[float]] = {}
    for row, check in checked(measured, fitted):
        time = whole[row.place].prediction.time
        kernels, between = math.log(check.predicted / check.measured), math.log(check.measured / row.label)
        parts.setdefault(row.device, []).append((kernels, math.log(time / check.predicted), between))
        again.setdefault(row.device, []).extend(check.again)
    names = ("kernels", "composition", "between")
    found = []
    for device, rows in sorted(parts.items()):
        means = 100.0 * np.mean(rows, axis=0)
        one = dict(zip(names, map(float, means), strict=True))
        twice = 100.0 * float(np.median(again[device])) if again[device] else float("nan")
        found.append({"device": device, "rows": len(rows), **one, "whole": float(means.sum()), "again": twice})
    return found


def refit(folder: str | Path, kept: Path | None = None, progress: Progress = lambda _: None) -> GraphParameters:
    """Compositions, kernels, intervals and card."""
    measured = load_measured(folder)
    results, rho, _ = evaluate(measured, kept, progress)
    judged = [result for result in results if trusted(result.row)]
    kernels = kernels_of_all(measured.reads, kept, progress)
    compositions = fit_compositions(batches_of(measured.rows, measured.laid, kernels))
    return GraphParameters(compositions, kernels, width_of(judged, rho), card(measured, results, rho))


def card(measured: Measured, results: Sequence[Result], rho: float) -> dict[str, Any]:
    """What the parameters were made of, and their errors on devices held out."""
    names = {name: measured.folder / name for name in FILES}
    rows = [{name: _rounded(value) for name, value in cell.items()} for cell in cells(results, rho)]
    return {
        "created": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in ("jax", "numpy", "optax", "equinox")}
        | {"python": platform.python_version()},
        "data": [{"file": name, "sha256": data_hash(path)} for name, path in names.items()],
        "devices": sorted({row.device for row in measured.rows}),
        "settings": dataclasses.asdict(SETTINGS),
        "not_fitted": sorted(SUSPECT_DEVICES),
        "command": "python -m calibration.composition.refit_graphs FOLDER",
        "errors": rows,
    }


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return round(value, 2) if np.isfinite(value) else None


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Fit what jaxperf graphs ships.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path(__file__).parents[1] / "fitted" / "graphs")
    parser.add_argument("--kept", type=Path, default=None)
    given = parser.parse_args()
    save_graphs(refit(given.folder, given.kept, print), given.out)


if __name__ == "__main__":
    main()
