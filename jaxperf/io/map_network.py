"""The loop nests of a network's layers, from the workload graph of a model."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, NamedTuple

from hwspecs.errors import InputError
from jaxperf.core.formats import FORMATS
from jaxperf.io.timeloop.case import Case
from jaxperf.io.workloads import load_workload
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.shapes import convolution
from jaxperf.models.graph import Node, Op
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
    **Raises:** `InputError` for an unknown model, one with neither, or a convolution whose groups cannot be told.
    """
    graph = load_workload(model, "inf", size, batch)
    found: dict[tuple[Any, ...], tuple[list[str], Op]] = {}
    left_out: Counter[str] = Counter()
    for node in graph.nodes:
        for op in node.forward:
            runs = int(node.repeats * op.count)
            if op.family in LOOPS:
                groups = _groups(model, node, op, batch) if op.family == "convolution" else 1.0
                shape = (op.family, groups, *sorted(op.shape.items()))
                found.setdefault(shape, ([], op))[0].extend([node.name] * runs)
            elif op.family != NO_KERNEL:
                left_out[op.family] += runs
    if not found:
        raise InputError(f"{model} has no convolution and no matrix product to map.")
    layers = [Layer(tuple(names), *_nest(op, groups)) for (_, groups, *_), (names, op) in found.items()]
    return Network(layers, dict(left_out.most_common()))


def _groups(model: str, node: Node, op: Op, images: int) -> float:
    """Groups of channels that are convolved apart [1]. A graph has the images of all groups as its batch, so that its
    parameters tell groups, whose weights differ, from images: weights, with or without a bias, of every group."""
    shape = op.shape
    if shape["batch"] == images:
        return 1.0
    weights = shape["output_channels"] * shape["input_channels"] * shape["kernel_size"] ** 2
    stored = node.parameter_bytes / FORMATS[op.dtype].itemsize
    for groups in (shape["batch"] / images, 1.0):
        if stored in (groups * weights, groups * (weights + shape["output_channels"])):
            return groups
    raise InputError(f"{model}: {node.name} is a convolution whose groups its parameters do not tell.")


def _nest(op: Op, groups: float) -> tuple[Problem, Names]:
    """An operation as a convolution, of `groups` if it is one; a matrix product is one of single positions: rows are
    its batch, and products of different matrices, as in attention, its groups."""
    shape = op.shape
    if op.family == "gemm":
        return convolution(shape["k"], shape["n"], 1.0, 1.0, (1.0, 1.0), batch=shape["batch"] * shape["m"])
    if op.family == "bmm":
        return convolution(shape["k"], shape["n"], 1.0, 1.0, (1.0, 1.0), batch=shape["m"], groups=shape["batch"])
    side = output_side(shape["input_size"], shape["kernel_size"], shape["stride"], shape["padding"])
    kernel, stride = shape["kernel_size"], shape["stride"]
    channels, filters = shape["input_channels"], shape["output_channels"]
    images = shape["batch"] / groups
    return convolution(channels, filters, side, side, (kernel, kernel), (stride, stride), batch=images, groups=groups)


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
