"""ONNX files as programs of steps; initializers are the parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError
from jaxperf.io.onnx_file import bind_inputs, import_onnx, infer_values, model_inputs, read_model
from jaxperf.io.onnx_ops.describe import RULES
from jaxperf.io.onnx_ops.kinds import CONTROL_FLOW
from jaxperf.io.primitives.call import Call
from jaxperf.io.primitives.describe import describe
from jaxperf.io.program import Program, Step, Value, without_dead_steps
from jaxperf.io.shapes import LARGEST

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

FEW = 64  # elements; integers no more than these, made from shapes alone, are computed on the host
NO_SHAPES: Mapping[str, tuple[int, ...]] = {}


def read_onnx(
    path: str | Path,
    shapes: Mapping[str, tuple[int, ...]] = NO_SHAPES,
    batch: int | None = None,
    *,
    free_batch: int | None = None,
) -> Program:
    """The program in an ONNX file.

    **Arguments:** `shapes`: of inputs by name, or one number by the name of a symbolic dimension; `batch`: for the
    first dimensions that are still free, `free_batch` where it is not given.
    **Raises:** `InputError` naming file, node and operator: a file that is missing, truncated or no ONNX model, a
    dimension without a number, a batch that no input has, an operator whose output has no known shape, a node that
    reads what nobody writes.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"The ONNX model is {path!r}; give the path of a file.")
    path = Path(path)
    if batch is not None and not 1 <= batch <= LARGEST:
        raise InputError(f"--batch is {batch}; it must be a whole number from 1 to 2^53.")
    model = read_model(path)
    bind_inputs(model, path, shapes, free_batch if batch is None else batch)
    if batch is not None:
        _check_batch(model, path, batch, "in the file or by --shapes" if shapes else "in the file")
    _check_edges(model, path)
    values = infer_values(model, path)
    weights = [tensor.name for tensor in model.graph.initializer]
    inputs = tuple(model_inputs(model.graph))
    steps, constants = _steps(model, path, values, weights)
    outputs = tuple(info.name for info in model.graph.output)
    for name in outputs:
        if name not in values:
            raise InputError(f"{path}: no node writes the output '{name}'.")
    kept = without_dead_steps(steps, outputs)
    read = {name for step in kept for name in step.inputs}
    parameters = tuple(name for name in (*weights, *constants) if name in read)
    return Program(path.name, kept, values, inputs, outputs, parameters)


def _check_batch(model: ModelProto, path: Path, batch: int, bound: str) -> None:
    """Raises `InputError` for a batch that is the first dimension of no input; `bound`: where these come from."""
    dims = {name: info.type.tensor_type.shape.dim for name, info in model_inputs(model.graph).items()}
    first = {name: own[0].dim_value for name, own in dims.items() if own}
    if batch not in first.values():
        there = [f"the first dimension of input '{name}' is {size} {bound}" for name, size in first.items()]
        raise InputError(f"{path}: --batch {batch}: {there[0] if there else 'no input has a first dimension'}.")


def _steps(
    model: ModelProto, path: Path, values: dict[str, Value], weights: Sequence[str]
) -> tuple[list[Step], tuple[str, ...]]:
    """The steps in the order of the file, and the values that are computed once, when the model is loaded."""
    steps: list[Step] = []
    folded = set(weights)
    host = {name for name in folded if _is_small(values, name)}
    constants: list[str] = []
    for position, node in enumerate(model.graph.node):
        label = _label(node, position)
        if _on_host(node, values, host):
            host.update(node.output)
        if _is_constant(node, folded):
            _shape_of(values, node.output[0], node, label, path)
            folded.update(node.output)
            constants += [name for name in node.output if name in values]
        elif not host.issuperset(node.output):
            steps.append(_step(node, label, path, values))
    return steps, tuple(constants)


def _is_constant(node: NodeProto, folded: set[str]) -> bool:
    """Whether a runtime computes a node once: all it reads are weights. Quantized ones stay so until they are used."""
    drawn = node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "DequantizeLinear")
    return not drawn and node.op_type not in CONTROL_FLOW and all(name in folded for name in node.input if name)


def _on_host(node: NodeProto, values: Mapping[str, Value], host: set[str]) -> bool:
    """Whether a node only computes shapes: a few integers from those of other shapes."""
    if node.op_type in ("Shape", "Size"):
        return True
    few = all(_is_small(values, name) for name in node.output if name)
    return few and node.op_type not in CONTROL_FLOW and all(name in host for name in node.input if name)


def _is_small(values: Mapping[str, Value], name: str) -> bool:
    return name in values and not values[name].is_floating and values[name].size <= FEW


def _step(node: NodeProto, label: str, path: Path, values: dict[str, Value]) -> Step:
    if node.op_type in CONTROL_FLOW:
        raise InputError(
            f"{path}: node '{label}' ({node.op_type}) holds a graph that runs an unknown number of times; "
            "export the model without control flow."
        )
    inputs = tuple(_shape_of(values, name, node, label, path) if name else NOTHING for name in node.input)
    for name in node.output[1:]:
        values.setdefault(name, NOTHING)  # a mask or a statistic that inference does not reach
    outputs = (
        _shape_of(values, node.output[0], node, label, path),
        *(values[name] for name in node.output[1:] if name),
    )
    try:
        found = describe(Call(node.op_type, inputs, outputs, _attributes(node)), RULES)
    except (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError):
        shapes = ", ".join(str(list(value.shape)) for value in inputs)
        raise InputError(f"{path}: node '{label}' ({node.op_type}) cannot have inputs of shape {shapes}.") from None
    return Step(
        label,
        node.op_type,
        found.kind,
        tuple(dict.fromkeys(name for name in node.input if name)),
        tuple(name for name in node.output if name),
        found.flops,
        found.ops,
        found.read,
        found.written,
        row_wise=found.row_wise,
    )


NOTHING = Value((0,), "token", 0.0)  # an optional input or output that is left out


def _label(node: NodeProto, position: int) -> str:
    return node.name or f"{node.op_type}.{position}"


def _check_edges(model: ModelProto, path: Path) -> None:
    """Raises `InputError` for what a node reads and nobody writes, of which shape inference does not say the name."""
    known = {tensor.name for tensor in model.graph.initializer} | set(model_inputs(model.graph))
    for position, node in enumerate(model.graph.node):
        for name in node.input:
            if name and name not in known:  # an optional input that is left out has no name
                label = f"node '{_label(node, position)}' ({node.op_type})"
                raise InputError(f"{path}: {label} reads '{name}', which no node before it writes.")
        known.update(node.output)


def _shape_of(values: Mapping[str, Value], name: str, node: NodeProto, label: str, path: Path) -> Value:
    if name in values:
        return values[name]
    if node.op_type not in RULES and not _is_defined(node):
        raise InputError(
            f"{path}: node '{label}': unknown operator {node.op_type}"
            f"{' of ' + node.domain if node.domain else ''}, and the file does not state the shape of '{name}'."
        )
    raise InputError(
        f"{path}: node '{label}' ({node.op_type}): the shape of '{name}' depends on data or cannot be inferred; "
        "simplify the model or state it in the file's value_info."
    )


def _is_defined(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and import_onnx().defs.has(node.op_type)


def _attributes(node: NodeProto) -> dict[str, Any]:
    helper = import_onnx().helper
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
