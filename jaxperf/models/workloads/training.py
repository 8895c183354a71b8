"""A whole training step: loss, backward pass, recomputation of activations, optimizer; each a function of graphs."""

from __future__ import annotations

import dataclasses

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.config import ModelConfig
from jaxperf.models.graph import Graph, Node
from jaxperf.models.workloads.attention import CORE
from jaxperf.models.workloads.catalog import recorded
from jaxperf.models.workloads.operations import cross_entropy
from jaxperf.models.workloads.optimizers import with_optimizer

RECOMPUTE = ("none", "selective", "full")
LAYERS = ("layers", "blocks", "stage", "down", "middle", "up")  # what the names of repeated layers begin with


def training_step(
    model: ModelConfig | str,
    seq: int,
    batch: int,
    optimizer: str = "adamw",
    implementation: str = "foreach",
    recompute: str = "none",
    accumulate: bool = False,
    dtype: str = "fp32",
) -> Graph:
    """One step with a cross-entropy loss over the last axis of the model's output.

    **Arguments:** `model`, `seq`, `batch`, `dtype` as in `workload`; `optimizer` and `implementation` as in
    `with_optimizer`; `recompute` as in `recomputed`; `accumulate`: gradients are added to those of earlier
    microbatches, else they take the place of none.
    **Raises:** `InputError` naming the argument and what is allowed.
    """
    tape, output = recorded(model, "train", seq, batch, dtype)
    cross_entropy(tape, output)
    graph = with_optimizer(recomputed(tape.graph(), recompute), optimizer, implementation)
    return graph if accumulate else without_accumulation(graph)


def recomputed(graph: Graph, how: str) -> Graph:
    """The graph with forward kernels run again before the backward ones.

    "full": all of each repeated layer (Chen et al. 2016, arXiv:1604.06174); "selective": the scores, softmax and
    dropout of the attention (Korthikanti et al. 2022, arXiv:2205.05198, section 5); "none".
    """
    if how not in RECOMPUTE:
        hint = did_you_mean(how, RECOMPUTE)
        raise InputError(f"recompute is {how!r}; it must be one of {', '.join(RECOMPUTE)}.{hint}")
    return Graph(graph.name, tuple(_again(node) if _chosen(node, how) else node for node in graph.nodes))


def _chosen(node: Node, how: str) -> bool:
    scopes = node.name.split(".")[:-1]
    return CORE in scopes if how == "selective" else how == "full" and any(s.startswith(LAYERS) for s in scopes)


def _again(node: Node) -> Node:
    return dataclasses.replace(node, backward=node.forward + node.backward)


def without_accumulation(graph: Graph) -> Graph:
    """The graph of a step whose gradients are the first ones: the tensors are kept, nothing is added."""
    return Graph(graph.name, tuple(dataclasses.replace(node, accumulate=()) for node in graph.nodes))
