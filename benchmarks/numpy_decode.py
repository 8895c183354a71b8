"""One decode step of a dense transformer in NumPy broadcasting: the twin jaxperf is checked and timed against.

Written from the equations, not from jaxperf's code, and shares none of it: tensor parallelism only, full attention,
weights cold. Every argument is an array shaped for broadcasting (length along its own axis, 1 along the others), so
each quantity is computed only over the axes that it depends on. All units are SI.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray
MEMORY, TENSOR_PARALLEL, CONTEXT = 1, 2, 32  # reason bits


@dataclass(frozen=True)
class Model:
    """Widths of the transformer; `gates` 1 for SwiGLU; `tables` 2 where the output head has a table of its own."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    gates: int
    vocabulary: int
    tables: int
    max_context: int


@dataclass(frozen=True)
class Device:
    """Datasheet numbers; `peak_weights` and `native` are for the weight format, `peak_activations` for the other."""

    peak_weights: Array
    native: Array
    peak_activations: Array
    vector_flops: Array
    memory_bandwidth: Array
    memory_capacity: Array
    num_cores: Array
    l2_capacity: Array
    launch_latency: Array
    link_bandwidth: Array
    link_latency: Array
    node_size: Array
    mesh: Array
    torus_dimensions: Array
    network_bandwidth: Array
    network_latency: Array


@dataclass(frozen=True)
class Formats:
    """Bytes per element: stored weight, its operand in the matrix unit, activation, cached key or value."""

    weight: Array
    operand: Array
    activation: Array
    cache: Array


@dataclass(frozen=True)
class Assumptions:
    """(compute, memory) efficiency of each kernel family, share of the link rate, host time per launch and step."""

    gemm: tuple[float, float]
    attention: tuple[float, float]
    stream: tuple[float, float]
    link: float
    launch_interval: float
    step_overhead: float


@dataclass(frozen=True)
class Group:
    """The links as a tensor-parallel group sees them: `ranks` in each of `nodes`, `steps` around a torus; `latency` of
    a phase, which but on a torus starts a kernel and waits for flags of the peers before and after."""

    ranks: Array
    nodes: Array
    bandwidth: Array
    latency: Array
    steps: Array


def decode_step(
    model: Model,
    device: Device,
    formats: Formats,
    assumed: Assumptions,
    tensor_parallel: Array,
    batch: Array,
    context: Array,
) -> dict[str, Array]:
    """Time per output token [s], memory of one rank [byte] and the reason bits."""
    attention = decode_attention(model, device, formats, assumed, tensor_parallel, batch, context)
    group = tensor_group(device, assumed, tensor_parallel)
    layer = layer_time(model, device, formats, assumed, group, tensor_parallel, batch)
    fixed = model.layers * layer + ends_time(model, device, formats, assumed, group, tensor_parallel, batch)
    kernels = 10 * model.layers + 3
    device_time = fixed + model.layers * attention
    elapsed = np.maximum(device_time, kernels * assumed.launch_interval) + assumed.step_overhead
    memory = memory_of_rank(model, formats, tensor_parallel, batch, context)
    reason = reason_bits(model, device, memory, tensor_parallel, context)
    return {"tpot": np.where(reason == 0, elapsed, np.nan), "memory": memory, "reason": reason}


def decode_attention(
    model: Model, device: Device, formats: Formats, assumed: Assumptions, ranks: Array, batch: Array, context: Array
) -> Array:
    """Flash decoding, the keys split until every core has two blocks, which the cores share evenly [s]."""
    cores, width = device.num_cores, model.head_dim
    heads, kv_heads = shard_heads(model, ranks)
    groups = batch * kv_heads
    most = np.maximum(np.floor(context / 128), 1)
    splits = np.minimum(np.maximum(np.floor(2 * cores / groups), 1), most)
    blocks = groups * splits
    busiest = np.maximum(blocks, cores)
    packed = np.ceil(heads / kv_heads / 16) * 16
    outputs = batch * heads * width
    compute_rate = device.peak_activations * assumed.attention[0]
    compute = busiest * np.ceil(context / splits) * (4 * packed * width / compute_rate)
    cached = 2 * groups * width * formats.cache * context + 2 * outputs * formats.activation
    moved = cached + np.where(splits > 1, splits, 0) * (8 * outputs)
    memory = moved * (busiest / blocks) / (device.memory_bandwidth * assumed.attention[1])
    return np.maximum(compute, memory) + device.launch_latency


