"""Peak memory by liveness: every tensor lies in memory from the kernel that writes it to the last that reads it.

`jaxperf.models.training_memory` has what training adds: gradients, what the backward pass reads, optimizer states.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.graph import Graph, Node

NO_WORKSPACE: Mapping[str, float] = {}
Tensor = tuple[str, str]  # what it is, such as "output" or "gradient", and of which node


@dataclass(frozen=True)
class Action:
    """A kernel in time: it reads tensors, writes others ([byte] each), and holds `workspace` while it runs [byte]."""

    name: str
    reads: tuple[Tensor, ...]
    writes: Mapping[Tensor, float]
    workspace: float = 0.0


@dataclass(frozen=True)
class Peak:
    """The most memory that the tensors of an iteration take at once [byte], and the first action at which they do."""

    nbytes: float
    action: str


def peak(actions: Sequence[Action], kept: Sequence[Tensor] = ()) -> Peak:
    """The largest sum of live tensors over a sequence of actions; `kept` live to its end.

    A tensor lives from its first write to its last use; one that is only read was there before and is not counted.
    """
    last: dict[Tensor, int] = {}
    for position, action in enumerate(actions):
        last.update(dict.fromkeys((*action.reads, *action.writes), position))
    last.update(dict.fromkeys(kept, len(actions)))
    ending: dict[int, list[Tensor]] = {}
    for tensor, position in last.items():
        ending.setdefault(position, []).append(tensor)
    live: dict[Tensor, float] = {}
    used = 0.0
    found = Peak(0.0, actions[0].name if actions else "")
    for position, action in enumerate(actions):
        for tensor, nbytes in action.writes.items():
            if tensor not in live:
                live[tensor] = nbytes
                used += nbytes
        if used + action.workspace > found.nbytes:
            found = Peak(used + action.workspace, action.name)
        for tensor in ending.get(position, ()):
            used -= live.pop(tensor, 0.0)
    return found


def inference_peak(graph: Graph, workspace: Mapping[str, float] = NO_WORKSPACE) -> Peak:
    """Peak of the activations of a forward pass; outputs that no node reads live to its end.

    **Arguments:** `workspace`: temporary memory of nodes by name [byte].
    **Raises:** `InputError` for a workspace of no node.
    """
    check_names(graph, workspace, "workspace")
    memory = memory_of(graph)
    read = {memory[name] for node in graph.nodes for name in node.before}
    actions = [forward_action(node, "output", outputs(node.before, memory), memory, workspace) for node in graph.nodes]
    return peak(actions, [("output", name) for name in dict.fromkeys(memory.values()) if name not in read])


def memory_of(graph: Graph) -> dict[str, str]:
    """The node in whose memory the output of each lies: a view, which has no kernel, lies in that of what it views."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        view = node.before and all(op.family == "none" for op in node.forward)
        source = graph[found[node.before[0]]] if view else node
        found[node.name] = source.name if node.output_bytes <= source.output_bytes else node.name
    return found


def forward_action(
    node: Node,
    role: str,
    reads: Sequence[Tensor],
    memory: Mapping[str, str],
    workspace: Mapping[str, float],
    kept: Container[str] = (),
) -> Action:
    """A node's forward pass: its output ("output", or "again" where it is computed a second time), the mask of a
    dropout, and for a node in `kept` the outputs of all its repetitions but this one."""
    name = node.name if role == "output" else f"{node.name} again"
    own = memory[node.name] == node.name
    written: dict[Tensor, float] = {(role, node.name): node.output_bytes} if own else {}
    if node.name in kept and node.repeats > 1.0:
        written["kept", node.name] = (node.repeats - 1.0) * node.output_bytes
    if dropout_mask(node):
        written["mask", node.name] = dropout_mask(node)
    return Action(name, tuple(reads), written, workspace.get(node.name, 0.0))


def dropout_mask(node: Node) -> float:
    """Bytes of what a dropout remembers, one an element, where it is differentiated [byte]."""
    if not node.backward:
        return 0.0
    return node.repeats * sum(op.count * op.shape["elements_in"] for op in node.forward if op.note == "dropout")


def outputs(names: Sequence[str], memory: Mapping[str, str]) -> list[Tensor]:
    """The tensors that outputs of some nodes lie in."""
    return [("output", memory[name]) for name in names]


def check_names(graph: Graph, names: Sequence[str] | Mapping[str, float], what: str) -> None:
    """Raises `InputError` for a name that is no node's."""
    for name in names:
        if name not in graph.place:
            raise InputError(
                f"Graph '{graph.name}': a {what} names '{name}', which is absent.{did_you_mean(name, graph.place)}"
            )
