"""The loop nests of a network's layers, from the workload graph of a model."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from hwspecs.errors import InputError
from jaxperf.io.timeloop.case import Case
from jaxperf.io.workloads import load_workload
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.shapes import convolution
from jaxperf.models.graph import Op
from jaxperf.models.workloads.spatial import output_side

LOOPS = frozenset({"convolution", "gemm"})


class Layer(NamedTuple):
    """Layers of one shape. `names`: of the graph's operations that have it; a layer that runs often counts as often."""

    names: tuple[str, ...]
    problem: Problem
    loops: Names


def network_layers(model: str, size: int, batch: int = 1) -> list[Layer]:
    """Convolutions and matrix products of a model's inference, those of one shape together, in the graph's order.

    **Arguments:** `size`: side of an image, or tokens of a sequence; `batch`: images or sequences [1].
    **Raises:** `InputError` for an unknown model, one with neither, or one with grouped convolutions, of whose weights
    the graph does not tell the groups.
    """
    graph = load_workload(model, "inf", size, batch)
    found: dict[tuple[tuple[str, float], ...], tuple[list[str], Op]] = {}
    for node in graph.nodes:
        for op in node.forward:
            if op.family == "convolution" and op.shape["batch"] != batch:
                raise InputError(f"{model}: {node.name} is a grouped convolution, which cannot be mapped from a graph.")
            if op.family in LOOPS:
                shape = (("family", float(op.family == "gemm")), *sorted(op.shape.items()))
                names = found.setdefault(shape, ([], op))[0]
                names.extend([node.name] * int(node.repeats * op.count))
    if not found:
        raise InputError(f"{model} has no convolution and no matrix product to map.")
    return [Layer(tuple(names), *_nest(op)) for names, op in found.values()]


def _nest(op: Op) -> tuple[Problem, Names]:
    """An operation as a convolution; a matrix product is one of single positions: rows are its batch,
    and products of different matrices its groups."""
    shape = op.shape
    if op.family == "gemm":
        return convolution(shape["k"], shape["n"], 1.0, 1.0, (1.0, 1.0), batch=shape["m"], groups=shape["batch"])
    side = output_side(shape["input_size"], shape["kernel_size"], shape["stride"], shape["padding"])
    kernel, stride = shape["kernel_size"], shape["stride"]
    channels, filters = shape["input_channels"], shape["output_channels"]
    return convolution(channels, filters, side, side, (kernel, kernel), (stride, stride), batch=shape["batch"])


def layer_case(case: Case, layer: Layer) -> Case:
    """A case with a layer of a network as its problem. Raises `InputError` for operands no level knows."""
    missing = set(layer.loops.operands) - set(case.names.operands)
    if missing:
        known = ", ".join(case.names.operands)
        raise InputError(f"The machine's levels keep {known}; layers have {', '.join(sorted(missing))}.")
    place = [case.names.operands.index(name) for name in layer.loops.operands]
    kept = tuple(tuple(level[index] for index in place) for level in case.mapping.kept)
    mapping = dataclasses.replace(case.mapping, kept=kept)
    return dataclasses.replace(case, problem=layer.problem, names=layer.loops, mapping=mapping)
