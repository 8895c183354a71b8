"""The tape: operations are recorded in the order they are called and become the nodes of a graph."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.workloads.kernels import HOST, stream

ITEMSIZES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}  # bytes of an element of a tensor


@dataclass(frozen=True)
class Tensor:
    """The output of a node: its shape [elements], and whether a gradient flows back to it.

    A size may be a fraction: the rows of an expert are those of a balanced router.
    """

    node: str
    shape: tuple[float, ...]
    gradient: bool = True

    @property
    def elements(self) -> float:
        """All elements [1]."""
        return math.prod(self.shape)

    @property
    def rows(self) -> float:
        """Elements over the last axis [1]."""
        return math.prod(self.shape[:-1])


class Tape:
    """Records the nodes of one iteration.

    `training`: backward passes are recorded too; `dtype` of all tensors, one of `ITEMSIZES`. Where a tensor with a
    gradient is read by several nodes, their gradients are summed by one addition for each after the first, recorded
    with the tensor's own node: what autograd does.
    """

    def __init__(self, name: str, training: bool, dtype: str = "fp32") -> None:
        if dtype not in ITEMSIZES:
            raise InputError(f"dtype is {dtype!r}; the tensors of a workload are one of {', '.join(ITEMSIZES)}.")
        self.name, self.training, self.dtype = name, training, dtype
        self._nodes: list[Node] = []
        self._prefix: tuple[str, ...] = ()
        self._times = 1.0
        self._names: Counter[str] = Counter()
        self._readers: dict[str, float] = defaultdict(float)
        self._outputs: dict[str, Tensor] = {}
        self._place: dict[str, int] = {}

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZES[self.dtype]

    @contextmanager
    def scope(self, *names: str) -> Iterator[None]:
        """Nodes recorded inside are named below `names`."""
        outside = self._prefix
        self._prefix = (*outside, *names)
        try:
            yield
        finally:
            self._prefix = outside

    @contextmanager
    def block(self, x: Tensor, times: int, *names: str) -> Iterator[Tensor]:
        """Nodes recorded inside are executed `times` times, each pass reading what the one before returned.

        Gives the block's own `x`, in the place of the tensor before it in the first pass.
        """
        with self.scope(*names), self.repeated(times):
            yield self._entered(x)

    @contextmanager
    def repeated(self, times: float) -> Iterator[None]:
        """Nodes recorded inside stand for `times` alike ones, such as one for each expert."""
        outside = self._times
        self._times = outside * times
        try:
            yield
        finally:
            self._times = outside

    def _entered(self, x: Tensor) -> Tensor:
        """A node that launches nothing forward, and reads `x` without a share of its gradient."""
        source = dataclasses.replace(x, gradient=False)
        return self.record("input", "view", (source,), x.shape, [HOST], gradient=x.gradient)

    def input(self, name: str, *shape: float, gradient: bool = False) -> Tensor:
        """What the caller hands in."""
        return self.record(name, "input", (), shape, gradient=gradient)

    def record(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Tensor],
        shape: tuple[float, ...],
        forward: Sequence[Op] = (),
        backward: Sequence[Op] = (),
        parameters: Sequence[float] = (),
        shared: bool = False,
        gradient: bool | None = None,
    ) -> Tensor:
        """One node with its kernels; its output has `shape`.

        `parameters`: elements of its trained tensors; `shared`: they are stored with an earlier node, where they are
        counted; `gradient`: whether the output has one, by default if the node has parameters or an input has one.
        """
        flows = gradient if gradient is not None else bool(parameters) or any(x.gradient for x in inputs)
        full = self._unique(name)
        learns = self.training and flows
        for tensor in inputs:
            if learns and tensor.gradient:
                self._readers[tensor.node] += max(1.0, self._times / self._nodes[self._place[tensor.node]].repeats)
        node = Node(
            name=full,
            kind=kind,
            forward=self._typed(forward),
            backward=self._typed(backward) if learns else (),
            accumulate=self._typed([stream("add", 2 * size, size) for size in parameters]) if learns else (),
            before=tuple(dict.fromkeys(tensor.node for tensor in inputs)),
            output_bytes=math.prod(shape) * self.itemsize,
            parameter_bytes=0 if shared else sum(parameters) * self.itemsize,
            repeats=self._times,
        )
        output = Tensor(full, shape, flows)
        self._outputs[full] = output
        self._place[full] = len(self._nodes)
        self._nodes.append(node)
        return output

    def own(self, tensor: Tensor, elements: float) -> None:
        """Count `elements` of parameters with the node of `tensor`, whose others are stored elsewhere."""
        place = self._place[tensor.node]
        node = self._nodes[place]
        stored = node.parameter_bytes + elements * self.itemsize
        self._nodes[place] = dataclasses.replace(node, parameter_bytes=stored)

    def graph(self) -> Graph:
        """The nodes recorded so far."""
        return Graph(self.name, tuple(self._with_sums(node) for node in self._nodes))

    def _with_sums(self, node: Node) -> Node:
        """The node with the sum of the gradients that come back from all who read it, before its own backward pass."""
        sums = self._readers[node.name] - 1
        if sums < 1 or not self.training:
            return node
        output = self._outputs[node.name]
        each = stream("sum", 2 * output.elements, output.elements, output.rows)
        added = dataclasses.replace(each, dtype=self.dtype, count=sums)
        return dataclasses.replace(node, backward=(added, *node.backward))

    def _unique(self, name: str) -> str:
        full = ".".join((*self._prefix, name))
        self._names[full] += 1
        return full if self._names[full] == 1 else f"{full}_{self._names[full] - 1}"

    def _typed(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        return tuple(op if op.dtype == self.dtype else dataclasses.replace(op, dtype=self.dtype) for op in ops)
