"""Who a row's curves belong to: the levels of the hierarchy, from what a kind of collective shares to one cell.

kind (operation, runner, how the ranks are joined) -> kernel and stack (its version) without a device, generation,
device and cell (device and stack). A level "... setting" is one for each number of ranks, nodes and cores; "... shape",
of an exchange of tokens, one for each hidden size and top-k; "... way", of an all-reduce, one for each algorithm of the
law: rings, trees, the switch, one shot, two shots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calibration.collectives.laws import RUNNERS

KIND_PARTS = 4  # of a kind's name: operation, runner, how the ranks are joined, pairs
DEVICE_PARTS = 2  # of a device's: name, topology
KERNEL_PARTS = 2  # of a kernel's: name, number format
SETTING_PARTS = 3  # of a setting's: ranks, nodes, cores
SEPARATOR = "/"  # of the parts of a name
INSTEAD = "-"  # in a part that a table states with it
NETWORK = "network"  # how ranks on several nodes are joined
NO_NAME = ""  # of a level that a row does not have


def level_names(
    text: dict[str, np.ndarray], numbers: dict[str, np.ndarray], generation: np.ndarray
) -> dict[str, np.ndarray]:
    """Names of every level [G].

    **Arguments:** `text`: device, framework, version, kernel, dtype, op and topology; `numbers`: of the law; all [G].
    """
    text = {name: np.char.replace(values.astype(str), SEPARATOR, INSTEAD) for name, values in text.items()}
    joined = np.where(numbers["nodes"] > 1.0, NETWORK, np.where(numbers["pcie"] > 0.0, "pcie", "direct"))
    pairs = np.where(in_pairs(text["topology"]), "pairs", "")
    runners = np.array(RUNNERS)[numbers["runner"].astype(int)]
    kind = _joined(text["op"], runners, joined, pairs)
    kernel = _joined(np.char.lower(text["kernel"].astype(str)), text["dtype"])
    stack = _joined(kernel, text["framework"], text["version"])
    device = _joined(text["device"], text["topology"])
    levels = {
        "kind": kind,
        "kernel": _joined(kind, kernel),
        "stack": _joined(kind, stack),
        "generation": _joined(kind, generation),
        "generation kernel": _joined(kind, generation, kernel),
        "device": _joined(kind, device),
        "cell": _joined(kind, device, stack),
    }
    setting = _numbered(numbers, "ranks", "nodes", "sms")
    shape = _numbered(numbers, "ranks", "nodes", "token_bytes", "topk")
    exchange = is_exchange(numbers["runner"])
    return {
        **levels,
        **{f"{name} setting": _joined(values, setting) for name, values in levels.items()},
        **{f"{name} shape": np.where(exchange, _joined(levels[name], shape), NO_NAME) for name in ("stack", "cell")},
        **{f"exchange {name}": np.where(exchange, levels[name], NO_NAME) for name in ("kind", "stack")},
        "system": _joined(device, joined),
    }


def way_names(names: Mapping[str, np.ndarray], way: np.ndarray) -> dict[str, np.ndarray]:
    """Names of the levels "... way", of how the law runs an all-reduce, "" for other operations [G]."""
    return {f"{name} way": np.where(way == "", NO_NAME, _joined(names[name], way)) for name in ("kind", "device")}


class Cell(NamedTuple):
    """The parts of a cell's name."""

    op: str
    runner: str
    joined: str
    pairs: str
    device: str
    topology: str
    kernel: str
    dtype: str
    framework: str
    version: str


def cell_of(name: str) -> Cell:
    """The cell of a "cell setting"."""
    return Cell(*name.split("/")[:-SETTING_PARTS])


def part_of_name(word: str) -> str:
    """A word of a table as a part of names."""
    return word.replace(SEPARATOR, INSTEAD)


def measured_topologies(cells: Sequence[str]) -> dict[str, set[str]]:
    """Of each device the topologies that "cell setting" names are of."""
    found: dict[str, set[str]] = {}
    for name in cells:
        device, topology = name.split("/")[KIND_PARTS : KIND_PARTS + DEVICE_PARTS]
        found.setdefault(device, set()).add(topology)
    return found


def measured_frameworks(cells: Sequence[str]) -> set[str]:
    """The frameworks that "cell setting" names are of."""
    return {name.split("/")[KIND_PARTS + DEVICE_PARTS + KERNEL_PARTS] for name in cells}


def stack_of(cell: str) -> str:
    """The name of a cell's stack: without the device and its topology."""
    parts = cell.split("/")
    return "/".join(parts[:KIND_PARTS] + parts[KIND_PARTS + DEVICE_PARTS :])


def kernel_of(cell: str) -> str:
    """The name of a cell's kernel: of its stack without framework and version."""
    return "/".join(stack_of(cell).split("/")[: KIND_PARTS + KERNEL_PARTS])


def kernel_word(cell: str) -> str:
    """What a cell's kernel is called, in any number format."""
    return kernel_of(cell).split("/")[KIND_PARTS]


def in_pairs(topology: np.ndarray) -> np.ndarray:
    """Whether NVLink joins the GPUs of a node in pairs only [G]."""
    return np.char.startswith(np.char.lower(topology.astype(str)), "pairwise")


def is_exchange(runner: np.ndarray) -> np.ndarray:
    """Whether tokens are exchanged with experts, by runner."""
    return np.asarray(runner) >= RUNNERS.index("normal")


def _numbered(numbers: dict[str, np.ndarray], *names: str) -> np.ndarray:
    return _joined(*(numbers[name].astype(int).astype(str) for name in names))


def _joined(*columns: np.ndarray) -> np.ndarray:
    return np.array(["/".join(map(str, parts)) for parts in zip(*columns, strict=True)], dtype=object)
