"""FLOP and bytes of the operations of a graph, as plain numbers.

FLOP are those of matrix products alone, two for each multiplication, as the published counts have them; norms,
activations and the softmax are left out (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). Bytes are what a kernel
reads and writes when nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxperf.models.graph import PASSES, Graph, Op
from jaxperf.models.workloads.spatial import output_side
from jaxperf.models.workloads.tape import ITEMSIZES


def op_flops(op: Op) -> float:
    """Useful FLOP of one operation, its count included [FLOP]."""
    x = op.shape
    match op.family:
        case "gemm" | "bmm":
            each = 2 * x["batch"] * x["m"] * x["n"] * x["k"]
        case "convolution":
            out = output_side(x["input_size"], x["kernel_size"], x["stride"], x["padding"])
            each = 2 * x["batch"] * x["output_channels"] * out**2 * x["input_channels"] * x["kernel_size"] ** 2
        case "attention_prefill":  # query i sees `prefix` + i keys
            seen = x["q_len"] * x["prefix"] + x["q_len"] * (x["q_len"] + 1) / 2
            each = 4 * x["batch"] * x["heads"] * x["head_dim"] * seen
        case "attention_decode":
            each = 4 * x["batch"] * x["heads"] * x["head_dim"] * x["kv_len"]
        case "moe":  # gated: three matrices
            each = 6 * x["tokens"] * x["topk"] * x["hidden"] * x["inter"] / (x["tp"] * x["ep"])
        case _:
            each = 0.0
    return each * op.count


def op_bytes(op: Op) -> float:
    """Bytes that one operation reads and writes, its count included [byte]."""
    x = op.shape
    match op.family:
        case "gemm":  # the batch shares its right-hand side
            moved = x["batch"] * x["m"] * (x["k"] + x["n"]) + x["k"] * x["n"]
        case "bmm":
            moved = x["batch"] * (x["m"] * (x["k"] + x["n"]) + x["k"] * x["n"])
        case "convolution":
            out = output_side(x["input_size"], x["kernel_size"], x["stride"], x["padding"])
            maps = x["input_channels"] * x["input_size"] ** 2 + x["output_channels"] * out**2
            moved = x["batch"] * maps + x["input_channels"] * x["output_channels"] * x["kernel_size"] ** 2
        case "attention_prefill":
            rows = 2 * x["q_len"] * x["heads"] + 2 * (x["q_len"] + x["prefix"]) * x["kv_heads"]
            moved = x["batch"] * rows * x["head_dim"]
        case "attention_decode":
            moved = x["batch"] * 2 * (x["heads"] + x["kv_len"] * x["kv_heads"]) * x["head_dim"]
        case "moe":
            touched = min(x["experts"] / x["ep"], x["tokens"] * x["topk"])
            moved = 2 * x["tokens"] * x["hidden"] + 3 * touched * x["hidden"] * x["inter"] / x["tp"]
        case "norm" | "softmax" | "embedding":
            moved = 2 * x["rows"] * x["columns"]
        case "elementwise" | "rope":
            moved = x["elements_in"] + x["elements_out"]
        case "memory":
            return (x["bytes_in"] + x["bytes_out"]) * op.count
        case _:
            moved = 0.0
    return moved * ITEMSIZES[op.dtype] * op.count


def graph_flops(graph: Graph, passes: tuple[str, ...] = PASSES) -> float:
    """Useful FLOP of some passes of an iteration [FLOP]."""
    return _over(graph, passes, op_flops)


def graph_bytes(graph: Graph, passes: tuple[str, ...] = PASSES) -> float:
    """Bytes that the kernels of some passes read and write [byte]."""
    return _over(graph, passes, op_bytes)


def graph_kernels(graph: Graph, passes: tuple[str, ...] = PASSES) -> float:
    """Kernels of some passes [1]."""
    return _over(graph, passes, lambda op: op.count * (op.family != "none"))


def parameter_bytes(graph: Graph) -> float:
    """Bytes of the trained tensors of all nodes."""
    return sum(node.parameter_bytes * node.repeats for node in graph.nodes)


def _over(graph: Graph, passes: tuple[str, ...], count: Callable[[Op], float]) -> float:
    return sum(node.repeats * sum(map(count, node.ops(passes))) for node in graph.nodes)
