"""Nodes of graphs measured one by one: what tells the error of kernels from that of the composition.

With K the predicted and M the measured time of a graph's kernels, one by one, and T the predicted and L the measured
iteration,  log T/L = log K/M (kernels) + log T/K (composition) + log M/L (what lies between the nodes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

import hwspecs
from calibration.composition.kernel_times import kernel_times
from calibration.composition.rows import MILLI, Row
from calibration.datasets.columns import parse_numbers, parse_text
from calibration.datasets.files import read_pieces
from calibration.datasets.names import device_name
from calibration.datasets.schema import Read
from calibration.kernels.parameters import Parameters
from hwspecs.errors import InputError
from jaxperf.models.graph import OPS, PASSES, Graph, Op

COLUMNS = {"forward": "fw_ms", "backward": "bw_ms", "accumulate": "acc_ms"}
LEAST = 1e-4  # a shorter node is mostly the events that measure it [s]
PRODUCTS = ("gemm", "bmm")
NodeTimes = Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]
TableTimes = Mapping[tuple[object, ...], float]


@dataclass(frozen=True)
class NodeCheck:
    """Sums over a graph's nodes with kernels, repeats included [s]; of single forward nodes the logarithms of predicted
    over measured times, and of measured ones over those of the same product in the table of operations."""

    predicted: float
    measured: float
    residuals: tuple[float, ...]
    again: tuple[float, ...]


def read_node_times(path: str | Path) -> NodeTimes:
    """Measured times of nodes [s]: by device and configuration ("bert_large-inf-512-16"), node and pass.

    **Raises:** `InputError` for a file that cannot be read or lacks a column.
    """
    registry = hwspecs.open_registry()
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for table in read_pieces(path, 1 << 16):
        for name in ("device", "cfg", "Name", *COLUMNS.values()):
            if name not in table.column_names:
                raise InputError(f"{path} has no column '{name}'; a table of nodes has device, cfg, Name, fw_ms.")
        text = {name: parse_text(table[name]) for name in ("device", "cfg", "Name")}
        names = {value: device_name(value, registry)[0] for value in text["device"].values}
        times = {name: MILLI * parse_numbers(table[column])[0] for name, column in COLUMNS.items()}
        for at in range(len(table)):
            device, cfg, node = (str(column.values[column.codes[at]]) for column in text.values())
            one = {name: float(column[at]) for name, column in times.items()}
            found.setdefault((names[device], cfg), {})[node] = one
    return found


def table_times(reads: Sequence[Read]) -> TableTimes:
    """Measured times of products [s], by device, family and shape."""
    found: dict[tuple[object, ...], float] = {}
    for table in (table for read in reads for table in read.tables if table.family in PRODUCTS):
        columns = [table.shape[name].tolist() for name in OPS[table.family]]
        for device, time, flag, *shape in zip(table.device, table.measured, table.flag, *columns, strict=True):
            if not flag and np.isfinite(time):
                found[str(device), table.family, *shape] = float(time)
    return found


def check_nodes(
    row: Row, graph: Graph, nodes: NodeTimes, parameters: Parameters, table: TableTimes = MappingProxyType({})
) -> NodeCheck | None:
    """A row's kernels against its measured nodes; `None` where they were not measured."""
    measured = nodes.get((row.device, row.file.removesuffix(".csv")))
    if measured is None:
        return None
    ops = list({op.key: op for node in graph.nodes for op in node.ops()}.values())
    times = kernel_times(ops, [row.device], parameters).predicted[0]
    time = {op.key: float(each) for op, each in zip(ops, times, strict=True)}
    predicted = total = 0.0
    residuals, again = [], []
    for node in graph.nodes:
        for name in PASSES:
            launched: Sequence[Op] = getattr(node, name)
            if not launched or node.name not in measured:
                continue
            own = sum(op.count * time[op.key] for op in launched)
            seen = measured[node.name][name]
            predicted += node.repeats * own
            total += node.repeats * seen
            if name == "forward" and len(launched) == 1 and seen > LEAST:
                residuals.append(float(np.log(own / seen)))
                other = table.get((row.device, launched[0].family, *launched[0].shape.values()))
                again += [float(np.log(seen / other))] if other else []
    return NodeCheck(predicted, total, tuple(residuals), tuple(again))


def shared_part(residuals: Mapping[str, Sequence[float]]) -> float:
    """The part of the variance of kernels' errors that all kernels of a device have alike: the variance between the
    devices' medians over the whole, devices weighing alike, spreads by the median deviation [1].

    **Arguments:** `residuals` by device, of kernels fitted without it.
    """
    groups = [np.asarray(each) for each in residuals.values() if len(each) > 1]
    if len(groups) < 2:
        return 1.0
    between = float(np.var([np.median(group) for group in groups]))
    within = float(np.mean([(1.4826 * np.median(np.abs(group - np.median(group)))) ** 2 for group in groups]))
    return between / (between + within)
