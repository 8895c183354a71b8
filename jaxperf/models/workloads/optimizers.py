"""The optimizer's kernels over all trained tensors: one by one, over lists of tensors, or all in one (torch.optim)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.tape import ITEMSIZES

IMPLEMENTATIONS = ("for-loop", "foreach", "fused")
# Of a launch over lists of tensors: the most tensors for 1 to 5 lists, and the most elements
# (aten/src/ATen/native/cuda/MultiTensorApply.cuh and ForeachUtils.h: 320 blocks of 65536 elements).
MOST_TENSORS = (110, 64, 48, 36, 30)
MOST_ELEMENTS = 320 * 65536


@dataclass(frozen=True)
class Optimizer:
    """`kernels`: word, tensors read and written of each elementwise kernel of one update; `fused`: tensors read and
    written where one kernel does all of it."""

    kernels: tuple[tuple[str, int, int], ...]
    fused: tuple[int, int]


# First moment, second moment (two kernels), three of the denominator (torch/optim/adam.py, _single_tensor_adam).
_MOMENTS = (("lerp", 2, 1), ("mulu", 1, 1), ("addcmul", 2, 1), ("sqrt", 1, 1), ("divu", 1, 1), ("addu", 1, 1))
_DECAY = ("add", 2, 1)  # the weight times the decay is added to the gradient

OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "sgd": Optimizer((("add", 2, 1),), (2, 1)),
        "momentum": Optimizer((("mulu", 1, 1), ("add", 2, 1), ("add", 2, 1)), (3, 2)),
        "adam": Optimizer((_DECAY, *_MOMENTS, ("addcdiv", 3, 1)), (4, 3)),  # arXiv:1412.6980
        "adamw": Optimizer((("mulu", 1, 1), *_MOMENTS, ("addcdiv", 3, 1)), (4, 3)),  # arXiv:1711.05101
    }
)


def trained_tensors(graph: Graph) -> Counter[float]:
    """How many trained tensors there are of each number of elements; one that several nodes share counts once."""
    found: Counter[float] = Counter()
    for node in graph.nodes:
        left = node.parameter_bytes
        for op in node.accumulate:  # a table that is stored elsewhere is larger than what this node stores
            size = op.shape["elements_out"]
            if size * ITEMSIZES[op.dtype] <= left:
                found[size] += round(node.repeats)
                left -= size * ITEMSIZES[op.dtype]
    return found


def with_optimizer(graph: Graph, name: str = "adamw", implementation: str = "foreach", dtype: str = "fp32") -> Graph:
    """The graph with a node "optimizer.NAME" that updates every trained tensor.

    Its kernels are in the backward pass of the first node, which is worked through last. `name` is one of
    `OPTIMIZERS`; `implementation`: "for-loop" (a kernel for each tensor and operation), "foreach" (for a list of
    tensors and each operation) or "fused" (for a list of tensors); `dtype` of weights and moments.
    **Raises:** `InputError` for another name, or a graph without trained tensors.
    """
    if name not in OPTIMIZERS:
        raise InputError(f"Unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}.{did_you_mean(name, OPTIMIZERS)}")
    if implementation not in IMPLEMENTATIONS:
        hint = did_you_mean(implementation, IMPLEMENTATIONS)
        raise InputError(f"implementation is {implementation!r}; it must be one of {', '.join(IMPLEMENTATIONS)}.{hint}")
    tensors = trained_tensors(graph)
    if not tensors:
        raise InputError(f"Graph '{graph.name}' has no trained tensors; an optimizer needs the graph of mode train.")
    ops = tuple(dataclasses.replace(op, dtype=dtype) for op in _kernels(OPTIMIZERS[name], implementation, tensors))
    return Graph(graph.name, (Node(f"optimizer.{name}", "optimizer", backward=ops), *graph.nodes))


def _kernels(optimizer: Optimizer, implementation: str, tensors: Counter[float]) -> list[Op]:
    if implementation == "fused":
        return [_over_lists("fused", *optimizer.fused, tensors)]
    if implementation == "foreach":
        return [_over_lists(word, read, written, tensors) for word, read, written in optimizer.kernels]
    return [
        dataclasses.replace(stream(word, read * size, written * size), count=float(count))
        for size, count in sorted(tensors.items())
        for word, read, written in optimizer.kernels
    ]


def _over_lists(word: str, read: int, written: int, tensors: Counter[float]) -> Op:
    """One operation over all tensors, in as few launches as their number and their elements allow."""
    elements = sum(size * count for size, count in tensors.items())
    lists = min(max(read, written), len(MOST_TENSORS))
    launches = max(-(-sum(tensors.values()) // MOST_TENSORS[lists - 1]), -(-elements // MOST_ELEMENTS))
    each = elements / launches
    return dataclasses.replace(stream(word, read * each, written * each), count=float(launches))
