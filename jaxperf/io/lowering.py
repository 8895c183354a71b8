"""From a traced program to the graph of its kernels, with the exact FLOP and bytes of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.io.chain_operations import operations
from jaxperf.io.chains import Chains, find_chains
from jaxperf.io.fusion_levels import Root
from jaxperf.io.program import Kind, Program, Step, Value
from jaxperf.models.graph import Graph, Node, Op


@dataclass(frozen=True)
class Work:
    """What a kernel does in all its runs: arithmetic, of which in matrix products [FLOP], and device memory [byte]."""

    flops: float
    product_flops: float
    read: float
    written: float

    @property
    def bytes_moved(self) -> float:
        """Read and written [byte]."""
        return self.read + self.written


@dataclass(frozen=True)
class Traced:
    """The graph of a program, the work of each of its nodes by name, and what to know of them."""

    graph: Graph
    work: Mapping[str, Work]
    program: Program
    notes: tuple[str, ...]

    @property
    def total(self) -> Work:
        """The work of all nodes."""
        parts = self.work.values()
        return Work(*(sum(getattr(each, name) for each in parts) for name in Work.__dataclass_fields__))


def lower(program: Program, fuse: bool = True) -> Traced:
    """The kernels of a program.

    **Arguments:** `fuse`: join chains of elementwise work and reductions, as XLA does; else one kernel a step.
    **Raises:** `InputError` for a program without a kernel, and for what is no program.
    """
    if not isinstance(program, Program):
        raise InputError(
            f"The program is a value of type {type(program).__name__}; give what jaxperf.trace or "
            "jaxperf.read_onnx gives."
        )
    chains = find_chains(program, fuse)
    readers = _readers(program, chains)
    origins: dict[str, tuple[str, ...]] = {}
    nodes, work = [], {}
    for group in _in_order(chains):
        inputs, written = _external(program, group, chains, readers)
        before = tuple(dict.fromkeys(node for name in inputs for node in origins.get(name, ())))
        if group[0].kind is Kind.FREE:
            origins.update(dict.fromkeys(group[0].outputs, before))
            continue
        reads = [(program.values[name], nbytes) for name, nbytes in inputs.items()]
        node, done = _node(program, group, reads, written, before)
        origins.update({name: (node.name,) for step in group for name in step.outputs})
        nodes.append(node)
        work[node.name] = done
    if not nodes:
        raise InputError(f"{program.name} has no kernel: it only names, reshapes or drops its inputs.")
    held = _stacked(program, origins)
    nodes = [_holding(node, held.get(node.name, 0.0)) for node in nodes]
    return Traced(Graph(program.name, tuple(nodes)), work, program, _notes(program, nodes))


def _in_order(chains: Chains) -> list[tuple[Step, ...]]:
    """Groups so that each follows those it reads: a chain may begin before a kernel that one of its later steps reads.

    `Graph` would order them too, but the origins of a value must be known before its readers are written.
    """
    maker = {name: position for position, group in enumerate(chains.groups) for step in group for name in step.outputs}
    waits = [
        {maker[root] for step in group for name in step.inputs if (root := chains.roots[name].name) in maker}
        - {position}
        for position, group in enumerate(chains.groups)
    ]
    placed: set[int] = set()
    ordered = []
    for start in range(len(chains.groups)):
        stack = [start]
        while stack:
            position = stack[-1]
            missing = [other for other in waits[position] if other not in placed]
            if position in placed or not missing:
                stack.pop()
                if position not in placed:
                    placed.add(position)
                    ordered.append(chains.groups[position])
            else:
                stack.extend(missing)
    return ordered


def _readers(program: Program, chains: Chains) -> dict[str, set[str]]:
    """Names of the steps that read each root; an output of the program is read by the caller, ""."""
    readers: dict[str, set[str]] = {}
    for group in chains.groups:
        for step in group:
            for name in step.inputs:
                readers.setdefault(chains.roots[name].name or "", set()).add(step.name)
    for name in program.outputs:
        readers.setdefault(chains.roots[name].name or "", set()).add("")
    return readers


def _external(
    program: Program, group: Sequence[Step], chains: Chains, readers: Mapping[str, set[str]]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """What a kernel reads from outside, with the bytes of it, and which of its values are read outside."""
    own = {name for step in group for name in step.outputs}
    views: dict[str, dict[str, float]] = {}
    for step in group:
        for name in step.inputs:
            root: Root = chains.roots[name]
            if root.name is not None and root.name not in own:
                views.setdefault(root.name, {})[name] = root.nbytes
    reads = {name: min(program.values[name].nbytes, sum(parts.values())) for name, parts in views.items()}
    members = {step.name for step in group}
    written = tuple(name for name in _made(group) if readers.get(name, set()) - members)
    return reads, written


def _made(group: Sequence[Step]) -> list[str]:
    """The values that the steps of a kernel make."""
    return [name for step in group for name in step.outputs]


def _node(
    program: Program,
    group: Sequence[Step],
    reads: Sequence[tuple[Value, float]],
    written: Sequence[str],
    before: tuple[str, ...],
) -> tuple[Node, Work]:
    step = group[-1]
    out = [program.values[name] for name in written]
    single = len(group) == 1
    read = step.read if single and step.read is not None else sum(nbytes for _, nbytes in reads)
    wrote = step.written if single and step.written is not None else sum(value.nbytes for value in out)
    flops = sum(each.flops for each in group)
    ops = operations(program, group, reads, out, read, wrote)
    forward = tuple(_times(op, step.count) for op in ops)
    product = step.count * flops if step.kind is Kind.PRODUCT else 0.0
    done = Work(step.count * flops, product, step.count * read, step.count * wrote)
    label = ops[0].note or ops[0].family
    kind = step.operation if single else label
    held = 0.0 if step.in_place else sum(value.nbytes for value in out)
    name = step.name if single else f"{step.name.rpartition('/')[0]}/{label}.{step.name.rpartition('.')[2]}".lstrip("/")
    return Node(name, kind, forward, before=before, output_bytes=held), done


def _times(op: Op, count: float) -> Op:
    return Op(op.family, op.shape, op.dtype, op.count * count, op.note)


def _stacked(program: Program, origins: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Bytes of the stacked outputs of loops, by the node that fills them."""
    held: dict[str, float] = {}
    for step in program.steps:
        if step.kind is Kind.FREE and not step.in_place:
            for name in step.outputs:
                for node in origins.get(name, ())[:1]:
                    held[node] = held.get(node, 0.0) + program.values[name].nbytes
    return held


def _holding(node: Node, more: float) -> Node:
    """A node that also holds what it fills of a loop's stacked output."""
    if not more:
        return node
    return Node(node.name, node.kind, node.forward, before=node.before, output_bytes=node.output_bytes + more)


def _notes(program: Program, nodes: Sequence[Node]) -> tuple[str, ...]:
    collectives = [node.kind for node in nodes if node.forward and node.forward[0].family == "none"]
    named = ", ".join(f"{word} ({collectives.count(word)})" for word in dict.fromkeys(collectives))
    return (*program.notes, *((f"collectives are named, not timed: {named}",) if named else ()))
