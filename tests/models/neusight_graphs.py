"""Kernels of NeuSight's operation graphs and of ours, in words that can be compared, and what of theirs is corrected.

A kernel is its word and shape: ("gemm", m, n, k), ("bmm", batch, m, n, k), or for the others the word, the elements
written and the rows. Tensors that are broadcast count once with us and in full with them, so what is read is left out.
"""

from __future__ import annotations

import ast
import csv
from collections import Counter
from pathlib import Path

from jaxperf.models.graph import Graph

PASSES = {"forward": "FwOps", "backward": "BwOps", "accumulate": "AccOps"}
Kernels = dict[str, Counter[tuple[object, ...]]]

# (kind of the node, its kernels) that are not what PyTorch launches -> what it does.
CORRECTED = {
    # two tensors are read, not one; the weights' gradients come beside
    ("VECln", ("VECmul",)): ("norm gradient",),
    # of the two kernels the second reads dY y and y
    ("VECsoftmax", ("VECmul", "VECsoftmax")): ("mul", "softmax gradient"),
    # tanh_backward is one kernel
    ("VECtanh", ("VECmulu", "VECaddu")): ("tanh",),
    # the divisor is one number without a gradient
    ("VECdiv", ("VECdiv", "VECdiv")): ("div",),
}


def read_kernels(path: Path, layers: int) -> Kernels:
    """The kernels of a file, those of its one layer `layers` times; plain movement of memory is left out."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    inside = _layer([row["Name"] for row in rows]) if layers > 1 else range(0)
    found: Kernels = {name: Counter() for name in PASSES}
    for place, row in enumerate(rows):
        for name, column in PASSES.items():
            entries = [entry for entry in ast.literal_eval(row[column]) if entry[0] != "MEM"]
            words = CORRECTED.get((row["OpName"], tuple(word for word, _ in entries)))
            for at, word in enumerate(words or [word for word, _ in entries]):
                sizes = entries[min(at, len(entries) - 1)][1]
                found[name][_kernel(word, tuple(sizes))] += layers if place in inside else 1
    return found


def _layer(names: list[str]) -> range:
    """Places of the one layer of a file, its residual sums included."""
    if "transformer_ln_f" in names:
        return range(names.index("transformer_h_0_ln_1"), names.index("transformer_ln_f"))
    if "bert_pooler_dense" in names:
        first = names.index("bert_encoder_layer_0_attention_self_query")
        return range(first, names.index("bert_encoder_layer_0_output_layer_norm") + 1)
    first = names.index("model_decoder_layers_0_self_attn_layer_norm")
    return range(first, names.index("model_decoder_final_layer_norm"))


def _kernel(word: str, sizes: tuple[float, ...]) -> tuple[object, ...]:
    if word == "Linear":  # M, N, K with N the reduction
        return ("gemm", sizes[0], sizes[2], sizes[1])
    if word == "BMM":
        return ("bmm", sizes[0], sizes[1], sizes[3], sizes[2])
    return (word.removeprefix("VEC"), sizes[0] * sizes[1], sizes[0])


def kernels_of(graph: Graph) -> Kernels:
    """The kernels of a graph of ours."""
    found: Kernels = {name: Counter() for name in PASSES}
    for node in graph.nodes:
        for name in PASSES:
            for op in getattr(node, name):
                x = op.shape
                if op.family == "gemm":
                    key: tuple[object, ...] = ("gemm", x["m"], x["n"], x["k"])
                elif op.family == "bmm":
                    key = ("bmm", x["batch"], x["m"], x["n"], x["k"])
                elif op.family in ("norm", "softmax"):
                    key = (op.note, x["rows"] * x["columns"], x["rows"])
                elif op.family == "elementwise":
                    key = (op.note, x["elements_out"], x["rows"])
                else:
                    continue
                found[name][key] += round(op.count * node.repeats)
    return found
