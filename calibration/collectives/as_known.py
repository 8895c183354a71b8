"""What a table of collectives leaves open, as the parameters know it: kernel, number format and topology."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calibration.collectives.laws import OPS
from calibration.collectives.names import KIND_PARTS, NETWORK, SEPARATOR, Cell, cell_of, part_of_name
from calibration.collectives.points import LIBRARIES, REDUCED_IN_SWITCH, Points
from calibration.datasets.names import shortest_release
from calibration.datasets.schema import KernelTable
from calibration.datasets.text import Text, repeated

OUT_OF_GRAPHS = "_eager"  # ends the names of kernels that engines run only where they replay no graph
FILLED = ("version", "kernel", "dtype", "topology")
Settings = Mapping[Cell, int]  # how many settings of each cell were measured


class Stated(NamedTuple):
    """What a group of rows says of itself, "" for what it leaves open; `between`: its ranks are on several nodes."""

    op: str
    device: str
    topology: str
    kernel: str
    dtype: str
    framework: str
    version: str
    between: bool


def as_known(table: KernelTable, points: Points, names: Sequence[str]) -> tuple[KernelTable, Text]:
    """The table with what its rows leave open, and what to say of that, "" for nothing [R].

    A release is spelled as it was measured (0.12 is 0.12.0). A framework without a kernel has the one that it runs by
    default, of its release where that was measured; a kernel in a format in which it was not measured the one that
    takes the same path; rows without a topology the one in which most of their software was measured on the device,
    whatever the operation. What was measured as it stands stays; where nothing is left open, so does the table.

    **Arguments:** `points`: of the table; `names`: of the level "cell setting" that were learned of.
    """
    settings = Counter(map(cell_of, names))
    cells = {SEPARATOR.join(cell) for cell in settings}
    own = list(_stated(table, points))
    left = [name not in cells and stated.op in OPS for name, stated in zip(points.names["cell"], own, strict=True)]
    found = [_filled(stated, settings) if is_open else (stated, "") for stated, is_open in zip(own, left, strict=True)]
    filled, remarks = zip(*found, strict=True)
    said = _by_group(remarks, points)
    if list(filled) == own:
        return table, said
    columns = {name: _by_group([getattr(each, name) for each in filled], points) for name in FILLED}
    text = {**table.text, "topology": columns.pop("topology")}
    return dataclasses.replace(table, **columns, text=text), said


def _by_group(values: Sequence[str], points: Points) -> Text:
    return Text(np.array(values, object), points.group).distinct()


def _stated(table: KernelTable, points: Points) -> Iterable[Stated]:
    """Of each group."""
    _, first = np.unique(points.group, return_index=True)
    few = table.take(first)
    kinds = [name.split(SEPARATOR)[: KIND_PARTS + 1] for name in points.names["device"].tolist()]
    columns = (few.text.get("topology", repeated("", len(few))), few.kernel, few.dtype, few.framework, few.version)
    for kind, *words, nodes in zip(kinds, *columns, points.numbers["nodes"][first], strict=True):
        yield Stated(kind[0], kind[-1], *map(part_of_name, words), between=nodes > 1.0)


def _filled(stated: Stated, settings: Settings) -> tuple[Stated, str]:
    """What a group leaves open, filled, and what to say of that."""
    remarks = []
    for fill in (_with_release, _with_kernel, _with_format, _with_topology):
        stated, said = fill(stated, settings)
        remarks.append(said)
    return stated, "; ".join(filter(None, remarks))


def _with_release(stated: Stated, settings: Settings) -> tuple[Stated, str]:
    """With the release as the measured rows spell it: 0.12 is 0.12.0."""
    known = {cell.version for cell in settings if cell.framework == stated.framework}
    same = sorted(each for each in known if shortest_release(each) == shortest_release(stated.version))
    spelled = stated.version if stated.version in known or not stated.version or not same else same[0]
    return stated._replace(version=spelled), ""


def _with_kernel(stated: Stated, settings: Settings) -> tuple[Stated, str]:
    """With the kernel that the framework runs by default for the operation, else with the collective library's."""
    if stated.kernel or not stated.framework:
        return stated, ""
    of_operation = [cell for cell in settings if cell.op == stated.op]
    own = [cell for cell in of_operation if cell.framework == stated.framework and _reaches(cell, stated)]
    if not own:
        return _with_library(stated, of_operation)
    release = any(cell.version == stated.version for cell in own)
    same = (lambda cell, at=at: getattr(cell, at) == getattr(stated, at) for at in ("version", "dtype", "device"))
    measured = _narrowed(own, *same)
    usual = _kernels(_narrowed(measured, _is_usual))
    whose = "this release" if release else stated.framework
    if len(usual) > 1:
        return stated, f"kernel not stated: {', '.join(usual)} were measured of {whose}, none of them taken"
    others = [name for name in _kernels(measured) if name not in usual]
    why = f"not {', '.join(others)} of {whose}" if others else f"the only one measured of {whose}"
    return stated._replace(kernel=usual[0]), f"kernel not stated: {usual[0]}, {why}"


