"""An ONNX file with every dimension a number: read without its weights, bound to the user's shapes, inferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError, did_you_mean
from jaxperf.io.program import Value

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

FORMATS = {
    "FLOAT": "fp32",
    "DOUBLE": "fp64",
    "FLOAT16": "fp16",
    "BFLOAT16": "bf16",
    **dict.fromkeys(("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"), "fp8"),
}
ITEMSIZES = {
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64", "COMPLEX64"), 8.0),
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 4.0),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 2.0),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), 0.5),
    "COMPLEX128": 16.0,
}
# Operators outside the standard whose first output has the shape of their first input.
SAME_SHAPE = frozenset(
    """BiasGelu FastGelu Gelu QuickGelu GroupQueryAttention MultiHeadAttention RotaryEmbedding
    SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization""".split()
)
LARGEST = 2 * 2**30  # bytes; Protobuf's own limit, beyond which weights lie in files of their own


def import_onnx() -> Any:
    """The `onnx` package. Raises `InputError` where it is not installed."""
    try:
        import onnx
    except ImportError:
        raise InputError("ONNX files need the onnx package: pip install 'jaxperf[onnx]'.") from None
    return onnx


def read_model(path: Path) -> ModelProto:
    """The model in a file, functions inlined, without weights that lie in other files.

    **Raises:** `InputError` naming the file where it is missing, no ONNX model, truncated or empty.
    """
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{path} has {size} bytes; an ONNX file has at most 2 GiB, its weights in other files.")
        body = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(body)
    except DecodeError:
        raise InputError(f"{path} is not an ONNX model, or it is truncated ({size} bytes).") from None
    if not model.graph.node:
        raise InputError(f"{path} holds no graph; it is empty, truncated, or not an ONNX model.")
    _check_text(model.graph, path)
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _check_text(graph: GraphProto, path: Path) -> None:
    """Names that are no UTF-8, as a flipped byte leaves them, come as bytes."""
    infos = (*graph.input, *graph.output, *graph.value_info)
    words = [word for node in graph.node for word in (node.name, node.op_type, node.domain, *node.input, *node.output)]
    words += [each.name for each in (*graph.initializer, *infos)]
    words += [dim.dim_param for dim in _dims(infos)]
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{path} is damaged: a name in it is no text.")


def bind_inputs(model: ModelProto, path: Path, shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> None:
    """Write numbers in place of all free dimensions of the inputs.

    **Arguments:** `shapes`: by the name of an input, or one number by the name of a symbolic dimension; `batch`: of the
    first dimensions that are still free.
    **Raises:** `InputError` naming the file, the input and the dimension that stays free or does not fit.
    """
    inputs = model_inputs(model.graph)
    symbols = _symbols(path, inputs, shapes)
    for info in inputs.values():
        dims = info.type.tensor_type.shape.dim
        given = shapes.get(info.name)
        if given is not None and len(given) != len(dims):
            raise InputError(f"{path}: input '{info.name}' has {len(dims)} dimensions, not the {len(given)} given.")
        for axis, dim in enumerate(dims):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                _check_fixed(path, info.name, axis, dim.dim_value, None if given is None else given[axis])
                continue
            value = given[axis] if given is not None else symbols.get(dim.dim_param)
            value = batch if value is None and axis == 0 else value
            if value is None:
                free = f"the symbolic dimension '{dim.dim_param}'" if dim.dim_param else "an unknown dimension"
                also = f", or {dim.dim_param}=NUMBER" if dim.dim_param else ""
                raise InputError(
                    f"{path}: input '{info.name}' has {free} (axis {axis}); "
                    f"give --shapes {info.name}={_example(dims)}{also}."
                )
            symbols.setdefault(dim.dim_param, value)
            dim.dim_value = value


def model_inputs(graph: GraphProto) -> dict[str, ValueInfoProto]:
    """The inputs that are no weights, by name."""
    weights = {tensor.name for tensor in graph.initializer}
    return {info.name: info for info in graph.input if info.name not in weights}


def infer_values(model: ModelProto, path: Path) -> dict[str, Value]:
    """Shape and format of every value whose shape is known, by ONNX's own shape inference.

    **Raises:** `InputError` naming the file and, as ONNX says it, the node that it stops at: shapes that contradict, an
    operator of a domain that the file does not declare.
    """
    onnx = import_onnx()
    shadow = onnx.ModelProto()
    shadow.CopyFrom(model)
    declared = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    foreign = {name for node in model.graph.node if not _is_standard(node) for name in node.output}
    del shadow.graph.value_info[:]
    shadow.graph.value_info.extend(info for name, info in declared.items() if name in foreign)
    for info in shadow.graph.output:
        info.type.tensor_type.ClearField("shape")
    for node in shadow.graph.node:
        if node.op_type in SAME_SHAPE and not _is_standard(node):
            node.op_type, node.domain = "Identity", ""
            del node.input[1:], node.output[1:], node.attribute[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(shadow, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: ONNX's shape inference stops: {' '.join(str(error).split())}") from None
    found = {name: value for name, info in declared.items() if (value := _value(info, path)) is not None}
    for info in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        value = _value(info, path)
        if value is not None:
            found[info.name] = value
    for tensor in model.graph.initializer:
        found[tensor.name] = _typed(tuple(tensor.dims), tensor.data_type, path)
    return found


def _is_standard(node: Any) -> bool:
    onnx = import_onnx()
    return node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type)


def _value(info: ValueInfoProto, path: Path) -> Value | None:
    """What is stated of a value; None where a dimension is not a number."""
    kind = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in kind.shape.dim):
        return None
    return _typed(tuple(dim.dim_value for dim in kind.shape.dim), kind.elem_type, path)


def _typed(shape: tuple[int, ...], code: int, path: Path) -> Value:
    kinds = import_onnx().TensorProto.DataType
    if code not in kinds.values():
        raise InputError(f"{path}: a value has the number format {code}, which the installed onnx does not know.")
    name = str(kinds.Name(code))
    return Value(shape, FORMATS.get(name, name.lower()), ITEMSIZES.get(name, 1.0))


def _symbols(path: Path, inputs: Mapping[str, ValueInfoProto], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Numbers of symbolic dimensions that were given by name, or that a given shape gives them."""
    named = {dim.dim_param for dim in _dims(inputs.values()) if dim.dim_param}
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        if name in inputs:
            for dim, value in zip(inputs[name].type.tensor_type.shape.dim, shape, strict=False):
                if dim.dim_param and found.setdefault(dim.dim_param, value) != value:
                    raise InputError(
                        f"{path}: --shapes give the dimension '{dim.dim_param}' as {found[dim.dim_param]} and {value}."
                    )
        elif name in named and len(shape) == 1:
            found[name] = shape[0]
        else:
            known = (*inputs, *named)
            raise InputError(
                f"{path}: --shapes: no input or dimension is named '{name}'; there are {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
    return found


def _dims(infos: Iterable[ValueInfoProto]) -> list[Any]:
    return [dim for info in infos for dim in info.type.tensor_type.shape.dim]


def _check_fixed(path: Path, name: str, axis: int, own: int, given: int | None) -> None:
    if given is not None and given != own:
        raise InputError(f"{path}: axis {axis} of input '{name}' is {own} in the file, not the {given} given.")


def _example(dims: Iterable[Any]) -> str:
    return ",".join(str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "N" for dim in dims)
