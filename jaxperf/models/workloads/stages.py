"""The training graphs of pipeline stages: each has an equal share of the layers, the first the tables, the last the
head and the loss (arXiv:1811.06965)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from hwspecs.errors import InputError
from jaxperf.models.config import Layer, ModelConfig
from jaxperf.models.graph import Graph, Node
from jaxperf.models.workloads.catalog import recorded
from jaxperf.models.workloads.operations import cross_entropy
from jaxperf.models.workloads.training import LAYERS


def stage_graph(
    config: ModelConfig, seq: int, batch: int, stage: int = 0, stages: int = 1, dtype: str = "fp32"
) -> Graph:
    """Forward pass, loss and backward pass of `batch` sequences on stage `stage` (from 0) of `stages`.

    A tied output head on another stage than the token table is a tensor of its own there.
    **Raises:** `InputError` for stages that do not divide the layers, models of two stacks, and as `workload` does.
    """
    model = config if stages == 1 else _with_layers(config, stage_layers(config, stages)[stage])
    tape, output = recorded(model, "train", seq, batch, dtype)
    cross_entropy(tape, output)
    graph = tape.graph()
    first, last = layer_places(graph)
    nodes = graph.nodes if stage == stages - 1 else graph.nodes[: last + 1]
    return Graph(f"{graph.name}-stage{stage}of{stages}", nodes if stage == 0 else _needed(nodes, first))


def stage_layers(config: ModelConfig, stages: int) -> list[tuple[Layer, ...]]:
    """The layers of every stage.

    **Raises:** `InputError` for stages that do not divide the layers, and several stages of models of two stacks.
    """
    if stages > 1 and config.layers and config.encoders:
        raise InputError(f"{config.name} has an encoder and a decoder: pipelines of it are not built yet.")
    layers = config.layers or config.encoders[0].layers
    if len(layers) % stages:
        raise InputError(f"{config.name} has {len(layers)} layers, which {stages} stages do not divide.")
    size = len(layers) // stages
    return [layers[start : start + size] for start in range(0, len(layers), size)]


def layer_places(graph: Graph) -> tuple[int, int]:
    """Positions of the first and the last node of the repeated layers.

    **Raises:** `InputError` for a graph without such layers.
    """
    places = [
        place
        for place, node in enumerate(graph.nodes)
        if any(scope.startswith(LAYERS) for scope in node.name.split(".")[:-1])
    ]
    if not places:
        raise InputError(f"Graph '{graph.name}' has no repeated layers.")
    return places[0], places[-1]


def _with_layers(config: ModelConfig, layers: tuple[Layer, ...]) -> ModelConfig:
    if config.layers:
        return dataclasses.replace(config, layers=layers, tied_embeddings=False)
    tower = dataclasses.replace(config.encoders[0], layers=layers)
    return dataclasses.replace(config, encoders=(tower,))


def _needed(nodes: Sequence[Node], first: int) -> tuple[Node, ...]:
    """The layers, what follows them, and what they need beside the residual stream, which another stage sends."""
    entry = dataclasses.replace(nodes[first], before=())
    by_name = {node.name: node for node in nodes} | {entry.name: entry}
    wanted: set[str] = set()
    open_ends = [node.name for node in nodes[first:]]
    while open_ends:
        name = open_ends.pop()
        if name not in wanted:
            wanted.add(name)
            open_ends += by_name[name].before
    return tuple(by_name[node.name] for node in nodes if node.name in wanted)
