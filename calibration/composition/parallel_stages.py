"""What the devices of a layout work through: a graph for each kind of pipeline stage, the update of its weights, and
the bytes that they send.

The step is Megatron-LM's as Accelerate drives it, which is what NeuSight's labels of several devices time
(`MegatronEngine.train_step` of Accelerate 1.0; Megatron-LM core 0.5): gradients filled with zeros, all micro-batches
forward and backward, gradients averaged over the replicas after the last of them, their norm taken and clipped, and
one fused Adam kernel. The operations of the layers are those of the model's own class; what Megatron-LM fuses is not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from calibration.composition.parallel import Layout
from hwspecs.errors import InputError
from jaxperf.models.config import ModelConfig
from jaxperf.models.graph import Graph, Node
from jaxperf.models.workloads.counts import parameter_bytes
from jaxperf.models.workloads.kernels import stream
from jaxperf.models.workloads.optimizers import with_optimizer
from jaxperf.models.workloads.shards import layer_reductions, tensor_shard
from jaxperf.models.workloads.stages import layer_places, stage_graph, stage_layers
from jaxperf.models.workloads.tape import ITEMSIZES

DTYPE = "fp32"


@dataclass(frozen=True)
class Stage:
    """One kind of pipeline stage, of which there are `count`.

    `graph` of one micro-batch on one device; `update` of its weights, once an iteration; `reductions`: all-reduces of
    the residual stream (forward, backward) of a micro-batch; `stream_bytes` of the residual stream; `gradient_bytes`
    that one device holds; `shared_bytes` of the token table's gradient that first and last stage sum up; `first`,
    `last` of the pipeline.
    """

    graph: Graph
    update: Graph
    count: int
    reductions: tuple[int, int]
    stream_bytes: float
    gradient_bytes: float
    shared_bytes: float
    first: bool
    last: bool


def stages_of(config: ModelConfig, layout: Layout, seq: int, batch: int) -> tuple[Stage, ...]:
    """The kinds of stages of a layout, alike ones together.

    **Raises:** `InputError` for a batch that does not divide, and as `tensor_shard` and `stage_graph` do.
    """
    local = layout.local_batch(batch)
    if local is None:
        parts = f"{layout.data_parallel} (replicas) x {layout.microbatches} (micro-batches)"
        raise InputError(f"A batch of {batch} sequences does not divide into {parts}.")
    stages = layout.pipeline_parallel
    shard = tensor_shard(config, layout.tensor_parallel)
    kinds: dict[tuple, Stage] = {}
    for place, layers in enumerate(stage_layers(shard, stages)):
        kind = (place == 0, place == stages - 1, layers)
        if kind in kinds:
            kinds[kind] = dataclasses.replace(kinds[kind], count=kinds[kind].count + 1)
        else:
            graph = stage_graph(shard, seq, local, place, stages, DTYPE)
            kinds[kind] = _stage(graph, shard, sum(map(layer_reductions, layers)), place == 0, place == stages - 1)
    return tuple(kinds.values())


def _stage(graph: Graph, shard: ModelConfig, blocks: int, first: bool, last: bool) -> Stage:
    """The token table's rows are summed up forward by the first stage, the head's input gradients by the last one."""
    ends = first != last and shard.tied_embeddings
    return Stage(
        graph=graph,
        update=update_graph(graph),
        count=1,
        reductions=(blocks + first, blocks + last),
        stream_bytes=graph.nodes[layer_places(graph)[0]].output_bytes,
        gradient_bytes=parameter_bytes(graph),
        shared_bytes=ends * shard.vocabulary * shard.embedding_width * float(ITEMSIZES[DTYPE]),
        first=first,
        last=last,
    )


def update_graph(graph: Graph) -> Graph:
    """Once an iteration: the gradients filled with zeros, their norm, their clipping, and Adam in one kernel."""
    size = parameter_bytes(graph) / ITEMSIZES[DTYPE]
    buffer = (stream("fill", 0.0, size), stream("norm", size, 1.0), stream("mulu", size, size))
    optimizer = with_optimizer(graph, "adam", "fused", DTYPE).nodes[0]
    return Graph(f"{graph.name}-update", (optimizer, Node("gradients", "optimizer", backward=buffer)))