def _with_library(stated: Stated, of_operation: Iterable[Cell]) -> tuple[Stated, str]:
    """With the kernel of a library: the framework is one, or nothing of it was measured for the operation."""
    if stated.op.startswith("moe_"):
        return stated, f"kernel not stated: none of {stated.framework} was measured, taken for a normal exchange"
    if stated.framework in LIBRARIES:
        return stated._replace(kernel=stated.framework), ""
    named = [cell for cell in of_operation if cell.runner == "library" and cell.kernel]
    library = _kernels(cell for cell in named if cell.device == stated.device)
    kernel = library[0] if len(library) == 1 else ""
    where = " between nodes" if stated.between else ""
    said = f"none of {stated.framework} was measured for this operation{where}"
    return stated._replace(kernel=kernel), f"kernel not stated: {said}, taken for {kernel or 'a collective library'}"


def _with_format(stated: Stated, settings: Settings) -> tuple[Stated, str]:
    """With the format in which the kernel was measured, where its own was not and both are moved and added alike."""
    measured = {cell.dtype for cell in settings if (cell.op, cell.kernel) == (stated.op, stated.kernel.lower())}
    alike = sorted(measured.intersection(REDUCED_IN_SWITCH))
    if not stated.kernel or stated.dtype in measured or stated.dtype not in REDUCED_IN_SWITCH or len(alike) != 1:
        return stated, ""
    said = f"{stated.dtype} was not measured of this kernel: taken for {alike[0]}" if stated.dtype else ""
    return stated._replace(dtype=alike[0]), said


def _with_topology(stated: Stated, settings: Settings) -> tuple[Stated, str]:
    """With the topology in which most settings of the software were measured on the device, else of any software."""
    if stated.topology:
        return stated, ""
    on_device = [cell for cell in settings if cell.device == stated.device and cell.topology]
    if not on_device:
        return stated, ""
    own = [cell for cell in on_device if cell.framework == stated.framework]
    counted, of_software = Counter[str](), own or on_device
    for cell in of_software:
        counted[cell.topology] += settings[cell]
    ((usual, _),) = counted.most_common(1)
    whose = f" of {stated.framework}" if own else ""
    spans = not stated.between or any(cell.topology == usual and cell.joined == NETWORK for cell in of_software)
    where = "" if spans else ", in one node only"
    said = f"topology not stated: {usual}, of which most{whose} was measured on the device{where}"
    return stated._replace(topology=usual), said


def _reaches(cell: Cell, stated: Stated) -> bool:
    """Whether the kernel joins such ranks: an engine's own works in the memory of its peers, in one node."""
    return not (stated.between and cell.runner == "engine")


def _is_usual(cell: Cell) -> bool:
    """Whether it is what runs by default: engines replay graphs, and exchange large batches in the normal mode."""
    return not cell.kernel.endswith(OUT_OF_GRAPHS) and cell.runner != "low-latency"


def _narrowed(cells: list[Cell], *conditions: Callable[[Cell], bool]) -> list[Cell]:
    """Those that meet each condition in turn, of which one that none meets is left away."""
    for meets in conditions:
        cells = list(filter(meets, cells)) or cells
    return cells


def _kernels(cells: Iterable[Cell]) -> list[str]:
    return sorted({cell.kernel for cell in cells})
