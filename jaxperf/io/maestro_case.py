"""MAESTRO's layers on a machine of units around one shared store: a mapping of the nest, and the schedule's time."""

from __future__ import annotations

import math
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any, NamedTuple

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.maestro import Directive, Layer
from jaxperf.io.timeloop.case import Case, evaluate
from jaxperf.loopnest.architecture import Architecture, Level
from jaxperf.loopnest.data_centric import Cluster, Dataflow, Move, Wires, dataflow_mapping, schedule_time
from jaxperf.loopnest.problem import Names, Problem
from jaxperf.loopnest.shapes import convolution, gemm

UNIT, INNER, OUTER = "PE", "L1", "L2"
CONVOLUTION = {"N": "N", "C": "C", "K": "M", "R": "R", "S": "S", "Y'": "P", "X'": "Q"}
LOOPS = {
    "CONV": CONVOLUTION,
    "DSCONV": CONVOLUTION | {"C": "G"},
    "GEMM": {"M": "M", "N": "N", "K": "K"},
    "BMM": {"B": "G", "M": "N", "N": "M", "K": "C"},  # of B pairs of matrices: a convolution of single positions
}
WINDOWS = {"Y": ("R", "Y'"), "X": ("S", "X'")}  # an input's side: the kernel's and the output's
OPTIONAL = ("N",)  # dimensions that are 1 where a file leaves them away


class Nest(NamedTuple):
    """A layer as a nest. `flow`: its directives on outputs; `problem`, `names`: of the loops; `called`: loop -> its
    name in the file."""

    flow: Dataflow
    problem: Problem
    names: Names
    called: Dictionary[str, str]


def layer_nest(layer: Layer, units: int, source: str) -> Nest:
    """The nest of a layer and its directives on so many units.

    **Raises:** `InputError` naming file and line for a kind of layer, a dimension or a directive that has no nest here.
    """
    where = f"{source}: line {layer.line}: {layer.name}"
    if layer.kind not in LOOPS:
        hint = did_you_mean(layer.kind, LOOPS)
        raise InputError(f"{where}: Type '{layer.kind}' is not one of {', '.join(LOOPS)}.{hint}")
    if not any(layer.groups):
        raise InputError(f"{where} has no Dataflow.")
    bounds = _bounds(layer, where)
    problem, names = _problem(layer, bounds)
    tile, clusters = dict(bounds), []
    for group, children in zip(layer.groups, _children(layer, units, where), strict=True):
        moves = _moves(layer, group, tile, f"{source}: line")
        if sum(move.spatial for move in moves) != 1:
            raise InputError(
                f"{where}: each cluster needs one SpatialMap; of R with Y, or S with X, both count as one."
            )
        loops = [names.dimensions.index(LOOPS[layer.kind][move.loop]) for move in moves]
        clusters.append(
            Cluster(tuple(Move(d, move.size, move.spatial) for d, move in zip(loops, moves, strict=True)), children)
        )
    whole = [tuple(int(each) for each in numbers) for numbers in (problem.bounds, problem.coefficients)]
    called = {loop: name for name, loop in LOOPS[layer.kind].items()}
    return Nest(Dataflow(whole[0], problem.operands, whole[1], tuple(clusters)), problem, names, called)


def _bounds(layer: Layer, where: str) -> dict[str, int]:
    """Bounds by MAESTRO's names; the sides of an input become those of the output, a part of a window left over [1]."""
    loops = LOOPS[layer.kind]
    windows = WINDOWS if "Y'" in loops else {}
    known = [name for name in (*loops, *windows) if not name.endswith("'")]
    for name in layer.dimensions:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"{where}: '{name}' is no dimension; there are {', '.join(known)}.{hint}")
    for name in known:
        if name not in layer.dimensions and name not in OPTIONAL:
            raise InputError(f"{where}: the dimension {name} is missing.")
    bounds = {name: layer.dimensions.get(name, 1) for name in loops if not name.endswith("'")}
    for side, (kernel, output) in windows.items():
        bounds[output] = _outputs(layer, side, layer.dimensions[side], layer.dimensions[kernel], where)
    return bounds


def _outputs(layer: Layer, side: str, size: int, kernel: int, where: str) -> int:
    """Whole windows of a kernel in so many indices of an input [1]."""
    if size < kernel:
        raise InputError(f"{where}: {side} is {size}, which no window of {WINDOWS[side][0]} {kernel} fits into.")
    return (size - kernel) // layer.stride.get(side, 1) + 1


def _problem(layer: Layer, bounds: Dictionary[str, int]) -> tuple[Problem, Names]:
    at = {name: float(bound) for name, bound in bounds.items()}
    if layer.kind == "GEMM":
        return gemm(at["M"], at["N"], at["K"])
    if layer.kind == "BMM":
        return convolution(at["K"], at["N"], 1.0, 1.0, (1.0, 1.0), batch=at["M"], groups=at["B"])
    stride = (float(layer.stride.get("Y", 1)), float(layer.stride.get("X", 1)))
    channels, groups = (1.0, at["C"]) if layer.kind == "DSCONV" else (at["C"], 1.0)
    kernel = (at["R"], at["S"])
    return convolution(channels, at["K"], at["Y'"], at["X'"], kernel, stride, batch=at["N"], groups=groups)


