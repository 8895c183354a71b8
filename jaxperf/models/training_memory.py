"""Memory of an iteration of training: states, what the backward pass reads, gradients, recomputation of segments.

A segment is computed again before its backward pass (Chen et al. 2016, arXiv:1604.06174); weights, gradients and
optimizer states stay throughout (Rajbhandari et al. 2020, arXiv:1910.02054, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hwspecs.errors import InputError
from jaxperf.models.graph import Graph, Node, Op
from jaxperf.models.liveness import (
    NO_WORKSPACE,
    Action,
    Tensor,
    check_names,
    dropout_mask,
    forward_action,
    memory_of,
    outputs,
    peak,
)
from jaxperf.models.workloads.counts import parameter_bytes

# Operations whose derivative needs neither their inputs nor their output, and those that need the output alone.
KEEPS_NOTHING = frozenset("add addu sub subu sum neg mulu divu copy view dropout where none".split())
KEEPS_OUTPUT = frozenset("softmax relu tanh sigmoid exp sqrt rsqrt".split())
KEEPS_FACTORS = frozenset(("mul", "div"))  # an input is needed for the gradient of the other


@dataclass(frozen=True)
class States:
    """Bytes per parameter of what stays during training.

    The default is mixed precision with Adam: 16-bit weights and gradients, and in fp32 the weights and two moments.
    """

    weights: float = 2.0
    gradients: float = 2.0
    master: float = 4.0
    moments: float = 8.0


FULL_PRECISION = States(weights=4.0, gradients=4.0, master=0.0, moments=8.0)


@dataclass(frozen=True)
class TrainingMemory:
    """What an iteration of training holds at its peak [byte]; `action`: where the activations peak."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    action: str

    @property
    def total(self) -> float:
        """All of it [byte]."""
        return self.weights + self.gradients + self.optimizer + self.activations


def training_memory(
    graph: Graph,
    states: States = FULL_PRECISION,
    segments: Sequence[Sequence[str]] = (),
    workspace: Mapping[str, float] = NO_WORKSPACE,
) -> TrainingMemory:
    """Memory of forward and backward pass, optimizer states included.

    **Arguments:** `segments`: names of the nodes that are computed again together before their backward pass; of them
    only what other nodes read is kept. `workspace`: temporary memory of nodes by name [byte].
    **Raises:** `InputError` for a segment or a workspace that names no node, or a node in two segments.
    """
    elements = parameter_bytes(graph) / states.weights
    found = peak(training_actions(graph, segments, workspace))
    return TrainingMemory(
        weights=elements * states.weights,
        gradients=elements * states.gradients,
        optimizer=elements * (states.master + states.moments),
        activations=found.nbytes,
        action=found.action,
    )


def training_actions(
    graph: Graph, segments: Sequence[Sequence[str]] = (), workspace: Mapping[str, float] = NO_WORKSPACE
) -> list[Action]:
    """The actions of an iteration: all nodes forward, then backward in reverse, each segment computed again before.

    Tensors: ("output", node), ("again", node) for its recomputed output, ("gradient", node) for that of its output,
    ("mask", node) of a dropout, ("kept", node) for the outputs of all its repetitions but one where the backward pass
    reads them.
    """
    check_names(graph, workspace, "workspace")
    segment, memory, learns = _segment_of(graph, segments), memory_of(graph), _learning(graph)
    backward: list[Action] = []
    seen: set[int] = set()
    for node in reversed(graph.nodes):
        if node.name not in learns:
            continue
        mine = segment.get(node.name)
        if mine is not None and mine not in seen:
            seen.add(mine)
            members = [other for other in graph.nodes if segment.get(other.name) == mine]
            backward += [
                forward_action(other, "again", _values(other.before, mine, segment, memory), memory, workspace)
                for other in members
            ]
        backward.append(_backward(graph, node, segment, memory, learns, workspace))
    kept = {tensor[1] for action in backward for tensor in action.reads if tensor[0] == "kept"}
    forward = [
        forward_action(node, "output", outputs(node.before, memory), memory, workspace, kept) for node in graph.nodes
    ]
    return forward + backward


def saved(node: Node) -> tuple[bool, bool]:
    """Whether the backward pass of a node reads its inputs, and whether its output.

    Products, normalizations and most activation functions read their inputs; a softmax, a ReLU and other functions
    whose derivative follows from their value read their output; sums, scalings and copies neither.
    """
    if not node.backward:
        return False, False
    words = {_word(op) for op in node.forward} - KEEPS_NOTHING
    return bool(words - KEEPS_OUTPUT), bool(words & KEEPS_OUTPUT)


def _word(op: Op) -> str:
    """What an operation is called; plain movement is a copy."""
    if op.family == "memory":
        return op.note or "copy"
    return op.note if op.family == "elementwise" else op.family


def _backward(
    graph: Graph,
    node: Node,
    segment: Mapping[str, int],
    memory: Mapping[str, str],
    learns: set[str],
    workspace: Mapping[str, float],
) -> Action:
    inputs, output = saved(node)
    factors = {_word(op) for op in node.forward} <= KEEPS_FACTORS and len(set(node.before)) > 1
    mine = segment.get(node.name)
    needed = [name for name in node.before if not factors or learns & {*node.before} - {name}]
    wanted = (*(needed if inputs else ()), *((node.name,) if output else ()))
    # The gradient of an output that nothing reads begins here, as that of a loss does.
    places = [memory[node.name], *(memory[name] for name in node.before if name in learns)]
    written: dict[Tensor, float] = {("gradient", place): graph[place].output_bytes for place in places}
    masks = [("mask", node.name)] if dropout_mask(node) else []
    reads = (("gradient", memory[node.name]), *_values(wanted, mine, segment, memory), *masks)
    return Action(f"{node.name} backward", reads, written, workspace.get(node.name, 0.0))


def _values(
    names: Sequence[str], mine: int | None, segment: Mapping[str, int], memory: Mapping[str, str]
) -> list[Tensor]:
    """Outputs as a segment's second pass sees them: its own computed again, all others kept."""
    found: list[Tensor] = []
    for name in (memory[name] for name in names):
        again = mine is not None and segment.get(name) == mine
        found += [("again", name)] if again else [("output", name), ("kept", name)]
    return found


def _learning(graph: Graph) -> set[str]:
    """Nodes that a gradient reaches: those with a backward pass, and all that read from them."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.backward or not found.isdisjoint(node.before):
            found.add(node.name)
    return found


def _segment_of(graph: Graph, segments: Sequence[Sequence[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for position, members in enumerate(segments):
        check_names(graph, members, "segment")
        for name in members:
            if name in found:
                raise InputError(f"Graph '{graph.name}': node '{name}' is in two segments; put it in one.")
            found[name] = position
    return found