def layer_time(
    model: Model, device: Device, formats: Formats, assumed: Assumptions, group: Group, ranks: Array, tokens: Array
) -> Array:
    """Everything of one layer except the attention kernel [s]."""
    hidden, size = model.hidden, formats.activation
    heads, kv_heads = shard_heads(model, ranks)
    query_width, kv_width = heads * model.head_dim, kv_heads * model.head_dim
    width = np.ceil(model.intermediate / ranks)
    weights = device.peak_weights, np.where(device.native > 0, formats.operand, size), formats.weight

    def stream(elements: Array, read: Array, written: Array, operations: float) -> Array:
        return stream_time(device, assumed, elements * (read + written), elements * operations)

    def linear(columns: Array, depth: Array) -> Array:
        return linear_time(device, assumed, tokens, columns, depth, *weights, size)

    norm = stream(tokens * hidden, 2 * size, 2 * size, 5)
    rotary = stream(tokens * (query_width + kv_width), size, size, 3)
    cache_write = stream(2 * tokens * kv_width, size, formats.cache, 0)
    activation = stream(tokens * width, (1 + model.gates) * size, size, 8)
    hidden_array = np.full_like(ranks, hidden)
    projections = linear(query_width + 2 * kv_width, hidden_array) + linear(hidden_array, query_width)
    feed_forward = linear((1 + model.gates) * width, hidden_array) + linear(hidden_array, width)
    reduce = all_reduce_time(device, assumed, group, tokens * hidden * size)
    return 2 * norm + rotary + cache_write + activation + projections + feed_forward + 2 * reduce


def ends_time(
    model: Model, device: Device, formats: Formats, assumed: Assumptions, group: Group, ranks: Array, tokens: Array
) -> Array:
    """Embedding, final norm, output head (unquantized) and the gathering of the logits [s]."""
    size = formats.activation
    row = tokens * model.hidden * size
    columns, depth = np.ceil(model.vocabulary / ranks), np.full_like(ranks, model.hidden)
    head = linear_time(device, assumed, tokens, columns, depth, device.peak_activations, size, size, size)
    embedding = stream_time(device, assumed, 2 * row, np.zeros_like(tokens))
    norm = stream_time(device, assumed, 4 * row, 5 * tokens * model.hidden)
    return embedding + norm + head + all_gather_time(device, assumed, group, tokens * model.vocabulary * size)


def shard_heads(model: Model, ranks: Array) -> tuple[Array, Array]:
    """Query heads and key-value heads of one rank."""
    return np.ceil(model.heads / ranks), np.ceil(model.kv_heads / ranks)


def stream_time(device: Device, assumed: Assumptions, moved: Array, operations: Array) -> Array:
    """An elementwise kernel [s]."""
    compute = operations / (device.vector_flops * assumed.stream[0])
    memory = moved / (device.memory_bandwidth * assumed.stream[1])
    return np.maximum(compute, memory) + device.launch_latency


def linear_time(
    device: Device,
    assumed: Assumptions,
    m: Array,
    n: Array,
    k: Array,
    peak: Array,
    operand: Array,
    weight: Array,
    output: Array,
) -> Array:
    """A matrix multiplication with the least busy of three tiles, the reduction split where cores would idle [s]."""
    cores = device.num_cores
    mantissa, exponent = np.frexp(m)
    rows = np.maximum(np.where(mantissa == 0.5, m, np.ldexp(np.ones_like(m), exponent)), 16)
    deepest = np.maximum(np.floor(k / 512), 1)
    load = np.full_like(m, np.inf)
    split = np.ones_like(m)
    for most_rows, columns in ((256, 128), (64, 256), (64, 128)):
        height = np.minimum(rows, most_rows)
        tiles = np.ceil(m / height) * np.ceil(n / columns)
        parts = np.clip(np.floor(cores / tiles), 1, deepest)
        flops = np.ceil(tiles * parts / cores) * np.ceil(k / parts) * (2 * height * columns)
        split, load = np.where(flops < load, parts, split), np.minimum(load, flops)
    partial_sums = np.where(split > 1, split, 0) * (4 * m * n)
    spilled = np.maximum(partial_sums - device.l2_capacity, 0)
    moved = m * k * operand + n * k * weight + m * n * output + 2 * spilled
    compute = load * cores / (peak * assumed.gemm[0])
    memory = moved / (device.memory_bandwidth * assumed.gemm[1])
    return np.maximum(compute, memory) + device.launch_latency