def _children(layer: Layer, units: int, where: str) -> list[int]:
    """Sub-clusters of each cluster, the outermost first [1]."""
    inner = math.prod(layer.widths)
    if units < inner:
        raise InputError(f"{where}: its clusters need {inner} PEs; the machine has {units}.")
    return [units // inner, *layer.widths]


def _moves(layer: Layer, group: Sequence[Directive], tile: dict[str, int], where: str) -> list[Directive]:
    """The directives of a cluster on outputs instead of inputs; `tile` becomes what they leave to a sub-cluster."""
    spread = {each.loop for each in group if each.spatial}
    sizes = {each.loop: min(each.size, tile[each.loop]) for each in group if each.loop in tile}
    found = []
    for each in group:
        at = f"{where} {each.line}"
        if each.loop in WINDOWS and "Y'" in LOOPS[layer.kind]:
            kernel, output = WINDOWS[each.loop]
            if {each.loop, kernel} <= spread:
                continue  # unit i takes row i of input and kernel: the kernel is spread, the output stays
            outputs = _outputs(layer, each.loop, each.size, sizes.get(kernel, tile[kernel]), at)
            each = each._replace(loop=output, size=outputs)
        if each.loop not in tile:
            hint = did_you_mean(each.loop, tile)
            raise InputError(f"{at}: '{each.loop}' is no dimension; there are {', '.join(tile)}.{hint}")
        if each.loop in {other.loop for other in found}:
            raise InputError(f"{at}: {each.loop} is moved twice in one cluster.")
        if each.size < tile[each.loop] and each.offset != each.size:
            counted = " An offset counts outputs, whatever the stride." if each.loop.endswith("'") else ""
            raise InputError(
                f"{at}: {each.size} of {each.loop} move by {each.offset}; a step must begin where the last ended."
                f"{counted}"
            )
        found.append(each)
    for each in found:
        tile[each.loop] = min(tile[each.loop], each.size)
    return found


def layer_case(nest: Nest, machine: Dictionary[str, int], source: str) -> Case:
    """The nest on a machine of `load_machine` as a case: its bounds are what the directives cover, in whole steps.

    The outer store holds the layer, as in MAESTRO; `NoC_BW` words a cycle go inwards from it and in each cluster.
    Energies are not in MAESTRO's files.
    """
    mapping, covered = dataflow_mapping(nest.flow)
    units, wires = float(machine["NumPEs"]), float(machine["NoC_BW"])
    inner = Level(instances=units, size=float(machine.get("L1Size", math.inf)))
    between, left = [], units
    for cluster in reversed(nest.flow.clusters[1:]):
        left = float(left // cluster.children)
        between.append(Level(instances=left, read_bandwidth=wires))
    outer = Level(read_bandwidth=wires)
    levels = (INNER, *(f"cluster of {width}" for width in _widths(nest.flow)), OUTER)
    problem = Problem([float(each) for each in covered], nest.problem.coefficients, nest.problem.operands)
    notes = (
        f"{source}: energies are not in MAESTRO's files; {OUTER} is taken to hold the layer",
        *_padding(nest, covered),
    )
    return Case(
        problem, Architecture((inner, *between, outer), units), mapping, nest.names, levels, UNIT, "head", notes
    )


def _widths(flow: Dataflow) -> list[int]:
    """Units in each cluster but the outermost, from the innermost [1]."""
    children = [cluster.children for cluster in flow.clusters[:0:-1]]
    return [math.prod(children[: index + 1]) for index in range(len(children))]


def _padding(nest: Nest, covered: Sequence[int]) -> list[str]:
    return [
        f"{nest.called[name]}: steps cover {steps:,} of {bound:,}"
        for name, steps, bound in zip(nest.names.dimensions, covered, nest.flow.bounds, strict=True)
        if steps != bound
    ]


def layer_record(layer: Layer, machine: Dictionary[str, int], source: str) -> dict[str, Any]:
    """What a layer takes as plain data: `cycles` of MAESTRO's schedule, `nest`: the answer of the mapped nest."""
    nest = layer_nest(layer, machine["NumPEs"], source)
    answer = evaluate(layer_case(nest, machine, source))
    cycles = schedule_time(nest.flow, Wires(machine["NoC_BW"], machine.get("NoC_NumHops", 1)))
    macs = math.prod(nest.flow.bounds)
    return {
        "layer": layer.name,
        "cycles": cycles,
        "macs": macs,
        "utilization": macs / (machine["NumPEs"] * cycles),
        "nest": answer,
    }
