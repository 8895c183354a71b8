"""The loop nests of a network's layers, from the workload graph of a model."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, NamedTuple

from hwspecs.errors import InputError
from jaxperf.io.timeloop.case import Case
from jaxperf.io.workloads import load_workload
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.shapes import convolution
from jaxperf.models.graph import Op
from jaxperf.models.workloads.spatial import output_side

LOOPS = frozenset({"convolution", "gemm", "bmm"})
NO_KERNEL = "none"  # a family whose operations compute nothing


class Layer(NamedTuple):
    """Layers of one shape. `names`: of the graph's operations that have it; a layer that runs often counts as often."""

    names: tuple[str, ...]
    problem: Problem
    loops: Names


class Network(NamedTuple):
    """`layers`: in the graph's order; `left_out`: operations that are no affine nest and are not mapped, by family."""

    layers: list[Layer]
    left_out: dict[str, int]

    @property
    def notes(self) -> list[str]:
        """What is said of the operations that are left out."""
        counts = ", ".join(f"{family} {number:,}" for family, number in self.left_out.items())
        return [f"operations that are not mapped and cost nothing here: {counts}"] if counts else []


def network_layers(model: str, size: int, batch: int = 1) -> Network:
    """Convolutions and matrix products of a model's inference, those of one shape together, and what else it runs.

    **Arguments:** `size`: side of an image, or tokens of a sequence; `batch`: images or sequences [1].
    **Raises:** `InputError` for an unknown model, one with neither, or one with grouped convolutions, of whose weights
    the graph does not tell the groups.
    """
    graph = load_workload(model, "inf", size, batch)
    found: dict[tuple[Any, ...], tuple[list[str], Op]] = {}
    left_out: Counter[str] = Counter()
    for node in graph.nodes:
        for op in node.forward:
            if op.family == "convolution" and op.shape["batch"] != batch:
                raise InputError(f"{model}: {node.name} is a grouped convolution, which cannot be mapped from a graph.")
            runs = int(node.repeats * op.count)
            if op.family in LOOPS:
                shape = (op.family, *sorted(op.shape.items()))
                found.setdefault(shape, ([], op))[0].extend([node.name] * runs)
            elif op.family != NO_KERNEL:
                left_out[op.family] += runs
    if not found:
        raise InputError(f"{model} has no convolution and no matrix product to map.")
    layers = [Layer(tuple(names), *_nest(op)) for names, op in found.values()]
    return Network(layers, dict(left_out.most_common()))


def _nest(op: Op) -> tuple[Problem, Names]:
    """An operation as a convolution; a matrix product is one of single positions: rows are its batch, and products of
    different matrices, as in attention, its groups."""
    shape = op.shape
    if op.family == "gemm":
        return convolution(shape["k"], shape["n"], 1.0, 1.0, (1.0, 1.0), batch=shape["batch"] * shape["m"])
    if op.family == "bmm":
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