def tensor_group(device: Device, assumed: Assumptions, ranks: Array) -> Group:
    """Nodes are filled one after the other; what share of a device's links the group can use depends on topology."""
    local = np.minimum(ranks, device.node_size)
    dimensions = device.torus_dimensions
    axes = np.minimum(np.maximum(np.log2(local), 1), np.maximum(dimensions, 1))
    steps = np.where(dimensions > 0, axes * (local ** (1 / axes) - 1), 0)
    mesh = (local - 1) / np.maximum(device.node_size - 1, 1)
    long = 2 ** np.ceil(np.log2(np.sqrt(local)))
    whole = (long >= np.sqrt(device.node_size)) * 1 + (local >= long * np.sqrt(device.node_size))
    closed = np.where(dimensions > 2, axes * (local % 64 == 0), whole)
    torus = (axes + closed) / np.maximum(2 * dimensions, 1)
    share = np.where(device.mesh > 0, mesh, np.where(dimensions > 0, torus, 1))
    share = np.where(local > 1, share, 1)
    started = np.where(steps > 0, 0, device.launch_latency + device.link_latency)
    bandwidth, latency = device.link_bandwidth * share * assumed.link, device.link_latency + started
    return Group(local, np.ceil(ranks / device.node_size), bandwidth, latency, steps)


def ring_time(device: Device, assumed: Assumptions, group: Group, size: Array) -> Array:
    """One pass of a ring of shards between nodes [s]."""
    hops, rate = group.nodes - 1, device.network_bandwidth * assumed.link
    return hops * device.network_latency + hops / group.nodes * (size / group.ranks) / rate


def all_reduce_time(device: Device, assumed: Assumptions, group: Group, size: Array) -> Array:
    """One shot, two shots, or rings on a torus inside a node; a ring of the shards between nodes [s]."""
    alpha, others = group.latency, group.ranks - 1
    shards = 2 * others / group.ranks * size / group.bandwidth
    one_shot = alpha + others * size / group.bandwidth
    two_shot = 2 * alpha + shards
    direct = np.where(group.nodes > 1, two_shot, np.minimum(one_shot, two_shot))
    local = np.where(group.steps > 0, 2 * group.steps * alpha + shards, direct)
    return np.where(others > 0, local, 0) + 2 * ring_time(device, assumed, group, size)


def all_gather_time(device: Device, assumed: Assumptions, group: Group, size: Array) -> Array:
    """Gathering a buffer of `size` bytes on every rank [s]."""
    others = group.ranks - 1
    alpha = np.where(group.steps > 0, group.steps, 1) * group.latency
    local = alpha + others / group.ranks * size / group.bandwidth
    return np.where(others > 0, local, 0) + ring_time(device, assumed, group, size)


def memory_of_rank(model: Model, formats: Formats, ranks: Array, batch: Array, context: Array) -> Array:
    """Weights, key-value cache, and the widest activations or the logits [byte]."""
    heads, kv_heads = shard_heads(model, ranks)
    width = np.ceil(model.intermediate / ranks)
    attention = 2 * model.hidden * model.head_dim * (heads + kv_heads)
    matrices = model.layers * (attention + (2 + model.gates) * model.hidden * width)
    tables = model.tables * np.ceil(model.vocabulary / ranks) * model.hidden + 2 * model.hidden * model.layers
    weights = matrices * formats.weight + tables * formats.activation
    cache = 2 * model.layers * model.head_dim * kv_heads * batch * formats.cache * context
    alive = batch * (2 * model.hidden + (2 + model.gates) * width) * formats.activation
    return weights + np.maximum(alive, 4 * batch * model.vocabulary) + cache


def reason_bits(model: Model, device: Device, memory: Array, ranks: Array, context: Array) -> Array:
    """0 where the step can run."""
    too_few = (ranks > model.kv_heads) & (ranks % model.kv_heads == 0)
    even = (model.heads % ranks == 0) & ((model.kv_heads % ranks == 0) | too_few) & (model.intermediate % ranks == 0)
    shape = np.where(even, np.int32(0), np.int32(TENSOR_PARALLEL))
    length = np.where(context > model.max_context, np.int32(CONTEXT), np.int32(0))
    return (shape + length) + np.where(memory > 0.9 * device.memory_capacity, np.int32(MEMORY), np.int32(0))
