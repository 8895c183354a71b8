"""The graph of one iteration: nodes in the order of their data, each with the kernels of its forward and backward pass.

Built by `jaxperf.models.workloads`, by the readers of `jaxperf.io`, or by hand; validated where it is built. The
families and their columns are those of measured kernels (`calibration.datasets.schema`), so that a measured, a fitted
and a roofline time answer for the same operation.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType

from hwspecs.errors import InputError, did_you_mean

_GEMM = {"batch": 1.0, "m": None, "n": None, "k": None}
_ROWS = {"rows": None, "columns": None}
_STREAM = {"elements_in": None, "elements_out": None, "rows": 1.0}
_HEADS = {"heads": None, "kv_heads": None, "head_dim": None, "window": 0.0}
# Columns of an operation's shape by family, with the default of those that may be left out.
OPS: Mapping[str, Mapping[str, float | None]] = MappingProxyType(
    {
        "gemm": _GEMM,  # [batch m, k] x [k, n]
        "bmm": _GEMM,  # batch x [m, k] x [k, n], each with its own right-hand side
        "convolution": {
            "batch": 1.0,
            **dict.fromkeys(("input_channels", "output_channels", "input_size", "kernel_size")),
            "stride": 1.0,
            "padding": 0.0,
        },
        "attention_prefill": {"batch": 1.0, "q_len": None, "prefix": 0.0, **_HEADS},
        "attention_decode": {"batch": 1.0, "kv_len": None, **_HEADS},
        "moe": {**dict.fromkeys(("tokens", "hidden", "inter", "topk", "experts")), "tp": 1.0, "ep": 1.0},
        "norm": _ROWS,
        "softmax": _ROWS,
        "embedding": _ROWS,
        "elementwise": _STREAM,
        "rope": _STREAM,
        "memory": {"bytes_in": None, "bytes_out": None},  # moves bytes; a note names the unknown operation it replaces
        "none": {},  # no kernel: host time only
    }
)
PASSES = ("forward", "backward", "accumulate")


@dataclass(frozen=True)
class Op:
    """`count` equal operations of a family.

    `shape`: the columns of `OPS[family]` [1], [byte]; `dtype`: a name of `jaxperf.core.formats`; `note`: the
    operation's own word, such as "add" or "gelu", by which kinds within a family are told apart; of a "memory"
    operation the unknown operation that it stands in for.
    """

    family: str
    shape: Mapping[str, float]
    dtype: str = "fp32"
    count: float = 1.0
    note: str = ""

    def __post_init__(self) -> None:
        columns = OPS.get(self.family)
        if columns is None:
            hint = did_you_mean(self.family, OPS)
            raise InputError(f"Unknown family {self.family!r} of operations; allowed: {', '.join(OPS)}.{hint}")
        for name in self.shape:
            if name not in columns:
                allowed = ", ".join(columns) or "none"
                raise InputError(f"{self.family} has no column {name!r}; its columns: {allowed}.")
        given = {name: self.shape.get(name, default) for name, default in columns.items()}
        for name, value in given.items():
            _check_number(f"Column {name!r} of {self.family}", value)
        _check_number(f"The count of {self.family}", self.count)
        object.__setattr__(self, "shape", {name: float(value or 0.0) for name, value in given.items()})

    @property
    def key(self) -> tuple[object, ...]:
        """What tells distinct operations apart: all but the count."""
        return (self.family, *self.shape.values(), self.dtype, self.note)


@dataclass(frozen=True)
class Node:
    """`repeats` alike operations of the framework, one after the other.

    `forward`, `backward`: its kernels in either pass; `accumulate`: those that add to or update its parameters;
    `before`: names of the nodes whose outputs it reads; `output_bytes`, `parameter_bytes` of one of them [byte].
    """

    name: str
    kind: str = ""
    forward: tuple[Op, ...] = ()
    backward: tuple[Op, ...] = ()
    accumulate: tuple[Op, ...] = ()
    before: tuple[str, ...] = ()
    output_bytes: float = 0.0
    parameter_bytes: float = 0.0
    repeats: float = 1.0

    def __post_init__(self) -> None:
        for name in ("output_bytes", "parameter_bytes", "repeats"):
            _check_number(f"Node '{self.name}': {name}", getattr(self, name))

    def ops(self, passes: tuple[str, ...] = PASSES) -> tuple[Op, ...]:
        """The operations of some passes."""
        return tuple(op for name in passes for op in getattr(self, name))


@dataclass(frozen=True)
class Graph:
    """The nodes of one iteration, kept in an order in which every node follows those it reads.

    **Raises:** `InputError` for a graph without nodes, with two of one name, with an edge to none, or with a cycle.
    """

    name: str
    nodes: tuple[Node, ...]
    place: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InputError(f"Graph '{self.name}' has no nodes.")
        counted = Counter(node.name for node in self.nodes)
        twice = [name for name, count in counted.items() if count > 1]
        if twice:
            raise InputError(f"Graph '{self.name}' has {counted[twice[0]]} nodes named '{twice[0]}'.")
        for node in self.nodes:
            for other in node.before:
                if other not in counted:
                    hint = did_you_mean(other, counted)
                    raise InputError(f"Graph '{self.name}': node '{node.name}' reads '{other}', which is absent.{hint}")
        ordered = _ordered(self.name, self.nodes)
        object.__setattr__(self, "nodes", ordered)
        object.__setattr__(self, "place", {node.name: position for position, node in enumerate(ordered)})

    def __getitem__(self, name: str) -> Node:
        """The node of a name."""
        if name not in self.place:
            raise InputError(f"Graph '{self.name}' has no node '{name}'.{did_you_mean(name, self.place)}")
        return self.nodes[self.place[name]]

    @property
    def unknown(self) -> dict[str, int]:
        """How many operations of each unknown name were taken for plain movement of their bytes."""
        found: Counter[str] = Counter()
        for node in self.nodes:
            for op in node.ops():
                if op.family == "memory" and op.note:
                    found[op.note] += round(op.count * node.repeats)
        return dict(found)


def _check_number(what: str, value: object) -> None:
    if value is None:
        raise InputError(f"{what} is missing.")
    if not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise InputError(f"{what} is {value!r}; it must be a finite number from 0.")


def _ordered(graph: str, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Topological order (Kahn 1962), the given one where it is one already."""
    if _follows(nodes):
        return nodes
    by_name = {node.name: node for node in nodes}
    waiting = {node.name: len(set(node.before)) for node in nodes}
    after: dict[str, list[str]] = {name: [] for name in by_name}
    for node in nodes:
        for other in dict.fromkeys(node.before):
            after[other].append(node.name)
    ready = deque(name for name, count in waiting.items() if not count)
    found = []
    while ready:
        name = ready.popleft()
        found.append(by_name[name])
        for other in after[name]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    if len(found) < len(nodes):
        raise InputError(f"Graph '{graph}' has a cycle: {' -> '.join(_cycle(by_name, waiting))}.")
    return tuple(found)


def _follows(nodes: tuple[Node, ...]) -> bool:
    """Whether every node comes after all that it reads."""
    seen: set[str] = set()
    for node in nodes:
        if not seen.issuperset(node.before):
            return False
        seen.add(node.name)
    return True


def _cycle(by_name: Mapping[str, Node], waiting: Mapping[str, int]) -> list[str]:
    """One cycle among the nodes that never became ready, in the direction of the data."""
    name = next(name for name, count in waiting.items() if count)
    walked: dict[str, int] = {}
    while name not in walked:
        walked[name] = len(walked)
        name = next(other for other in by_name[name].before if waiting[other])
    circle = [each for each, position in walked.items() if position >= walked[name]]
    return [name, *reversed(circle)]
