"""The training step once more in plain Python, one configuration at a time, as Calculon and its like work.

An independent writing of the equations of docs/training.md for dense and expert decoders with flash attention, 1F1B or
interleaved pipelines and every parallel axis; floats and `math` only. It is the reference of the tests and the
contender of `training_sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from types import SimpleNamespace

from benchmarks.pipeline_plain import chunked, in_turn

Numbers = SimpleNamespace
Pair = tuple[float, float]  # of the forward and the backward pass; or of dense layers and experts


def plain(module: object, fields: Mapping[str, float] | None = None) -> Numbers:
    """The scalar leaves of a Module as Python numbers, some replaced."""
    found = {}
    for name, leaf in vars(module).items():
        found[name] = leaf.tolist() if hasattr(leaf, "tolist") else leaf
    return Numbers(**{**found, **(fields or {})})


def plain_step(model: Numbers, run: Numbers, device: Numbers, e: Numbers) -> Pair:
    """(time of one step [s], bytes on the fullest stage [byte]), whether or not the layout can run."""
    m, tokens = run.global_batch / (run.data * run.microbatch), run.microbatch * run.sequence / run.context
    layer = _layer(model, run, device, e, tokens)
    head, table = _ends(model, run, device, e, tokens)
    stages = _stages(model.layers, run.pipeline)
    times = [layers * layer["total"] for layers in stages]
    times[0] += table
    times[-1] += head
    bandwidth, ranks = device.memory_bandwidth * e.stream, run.tensor * run.context * run.data * run.pipeline
    send = run.interleave * _send(model, run, device, e, tokens)

    def messages(stage: int, layers: float) -> tuple[Pair, Pair, float, Pair]:
        """(parameters, what shows of sends, of a step's data exchange and of that before and behind each pass)."""
        free = [layers * each for each in layer["free"]]
        shown = [_shown(send, each, e.overlap_pipeline) for each in free]
        free = [each - (send - waited) for each, waited in zip(free, shown, strict=True)]
        tables = float(stage in (0, len(times) - 1)) if len(times) > 1 else 2 - model.tied
        own = _parameters(model, run, layers, tables)
        return own, shown, *_data(run, device, e, own, layers, *free, m)

    scheduling = run.interleave * e.stage_overhead
    sent = [messages(stage, layers) for stage, layers in enumerate(stages)]
    usual = messages(1, sum(stages[1:-1]) / (len(stages) - 2)) if len(stages) > 2 else sent[0]
    held = [sum(shown) + sum(waited) + scheduling for _, shown, _, waited in (sent[0], usual, sent[-1])]
    found = []
    for stage, layers in enumerate(stages):
        own, shown, data, waited = sent[stage]
        one = times[stage] + sum(shown) + scheduling
        idle = 0.0
        if run.pipeline > 1:
            names = ("ahead", "behind")
            passes = [layers * layer[name] + a + b for name, a, b in zip(names, shown, waited, strict=True)]
            ends = [times[0] - table, times[-1] - head]
            ordered = [times[0], *sorted(times[1:-1]), times[-1]]  # the fullest between is the one before the last
            full = math.ceil(model.layers / run.pipeline) * layer["total"]
            whole = _pipeline(run, ordered, held, full, ends, (table, head), m, passes)
            idle = max(whole - m * (one + sum(waited)), 0.0)
        optimizer = sum(_sharded(run, own, 1)) * (2 * run.optimizer_bytes + 2 * run.gradient_bytes + run.weight_bytes)
        optimizer += run.quantized * (run.weight_bytes + 2 * run.operand_bytes) * sum(own)
        work = m * (one - sum(shown) - layers * layer["messages"]) + idle + e.step_overhead
        late = e.rank_spread * NormalDist().inv_cdf(1 - 0.625 / (ranks + 0.25)) * work
        found.append(m * one + idle + late + data + optimizer / bandwidth)
    longest = found[max(range(len(times)), key=times.__getitem__)]
    for each in found:  # of stages that end together but for rounding, the one that computes longest
        longest = each if each > longest * (1 + 1e-5) else longest
    return longest + e.step_overhead, _memory(model, run, e, tokens, m, stages)


def _stages(layers: float, pipeline: float) -> list[float]:
    full = math.ceil(layers / pipeline)
    spare = int(full * pipeline - layers)
    stages = [float(full)] * int(pipeline)
    for end, missing in ((-1, math.ceil(spare / 2)), (0, spare // 2)):
        stages[end] = max(full - missing, 1)
    left = sum(stages) - layers
    for stage in range(int(pipeline) - 2, 0, -1):  # a full one stays behind the first
        stages[stage] -= left > 0
        left -= left > 0
    return stages


def _pipeline(
    run: Numbers,
    stages: Sequence[float],
    held: Sequence[float],
    full: float,
    ends: Sequence[float],
    tables: Pair,
    m: float,
    passes: Sequence[float],
) -> float:
    """The whole schedule; `held`: what the first stage, those between and the last wait for besides; `full`: the layers
    of a stage that lacks none, `ends`: those of the first and of the last."""
    share, v = passes[0] / sum(passes), int(run.interleave)
    stages = [stages[0] + held[0], *(each + held[1] for each in stages[1:-1]), stages[-1] + held[2]]
    if v == 1:
        return in_turn(stages, int(m), share)
    chunk, others = (full + held[1]) / v, held[1] - held[1] / v
    pairs = zip(ends, (held[0], held[2]), tables, strict=True)
    first, last = (max(full / v - full + own, 0) + max(waits - others, 0) + table for own, waits, table in pairs)
    return chunked(first, chunk, last, sum(stages) - first - last, int(run.pipeline), v, int(m), share)


def _shown(message: float, window: float, share: float) -> float:
    return message - min(share * message, window)


def _product(
    device: Numbers, e: Numbers, rate: float, m: float, n: float, k: float, groups: float, sizes: Sequence[float]
) -> float:
    if not m * n * k:
        return 0.0
    wave = e.wave_loss * device.num_cores * 128 * 128
    traffic = groups * (sizes[0] * m * k + sizes[1] * k * n + sizes[2] * m * n)
    return max(2 * (groups * m * n + wave) * (k + e.depth_ramp) / rate, traffic / (device.memory_bandwidth * e.stream))


def _linear(
    device: Numbers,
    run: Numbers,
    e: Numbers,
    rate: float,
    m: float,
    n: float,
    k: float,
    groups: float = 1.0,
    operand: float | None = None,
) -> Pair:
    o, y = run.operand_bytes if operand is None else operand, run.activation_bytes
    forward = _product(device, e, rate, m, n, k, groups, (o, o, y))
    backward = _product(device, e, rate, m, k, n, groups, (o, o, y))
    return forward, backward + _product(device, e, rate, k, n, m, groups, (o, o, 2 * run.gradient_bytes))


def _block(
    device: Numbers,
    run: Numbers,
    e: Numbers,
    rate: float,
    rows: float,
    hidden: float,
    weights: float,
    width: float,
    split: float,
    groups: float = 1.0,
) -> Pair:
    if not weights:
        return 0.0, 0.0
    first = _linear(device, run, e, rate, rows, (weights / hidden - width) / split, hidden, groups)
    second = _linear(device, run, e, rate, rows, hidden, width / split, groups)
    return first[0] + second[0], first[1] + second[1]


def _layer(model: Numbers, run: Numbers, device: Numbers, e: Numbers, tokens: float) -> dict[str, float]:
    a, d, x = (count / model.layers for count in (model.attention_layers, model.dense_layers, model.moe_layers))
    peak, plain_peak = device.peak_flops[run.compute_format], device.peak_flops[run.plain_format]
    rate, t, h, b = peak * e.gemm, run.tensor, model.hidden, run.activation_bytes
    split = t if run.sequence_parallel else 1.0
    routed = model.topk * run.expert_tensor / t * e.imbalance if x else 0.0
    gemm = [0.0, 0.0]
    parts = [
        (a, _block(device, run, e, rate, tokens, h, model.attention_weights, model.value_width, t)),
        (d, _block(device, run, e, rate, tokens, h, model.dense_ffn_weights, model.ffn_width, t)),
        (x, _block(device, run, e, rate, tokens, h, model.shared_weights, model.shared_width, t)),
        (x, _linear(device, run, e, plain_peak * e.plain_gemm, tokens / split, model.router / h, h, operand=b)),
    ]
    for share, (forward, backward) in parts:
        gemm = [gemm[0] + share * forward, gemm[1] + share * backward]
    experts = (0.0, 0.0)
    if x:
        local = model.experts / run.expert
        rows, width = tokens * routed / local + 64, model.expert_width
        block = (model.expert_hidden, model.expert_weights, width, run.expert_tensor, local)
        experts = tuple(x * part for part in _block(device, run, e, rate * e.grouped_gemm, rows, *block))
    seen = run.sequence / 2 if model.causal else run.sequence
    if model.window:
        window = min(model.window, run.sequence)
        seen += model.window_layers / model.attention_layers * (window - window**2 / (2 * run.sequence) - seen)
    unit = 2 * a * tokens / t * seen / plain_peak
    core = (model.score_width + model.value_width, 3 * model.score_width + 2 * model.value_width)
    attention = (unit * core[0] / e.attention, unit * core[1] / e.attention_backward)
    elements = (a + d + x) * h * 5 / split + a * 2 * (model.score_width + model.kv_width / 2) / t
    act = 2 + model.gated
    elements += (d * model.ffn_width + x * model.shared_width) * act / t
    elements += x * routed * (act * model.expert_width / run.expert_tensor + 4 * model.expert_hidden)
    inputs = a * (h + model.value_width / t) + d * (h + model.ffn_width / t)
    inputs += x * routed * (model.expert_hidden + model.expert_width / run.expert_tensor)
    casts = run.quantized * (b + 2 * run.operand_bytes) * inputs
    moved = tokens / (device.memory_bandwidth * e.stream)
    vector = ((elements * b + casts) * moved, (2 * elements * b + casts) * moved)
    forward, backward = (sum(each) for each in zip(gemm, experts, attention, vector, strict=True))
    again = {0: 0.0, 1: attention[0], 2: forward}[run.recompute]
    windows = gemm, attention, (forward, backward)
    shown, (keys, beside), free = _messages(model, run, device, e, tokens, (a, d, x), *windows)
    repeated = {0: 0.0, 1: keys, 2: shown[0]}[run.recompute]  # with attention its keys and values are sent again
    full = 1 if run.recompute == 2 else 0
    overhead = e.layer_overhead + (x * model.experts / run.expert * e.expert_overhead if x else 0.0)
    ahead, behind = forward + shown[0], backward + again + shown[1] + repeated
    waits = [_host(work, e.host_layer * part) for work, part in ((ahead, 1 / 3), (behind, 2 / 3))]
    free = [
        free[0] + waits[0],
        free[1] + full * free[0] + (max(again - beside, 0) if run.recompute == 1 else 0) + waits[1],
    ]
    return {
        "free": free,
        "messages": sum(shown) + repeated,
        "ahead": ahead + waits[0],
        "behind": behind + waits[1],
        "total": ahead + behind + sum(waits) + overhead,
    }


def _host(work: float, launching: float) -> float:
    """What a pass waits for its host."""
    return math.hypot(max(work, launching), 0.5 * min(work, launching)) - work if launching else 0.0


def _messages(
    model: Numbers,
    run: Numbers,
    device: Numbers,
    e: Numbers,
    tokens: float,
    shares: tuple[float, float, float],
    gemm: Sequence[float],
    attention: Pair,
    layer: Pair,
) -> tuple[Pair, Pair, list[float]]:
    """What shows of tensor, context and expert communication, forward and backward; forward of context communication
    alone, and what of it does not show; and compute left beside none."""
    (a, d, x), b, t = shares, run.activation_bytes, run.tensor
    blocks = a + d + (x if model.shared_weights else 0.0)
    one = blocks * _ring(device, e, t, 1, tokens * model.hidden * b)
    again = 1 if run.sequence_parallel else 0
    kept = tokens * model.kv_width / min(t, model.kv_heads) * b
    if run.context_method == 0:
        keys = a * (run.context - 1) * _neighbor(device, e, _group(device, run.context, t)[1] > 1, kept)
    else:
        keys = a * _ring(device, e, run.context, t, kept * run.context)
    pairs = [((2 * one, (2 + again) * one), gemm, e.overlap_tensor), ((keys, 2 * keys), attention, e.overlap_context)]
    if x:
        rows = tokens / t * model.expert_hidden * e.imbalance
        there = _exchange(device, e, run.expert, run.expert_tensor, rows * run.dispatch_bytes, model.topk)
        back = _exchange(device, e, run.expert, run.expert_tensor, rows * b, model.topk)
        gather = 2 * _ring(device, e, run.expert_tensor, 1, rows * b * model.topk * run.expert_tensor)
        pairs.append(((x * (there + back + gather), x * (2 * back + gather)), layer, e.overlap_expert))
    waited, free = [], list(layer)
    for sizes, windows, share in pairs:
        shown = [_shown(*each, share) for each in zip(sizes, map(min, windows, free), strict=True)]
        free = [left - (size - waits) for left, size, waits in zip(free, sizes, shown, strict=True)]
        waited.append(shown)
    return (sum(each[0] for each in waited), sum(each[1] for each in waited)), (waited[1][0], keys - waited[1][0]), free


def _group(device: Numbers, members: float, stride: float) -> Pair:
    local = min(max(device.node_size // stride, 1), members)
    return local, math.ceil(members / local)


def _ring(device: Numbers, e: Numbers, members: float, stride: float, size: float, messages: float = 1.0) -> float:
    if members <= 1:
        return 0.0
    local, nodes = _group(device, members, stride)
    inside, ports = device.link_bandwidth * e.link_local, local * device.network_bandwidth * e.link_network
    rate = inside if nodes == 1 else ports if local == 1 else min(inside, ports)
    n = local * nodes
    hops = (nodes - 1) * device.network_latency + (local - 1) * device.link_latency
    return (n - 1) / n * size / rate + messages * hops


def _exchange(device: Numbers, e: Numbers, members: float, stride: float, size: float, copies: float) -> float:
    if members <= 1:
        return 0.0
    local, nodes = _group(device, members, stride)
    inside = size * copies * (local - 1) / (local * nodes) / (device.link_bandwidth * e.link_local)
    between = size * copies * (1 - 1 / nodes) / (device.network_bandwidth * e.link_network)
    return max(inside, between) + (device.network_latency if nodes > 1 else device.link_latency)


def _send(model: Numbers, run: Numbers, device: Numbers, e: Numbers, tokens: float) -> float:
    if run.pipeline <= 1:
        return 0.0
    size = tokens * model.hidden * run.activation_bytes
    apart = _group(device, run.pipeline, run.tensor * run.context * run.data)[1] > 1
    gather = 0.0 if run.sequence_parallel else _ring(device, e, run.tensor, 1, size)
    return _neighbor(device, e, apart, size / run.tensor) + gather


def _neighbor(device: Numbers, e: Numbers, apart: bool, size: float) -> float:
    rate = device.network_bandwidth * e.link_network if apart else device.link_bandwidth * e.link_local
    return (device.network_latency if apart else device.link_latency) + size / rate


def _ends(model: Numbers, run: Numbers, device: Numbers, e: Numbers, tokens: float) -> Pair:
    columns, b = model.vocab / run.tensor, run.activation_bytes
    rate = device.peak_flops[run.plain_format] * e.plain_gemm
    bandwidth = device.memory_bandwidth * e.stream
    head = sum(_linear(device, run, e, rate, tokens, columns, model.hidden, operand=b))
    split = run.tensor if run.sequence_parallel else 1
    return head + tokens * columns * (3 * b + 8) / bandwidth, tokens * model.hidden / split * 5 * b / bandwidth


def _parameters(model: Numbers, run: Numbers, layers: float, tables: float) -> Pair:
    """(dense, experts) of one rank before ZeRO."""
    a, d, x = (count / model.layers for count in (model.attention_layers, model.dense_layers, model.moe_layers))
    matrices = a * model.attention_weights + d * model.dense_ffn_weights + x * (model.shared_weights + model.router)
    layer = matrices / run.tensor + model.other_parameters / model.layers
    experts = x * model.experts * model.expert_weights / (run.expert * run.expert_tensor)
    return layers * layer + tables * model.vocab * model.hidden / run.tensor, layers * experts


def _copies(run: Numbers) -> Pair:
    experts = run.tensor * run.context * run.data / (run.expert * run.expert_tensor)
    return run.data * run.context, max(experts, 1.0)


def _sharded(run: Numbers, own: Pair, stage: float) -> Pair:
    copies = _copies(run) if run.zero >= stage else (1.0, 1.0)
    return own[0] / copies[0], own[1] / copies[1]


def _data(
    run: Numbers, device: Numbers, e: Numbers, own: Pair, layers: float, forward: float, backward: float, m: float
) -> tuple[float, Pair]:
    """Of a step; and of it before the forward and behind the backward pass of every micro-batch."""

    def passes(itemsize: float) -> float:
        groups = zip(own, _copies(run), (run.tensor, run.expert * run.expert_tensor), strict=True)
        total = 0.0
        for elements, copies, stride in groups:
            messages = layers if run.zero == 3 else max(elements / 40e6, 1.0)
            total += _ring(device, e, copies, stride, elements * itemsize, messages) if elements else 0.0
        return total

    share = e.overlap_data * (1 - 1 / max(layers, 1))
    scatter, gather = passes(run.gradient_bytes), passes(run.weight_bytes)
    if run.zero == 0:
        return _shown(2 * scatter, backward, share), (0.0, 0.0)
    if run.zero < 3:
        times = m if run.zero == 2 and run.pipeline <= 1 else 1
        return times * _shown(scatter, backward, share) + _shown(gather, forward, share), (0.0, 0.0)
    waited = _shown(gather, forward, share), _shown(scatter + gather, backward, share)
    return m * sum(waited), waited


def _memory(model: Numbers, run: Numbers, e: Numbers, tokens: float, m: float, stages: Sequence[float]) -> float:
    kept, layer = _activations(model, run, e, tokens)
    p, v = run.pipeline, run.interleave
    totals = []
    for stage in {0, min(1, p - 1), p - 1}:
        ahead = (min(p, m) * (v - 1) + 2 * p - 1 - 2 * stage) / v if run.schedule == 2 else p - stage
        tables = 2 - model.tied if p <= 1 else float(stage in (0, p - 1))
        own = _parameters(model, run, stages[int(stage)], tables)
        gradients = sum(own if run.zero == 2 and p > 1 else _sharded(run, own, 2))
        states = sum(_sharded(run, own, 3)) * run.weight_bytes + gradients * run.gradient_bytes
        states += sum(_sharded(run, own, 1)) * run.optimizer_bytes
        split = [each for each, copies in zip(_parameters(model, run, 1, 0), _copies(run), strict=True) if copies > 1]
        table = model.vocab * model.hidden / run.tensor if tables and _copies(run)[0] > 1 else 0.0
        gathered = sum(split) + max(sum(split), table) if run.zero == 3 else 0.0
        buffers = gathered * run.weight_bytes + (layer if run.recompute == 2 else 0)
        if stage == p - 1:
            buffers += tokens * model.vocab / run.tensor * (run.activation_bytes + 4)
        totals.append(states + stages[int(stage)] * min(ahead, m) * kept + buffers)
    return max(totals) + e.reserved_memory


def _activations(model: Numbers, run: Numbers, e: Numbers, tokens: float) -> Pair:
    """Bytes the average layer keeps of a micro-batch, and those without recomputation."""
    a, d, x = (count / model.layers for count in (model.attention_layers, model.dense_layers, model.moe_layers))
    t, b, o = run.tensor, run.activation_bytes, run.operand_bytes
    split = t if run.sequence_parallel else 1
    inner = (1 + model.gated) * b + o
    rows = a * ((model.score_width / t + model.kv_width / min(t, model.kv_heads) + model.latent_width) * b)
    rows += a * (model.value_width * o + 4 * model.heads) / t
    rows += (d * model.ffn_width + x * model.shared_width) / t * inner
    routed = model.topk * run.expert_tensor / t * e.imbalance if x else 0.0
    rows += x * routed * (model.expert_width / run.expert_tensor * inner + model.expert_hidden * (o + b))
    layer = tokens * (rows + (a + d + x) * model.hidden * (b + o) / split)
    return (tokens * model.hidden * b / split if run.recompute == 2 else layer), layer
