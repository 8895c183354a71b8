"""ONNX files: operators against counts by hand, published models, dimensions bound or missing, and damaged files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwspecs.errors import InputError
from jaxperf.io.lowering import Traced, lower
from jaxperf.io.onnx_graph import read_onnx

onnx = pytest.importorskip("onnx")
helper = onnx.helper
FLOAT, INT64, UINT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.UINT8
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
Shape = Sequence[int | str | None]


def weights(name: str, *shape: int, kind: int = FLOAT) -> Any:
    """A weight whose values lie in another file that nobody opens."""
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=kind)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="absent.bin")
    return tensor


def integers(name: str, *values: int) -> Any:
    return helper.make_tensor(name, INT64, [len(values)], values)


def save(
    folder: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    initializers: Sequence[Any] = (),
    opset: int = 20,
    declared: Mapping[str, Shape] | None = None,
    kind: int = FLOAT,
) -> Path:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    stated = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (declared or {}).items()]
    graph = helper.make_graph(list(nodes), "test", infos, results, list(initializers), value_info=stated)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    return path


def one(folder: Path, operator: str, inputs: Mapping[str, Shape], *initializers: Any, **attributes: Any) -> Traced:
    """A model of one operator on its inputs and then its weights."""
    names = [*inputs, *(each.name for each in initializers)]
    node = helper.make_node(operator, names, ["y"], name="the_node", **attributes)
    return lower(read_onnx(save(folder, [node], inputs, ["y"], initializers, opset=23)))


def only_op(traced: Traced) -> Any:
    (node,) = traced.graph.nodes
    (op,) = node.forward
    return op


# --- operators --------------------------------------------------------------------------------------------------------


def test_gemm_with_transposed_weights(tmp_path: Path) -> None:
    traced = one(tmp_path, "Gemm", {"x": [8, 512]}, weights("w", 1000, 512), weights("b", 1000), transB=1)
    assert only_op(traced).shape == {"batch": 1, "m": 8, "n": 1000, "k": 512}
    assert traced.total.product_flops == 2 * 8 * 512 * 1000
    assert traced.total.bytes_moved == 4 * (8 * 512 + 1000 * 512 + 1000 + 8 * 1000)


@pytest.mark.parametrize(
    ("left", "right", "family", "shape"),
    [
        ([2, 7, 16], [16, 4], "gemm", (1, 14, 4, 16)),
        ([2, 7, 16], [2, 16, 4], "bmm", (2, 7, 4, 16)),
        ([2, 3, 7, 16], [2, 3, 16, 4], "bmm", (6, 7, 4, 16)),
        ([16], [16, 4], "gemm", (1, 1, 4, 16)),
        ([5, 16], [16], "gemm", (1, 5, 1, 16)),
    ],
)
def test_matmul_of_any_rank(tmp_path: Path, left: list[int], right: list[int], family: str, shape: tuple) -> None:
    op = only_op(one(tmp_path, "MatMul", {"a": left, "b": right}))
    assert op.family == family
    assert tuple(op.shape[name] for name in ("batch", "m", "n", "k")) == shape


@pytest.mark.parametrize(
    ("equation", "left", "right", "extents"),
    [
        ("bshd, bthd -> bhst", [2, 7, 3, 16], [2, 5, 3, 16], (6, 7, 5, 16)),
        ("ij,jk->ik", [4, 8], [8, 5], (1, 4, 5, 8)),
    ],
)
def test_einsum_of_two_operands(tmp_path: Path, equation: str, left: list, right: list, extents: tuple) -> None:
    op = only_op(one(tmp_path, "Einsum", {"a": left, "b": right}, equation=equation))
    assert tuple(op.shape[name] for name in ("batch", "m", "n", "k")) == extents


def test_quantized_convolutions_count_as_plain_ones(tmp_path: Path) -> None:
    scales = [weights("xs"), weights("xz", kind=UINT8), weights("w", 8, 4, 3, 3, kind=UINT8), weights("ws"),
              weights("wz", kind=UINT8), weights("ys"), weights("yz", kind=UINT8)]  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *(each.name for each in scales)], ["y"], pads=[1, 1, 1, 1])
    traced = lower(read_onnx(save(tmp_path, [node], {"x": [1, 4, 16, 16]}, ["y"], scales, kind=UINT8)))
    assert traced.total.product_flops == 2 * 256 * 8 * 4 * 9
    assert only_op(traced).dtype == "int8"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    sizes=st.tuples(st.integers(8, 12), st.integers(8, 12)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
)
def test_convolutions_count_every_tap(tmp_path: Path, groups, channels, sizes, kernel, strides, pads) -> None:
    inside, outside = channels
    weight = weights("w", groups * outside, inside, *kernel)
    traced = one(
        tmp_path, "Conv", {"x": [2, groups * inside, *sizes]}, weight, group=groups, strides=strides, pads=pads
    )
    out = [
        len(range(0, sizes[axis] + pads[axis] + pads[axis + 2] - kernel[axis] + 1, strides[axis])) for axis in (0, 1)
    ]
    assert traced.total.product_flops == 2 * 2 * math.prod(out) * groups * outside * inside * math.prod(kernel)


def test_padding_stated_as_same_is_that_of_the_output(tmp_path: Path) -> None:
    traced = one(tmp_path, "Conv", {"x": [1, 3, 224, 224]}, weights("w", 64, 3, 7, 7), strides=[2, 2],
                 auto_pad="SAME_UPPER")  # fmt: skip
    assert (only_op(traced).family, only_op(traced).shape["padding"]) == ("convolution", 3)
    assert traced.total.product_flops == 2 * 112 * 112 * 64 * 3 * 49


def test_a_transposed_convolution_skips_the_zeros_it_spreads(tmp_path: Path) -> None:
    """Each input element meets the whole window of every output channel: 2 in out window positions."""
    traced = one(tmp_path, "ConvTranspose", {"x": [1, 8, 10, 10]}, weights("w", 8, 4, 2, 2), strides=[2, 2])
    assert traced.total.product_flops == 2 * 10 * 10 * 8 * 4 * 4


def test_an_lstm_is_one_product_and_one_a_step(tmp_path: Path) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=32)
    path = save(tmp_path, [node], {"x": [10, 2, 16]}, ["y"], [weights("w", 1, 128, 16), weights("r", 1, 128, 32)])
    traced = lower(read_onnx(path))
    assert [(op.count, op.shape["m"]) for op in traced.graph.nodes[0].forward] == [(1, 20), (10, 2)]
    assert traced.total.product_flops == 2 * 10 * 2 * 128 * (16 + 32)


@pytest.mark.parametrize(("causal", "families"), [(1, ["attention_prefill"]), (0, ["bmm", "softmax", "bmm"])])
def test_attention_with_and_without_a_causal_mask(tmp_path: Path, causal: int, families: list[str]) -> None:
    shapes = {"q": [2, 8, 128, 64], "k": [2, 2, 128, 64], "v": [2, 2, 128, 64]}
    traced = one(tmp_path, "Attention", shapes, is_causal=causal)
    assert [op.family for op in traced.graph.nodes[0].forward] == families
    pairs = 128 * 129 // 2 if causal else 128 * 128
    assert traced.total.product_flops == 4 * 2 * 8 * pairs * 64
    scores = 0 if causal else 4 * 2 * 8 * 128 * 128
    assert traced.total.bytes_moved == 4 * (2 * 2 * 8 * 128 * 64 + 2 * 2 * 2 * 128 * 64 + scores)


def test_row_wise_operators_have_their_columns(tmp_path: Path) -> None:
    assert only_op(one(tmp_path, "Softmax", {"x": [4, 8, 128]}, axis=-1)).shape == {"rows": 32, "columns": 128}
    traced = one(tmp_path, "LayerNormalization", {"x": [4, 8, 128]}, weights("scale", 128), weights("bias", 128))
    op = only_op(traced)
    assert (op.family, op.shape["columns"]) == ("norm", 128)
    assert traced.total.bytes_moved == 4 * (2 * 4 * 8 * 128 + 2 * 128)
    assert 2 * 4 * op.shape["rows"] * op.shape["columns"] == traced.total.bytes_moved


def test_a_gather_reads_its_rows(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["table", "tokens"], ["y"])
    path = save(tmp_path, [node], {"tokens": [4, 16]}, ["y"], [weights("table", 30_000, 64)], kind=INT64)
    traced = lower(read_onnx(path))
    assert only_op(traced).family == "embedding"
    assert traced.total.bytes_moved == 4 * 2 * 64 * 64 + 8 * 64


def test_reshapes_and_transposes_have_no_kernel_and_shapes_are_computed_on_the_host(tmp_path: Path) -> None:
    """Heads split as exporters write it: Shape, Gather, Concat, Reshape, Transpose, MatMul."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["split"]),
        helper.make_node("Transpose", ["split"], ["heads"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["split"], ["keys"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["heads", "keys"], ["y"]),
    ]
    constants = [integers("zero", 0), integers("rest", 16, 4, 8)]
    traced = lower(read_onnx(save(tmp_path, nodes, {"x": ["batch", 16, 32]}, ["y"], constants), batch=3))
    assert only_op(traced).shape == {"batch": 12, "m": 16, "n": 16, "k": 8}


def test_what_depends_on_weights_alone_is_computed_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    traced = lower(read_onnx(save(tmp_path, nodes, {"x": [2, 8]}, ["y"], [weights("w", 4, 8)])))
    assert [node.kind for node in traced.graph.nodes] == ["MatMul"]
    assert traced.program.bytes_of(traced.program.parameters) == 4 * 32


def transformer_layer(batch: Shape) -> tuple[list[Any], list[Any]]:
    """An encoder layer as exporters write it, width 64, 4 heads, with a fused operator of ONNX Runtime."""
    linear = [("q", 64, 64), ("k", 64, 64), ("v", 64, 64), ("o", 64, 64), ("up", 64, 256), ("down", 256, 64)]
    initializers = [weights(f"w_{name}", *shape) for name, *shape in linear]
    initializers += [weights("scale", 64), weights("bias", 64), weights("bias_up", 256)]
    initializers += [integers("split", 0, -1, 4, 16), integers("merge", 0, -1, 64), weights("root")]
    node = helper.make_node
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["x", f"w_{name}"], [f"{name}_flat"], name=f"{name}_proj"),
            node("Reshape", [f"{name}_flat", "split"], [f"{name}_split"]),
            node("Transpose", [f"{name}_split"], [f"{name}_heads"], perm=order),
        ]
    nodes += [
        node("MatMul", ["q_heads", "k_heads"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Softmax", ["scaled"], ["probabilities"]),
        node("MatMul", ["probabilities", "v_heads"], ["context"]),
        node("Transpose", ["context"], ["context_t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["context_t", "merge"], ["merged"]),
        node("MatMul", ["merged", "w_o"], ["projected"]),
        node("SkipLayerNormalization", ["projected", "x", "scale", "bias"], ["h"], domain="com.microsoft"),
        node("MatMul", ["h", "w_up"], ["inner"]),
        node("BiasGelu", ["inner", "bias_up"], ["act"], domain="com.microsoft"),
        node("MatMul", ["act", "w_down"], ["y"]),
    ]
    return nodes, initializers


@pytest.mark.parametrize("given_as", ["shapes", "symbols"])
def test_a_transformer_layer_counts_as_by_hand(tmp_path: Path, given_as: str) -> None:
    nodes, initializers = transformer_layer(["batch", "tokens", 64])
    path = save(tmp_path, nodes, {"x": ["batch", "tokens", 64]}, ["y"], initializers)
    shapes: dict[str, tuple[int, ...]] = (
        {"x": (3, 32, 64)} if given_as == "shapes" else {"batch": (3,), "tokens": (32,)}
    )
    traced = lower(read_onnx(path, shapes))
    rows, pairs = 3 * 32, 3 * 32 * 32
    assert traced.total.product_flops == 2 * (rows * 12 * 64 * 64 + 2 * pairs * 64)
    assert [node.kind for node in traced.graph.nodes].count("MatMul") == 8
    assert {node.forward[0].family for node in traced.graph.nodes} == {"gemm", "bmm", "softmax", "norm", "elementwise"}
    floats = 3 * (2 * rows * 64 + 64 * 64) + 2 * (2 * rows * 64 + 4 * pairs) + 2 * 4 * pairs + 1
    floats += (2 * rows * 64 + 64 * 64) + (3 * rows * 64 + 2 * 64)
    floats += 2 * (rows * 64 + 64 * 256 + rows * 256) + (2 * rows * 256 + 256)
    assert traced.total.bytes_moved == 4 * floats


@pytest.mark.parametrize(
    ("file", "gmacs", "megabytes"),
    [("resnet50", 4.09, 102.4), ("vgg19", 19.63, 574.7), ("densenet121", 2.83, 32.6), ("squeezenet", 0.35, 4.94)],
)
def test_models_of_the_onnx_package_have_their_published_macs(file: str, gmacs: float, megabytes: float) -> None:
    """torchvision's table of models (GFLOPS there are multiply-accumulates): ResNet50 4.09, VGG19 19.63, DenseNet121
    2.83, SqueezeNet1.1 0.35. Parameters: 4 bytes of 25.6, 143.7, 8.1 and 1.24 million, statistics of norms included."""
    path = LIGHT / f"light_{file}.onnx"
    if not path.is_file():
        pytest.skip("this onnx package holds no test models")
    traced = lower(read_onnx(path))
    assert traced.total.product_flops / 2e9 == pytest.approx(gmacs, abs=0.005)
    assert traced.program.bytes_of(traced.program.parameters) / 1e6 == pytest.approx(megabytes, rel=2e-3)
    assert traced.graph.unknown == {}


# --- unknown operators ------------------------------------------------------------------------------------------------


def test_an_unknown_operator_of_known_shape_moves_its_bytes(tmp_path: Path) -> None:
    traced = one(tmp_path, "Det", {"x": [16, 8, 8]})
    assert traced.graph.unknown == {"Det": 1}
    assert traced.total.bytes_moved == 4 * (16 * 64 + 16)


def test_a_custom_operator_whose_shape_the_file_states(tmp_path: Path) -> None:
    node = helper.make_node("MyScan", ["x"], ["y"], domain="com.microsoft", name="custom")
    path = save(tmp_path, [node, helper.make_node("Relu", ["y"], ["z"])], {"x": [4, 8]}, ["z"], declared={"y": [4, 16]})
    assert lower(read_onnx(path)).graph.unknown == {"MyScan": 1}


def test_a_custom_operator_without_a_shape_is_refused_by_name(tmp_path: Path) -> None:
    node = helper.make_node("MyScan", ["x"], ["y"], domain="com.microsoft", name="custom")
    path = save(tmp_path, [node], {"x": [4, 8]}, ["y"])
    with pytest.raises(InputError, match=r"model.onnx: node 'custom': unknown operator MyScan of com.microsoft, and"):
        read_onnx(path)


def test_control_flow_is_refused_by_name(tmp_path: Path) -> None:
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "body", [],
                             [helper.make_tensor_value_info("b", FLOAT, [4])])  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body, name="branch")
    infos = {"c": [], "x": [4]}
    with pytest.raises(InputError, match=r"model.onnx: node 'branch' \(If\) holds a graph"):
        read_onnx(save(tmp_path, [node], infos, ["y"]))


# --- dimensions -------------------------------------------------------------------------------------------------------


def relu(folder: Path, shape: Shape) -> Path:
    return save(folder, [helper.make_node("Relu", ["x"], ["y"], name="act")], {"x": shape}, ["y"])


def test_free_dimensions_are_bound_by_shape_by_name_or_by_batch(tmp_path: Path) -> None:
    path = relu(tmp_path, ["n", "tokens", 8])
    for shapes, batch in (
        ({"x": (2, 5, 8)}, None),
        ({"n": (2,), "tokens": (5,)}, None),
        ({"tokens": (5,)}, 2),
    ):
        program = read_onnx(path, shapes, batch)
        assert program.values["y"].shape == (2, 5, 8)


@pytest.mark.parametrize(
    ("shape", "shapes", "batch", "said"),
    [
        ([2, 8], {}, 4, "model.onnx: --batch 4: the first dimension of input 'x' is 2 in the file."),
        (["n", 8], {"n": (2,)}, 4, "--batch 4: the first dimension of input 'x' is 2 in the file or by --shapes."),
        ([], {}, 4, "--batch 4: no input has a first dimension."),
        (["n", 8], {}, 0, "--batch is 0; it must be a whole number from 1 to 2^53."),
    ],
)
def test_a_batch_that_no_input_has(tmp_path: Path, shape: Shape, shapes: dict, batch: int, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read_onnx(relu(tmp_path, shape), shapes, batch)


def test_a_batch_that_is_not_given_may_have_a_default(tmp_path: Path) -> None:
    for shape, size in ((["n", 8], 1), ([2, 8], 2)):
        assert read_onnx(relu(tmp_path, shape), free_batch=1).values["y"].shape == (size, 8)
    assert read_onnx(relu(tmp_path, [2, 8]), batch=2).values["y"].shape == (2, 8)


@pytest.mark.parametrize(
    ("shape", "shapes", "said"),
    [
        (["n", 8], {}, r"input 'x' has the symbolic dimension 'n' \(axis 0\); give --shapes x=n,8, or n=NUMBER"),
        ([None, 8], {}, r"input 'x' has an unknown dimension \(axis 0\); give --shapes x=N,8"),
        (["n", 8], {"x": (2, 8, 8)}, "input 'x' has 2 dimensions, not the 3 given"),
        (["n", 8], {"x": (2, 9)}, "axis 1 of input 'x' is 8 in the file, not the 9 given"),
        (["n", 8], {"y": (2, 8)}, "no input or dimension is named 'y'; there are x, n"),
        (["n", "n"], {"x": (2, 3)}, "--shapes give the dimension 'n' as 2 and 3"),
    ],
)
def test_dimensions_that_are_missing_or_do_not_fit(tmp_path: Path, shape: Shape, shapes: dict, said: str) -> None:
    with pytest.raises(InputError, match=f"model.onnx: .*{said}|model.onnx: {said}"):
        read_onnx(relu(tmp_path, shape), shapes)


def test_a_shape_that_depends_on_data_is_refused_by_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="found"),
        helper.make_node("Cast", ["where"], ["y"], to=1),
    ]
    with pytest.raises(InputError, match=r"model.onnx: node 'found' \(NonZero\): the shape of 'where' depends on data"):
        read_onnx(save(tmp_path, nodes, {"x": [4, 4]}, ["y"]))


# --- damaged files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    nodes, initializers = transformer_layer([1, 8, 64])
    path = save(tmp_path, nodes, {"x": [1, 8, 64]}, ["y"], initializers)
    body = path.read_bytes()
    path.write_bytes(body[: int(share * len(body))])
    with pytest.raises(InputError, match="model.onnx is not an ONNX model, or it is truncated"):
        read_onnx(path)


def test_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent.onnx cannot be read: No such file"):
        read_onnx(tmp_path / "absent.onnx")
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    with pytest.raises(InputError, match="empty.onnx holds no graph"):
        read_onnx(empty)
    text = tmp_path / "text.onnx"
    text.write_text("a text of some length that is no protocol buffer at all")
    with pytest.raises(InputError, match="text.onnx"):
        read_onnx(text)
    with pytest.raises(InputError, match="cannot be read"):
        read_onnx(tmp_path)


@pytest.mark.parametrize("operator", ["Add", "MatMul"])
def test_a_dangling_edge_names_node_and_value(tmp_path: Path, operator: str) -> None:
    node = helper.make_node(operator, ["ghost", "x"], ["y"], name="both")
    with pytest.raises(InputError, match=rf"node 'both' \({operator}\) reads 'ghost', which no node before it writes"):
        read_onnx(save(tmp_path, [node], {"x": [4]}, ["y"]))


def test_a_cycle_names_the_node_that_reads_too_early(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    with pytest.raises(InputError, match="node 'first' .* reads 'b', which no node before it writes"):
        read_onnx(save(tmp_path, nodes, {"x": [4]}, ["b"]))


def test_shapes_that_contradict_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model.onnx: .*(shape inference stops|cannot have inputs)"):
        one(tmp_path, "MatMul", {"a": [4, 8], "b": [9, 4]})


def test_a_domain_that_is_not_declared_is_no_contradiction(tmp_path: Path) -> None:
    node = helper.make_node("MyOp", ["x"], ["y"], domain="com.x", name="mine")
    with pytest.raises(InputError, match="model.onnx: ONNX's shape inference stops: .*node name mine.*domain com.x"):
        read_onnx(save(tmp_path, [node], {"x": [4]}, ["y"]))


def test_without_the_package_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    import builtins

    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "onnx":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=r"pip install 'jaxperf\[onnx\]'"):
        read_onnx(tmp_path / "model.onnx")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(place=st.floats(0.0, 1.0, exclude_max=True), value=st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_read_never_a_traceback(tmp_path: Path, place: float, value: int) -> None:
    nodes, initializers = transformer_layer([1, 8, 64])
    path = save(tmp_path, nodes, {"x": [1, 8, 64]}, ["y"], initializers)
    body = bytearray(path.read_bytes())
    body[int(place * len(body))] = value
    path.write_bytes(bytes(body))
    try:
        lower(read_onnx(path))
    except InputError as error:
        assert "model.onnx" in str(error)
