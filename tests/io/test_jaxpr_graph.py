"""Jaxprs as programs: FLOP of every product, control flow, unknown primitives, dead code, errors of tracing."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from hwspecs.errors import InputError
from jaxperf.io.jaxpr_graph import trace
from jaxperf.io.lowering import Traced, lower
from tests.io.traced_models import struct

few = st.integers(1, 5)


def lowered(function: Any, *arguments: Any, fuse: bool = True) -> Traced:
    return lower(trace(function, *arguments), fuse)


def families(traced: Traced) -> dict[str, float]:
    """How often the kernels of each family run."""
    found: dict[str, float] = {}
    for node in traced.graph.nodes:
        for op in node.forward:
            found[op.family] = found.get(op.family, 0.0) + op.count
    return found


# --- products ---------------------------------------------------------------------------------------------------------


@given(sizes=st.tuples(few, few, few, few), order=st.permutations("bmnk"), right=st.permutations("bnk"))
def test_a_product_of_any_layout_has_its_four_extents(sizes: tuple[int, ...], order: Any, right: Any) -> None:
    """`einsum` with the axes in any order, against the extents the letters were given."""
    extent = dict(zip("bmnk", sizes, strict=True))
    left = "".join(letter for letter in order if letter != "n")
    out = "".join(letter for letter in order if letter != "k")
    shapes = [struct(*(extent[letter] for letter in word)) for word in (left, "".join(right))]
    traced = lowered(functools.partial(jnp.einsum, f"{left},{''.join(right)}->{out}"), *shapes)
    b, m, n, k = sizes
    assert traced.total.product_flops == 2 * b * m * n * k
    (op,) = [op for node in traced.graph.nodes for op in node.forward if op.family in ("gemm", "bmm")]
    assert op.family == ("gemm" if b == 1 else "bmm")
    assert (op.shape["batch"], op.shape["k"]) == (b, k)
    assert {op.shape["m"], op.shape["n"]} == {m, n}
    moved = 4 * (b * m * k + b * k * n + b * m * n)
    assert sum(traced.work[node.name].bytes_moved for node in traced.graph.nodes if op in node.forward) == moved


def taps(size: int, kernel: int, stride: int, dilation: int, pad: tuple[int, int]) -> int:
    """Output extent of a convolution, counted by sliding the window."""
    reach = dilation * (kernel - 1) + 1
    return sum(1 for start in range(0, size + sum(pad) - reach + 1, stride))


@given(
    batch=few,
    groups=st.integers(1, 3),
    inside=few,
    outside=few,
    sizes=st.tuples(st.integers(9, 14), st.integers(9, 14)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_a_convolution_counts_every_tap(batch, groups, inside, outside, sizes, kernel, stride, dilation, pad) -> None:
    """Groups, strides, dilation and sides that differ, against a count of window positions."""
    image = struct(batch, groups * inside, *sizes)
    window = struct(groups * outside, inside, *kernel)

    def convolution(x, w):
        return lax.conv_general_dilated(x, w, stride, [pad, pad], rhs_dilation=dilation, feature_group_count=groups)

    traced = lowered(convolution, image, window)
    out = [taps(sizes[axis], kernel[axis], stride[axis], dilation[axis], pad) for axis in (0, 1)]
    macs = batch * math.prod(out) * groups * outside * inside * math.prod(kernel)
    assert traced.total.product_flops == 2 * macs
    elements = image.size + window.size + batch * groups * outside * math.prod(out)
    assert traced.total.bytes_moved == 4 * elements
    (op,) = traced.graph.nodes[0].forward
    if op.family in ("gemm", "bmm"):
        assert 2 * math.prod(op.shape.values()) == 2 * macs


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_convolution_cost_what_it_costs(stride: int) -> None:
    """Both gradients of a convolution have its MACs where padding and stride divide the image evenly."""
    image, window = struct(2, 8, 16, 16), struct(4, 8, 2, 2)

    def loss(x, w):
        return jnp.sum(lax.conv_general_dilated(x, w, (stride, stride), [(0, 2 - stride)] * 2))

    forward = lowered(loss, image, window).total.product_flops
    assert forward == 2 * 2 * (16 // stride) ** 2 * 4 * 8 * 4
    both = lowered(jax.grad(loss, argnums=(0, 1)), image, window).total.product_flops
    assert both == pytest.approx(2 * forward)  # the value itself is dead code


def test_a_square_convolution_is_of_its_family_and_a_pointwise_one_a_product() -> None:
    conv = functools.partial(lax.conv_general_dilated, window_strides=(2, 2), padding="SAME")
    (op,) = lowered(conv, struct(2, 3, 224, 224), struct(64, 3, 7, 7)).graph.nodes[0].forward
    assert op.family == "convolution"
    expected = {"batch": 2, "input_channels": 3, "output_channels": 64, "input_size": 224, "kernel_size": 7}
    assert op.shape == expected | {"stride": 2, "padding": 3}
    (op,) = lowered(conv, struct(2, 64, 56, 56), struct(128, 64, 1, 1)).graph.nodes[0].forward
    assert (op.family, op.shape) == ("gemm", {"batch": 1, "m": 2 * 28 * 28, "n": 128, "k": 64})


def test_a_depthwise_convolution_is_a_stream() -> None:
    conv = functools.partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", feature_group_count=32)
    traced = lowered(conv, struct(1, 32, 28, 28), struct(32, 1, 3, 3))
    (op,) = traced.graph.nodes[0].forward
    assert (op.family, op.shape["elements_in"], op.shape["elements_out"]) == ("elementwise", 32 * (784 + 9), 32 * 784)
    assert traced.total.product_flops == 2 * 32 * 784 * 9


def test_products_name_their_format() -> None:
    for dtype, name in ((jnp.bfloat16, "bf16"), (jnp.float16, "fp16"), (jnp.float8_e4m3fn, "fp8"), (jnp.int8, "int8")):
        matmul = functools.partial(lax.dot, preferred_element_type=jnp.float32)
        traced = lowered(matmul, struct(8, 16, dtype=dtype), struct(16, 8, dtype=dtype))
        (op,) = traced.graph.nodes[0].forward
        assert op.dtype == name
        assert traced.total.read == 2 * 128 * jnp.dtype(dtype).itemsize


@pytest.mark.parametrize(("precision", "dtype"), [(None, "tf32"), ("high", "tf32"), ("highest", "fp32")])
def test_fp32_products_are_tf32_unless_the_highest_precision_is_asked_for(precision: Any, dtype: str) -> None:
    """As `jax.lax.Precision` documents of GPUs; operands stay four bytes wide."""
    traced = lowered(functools.partial(lax.dot, precision=precision), struct(8, 16), struct(16, 8))
    assert traced.graph.nodes[0].forward[0].dtype == dtype
    assert traced.total.read == 4 * 2 * 128


def test_an_embedding_reads_its_rows_not_its_table() -> None:
    def embed(table, tokens):
        return table[tokens]

    traced = lowered(embed, struct(50_000, 64), struct(4, 8, dtype=jnp.int32))
    (node,) = [node for node in traced.graph.nodes if node.kind == "gather"]
    assert (node.forward[0].family, node.forward[0].shape["columns"]) == ("embedding", 64)
    assert traced.work[node.name].read == 32 * 64 * 4 + 32 * 4
    assert traced.work[node.name].written == 32 * 64 * 4


# --- chains -----------------------------------------------------------------------------------------------------------


def test_softmax_and_normalizations_are_recognized() -> None:
    x = struct(64, 128)
    assert families(lowered(jax.nn.softmax, x)) == {"softmax": 1}
    assert families(lowered(jax.nn.standardize, x)) == {"norm": 1}
    (op,) = lowered(jax.nn.softmax, x).graph.nodes[0].forward
    assert op.shape == {"rows": 64, "columns": 128}


def test_a_chain_reads_its_inputs_once_and_writes_what_is_read_outside() -> None:
    def chain(x, y):
        total = jnp.tanh(x + y) * x
        return total, jnp.exp(total).sum(0)

    fused, apart = (lowered(chain, struct(64, 32), struct(64, 32), fuse=fuse) for fuse in (True, False))
    assert len(fused.graph.nodes) == 1 and len(apart.graph.nodes) == 5
    assert fused.total.read == 4 * 2 * 64 * 32
    assert fused.total.written == 4 * (64 * 32 + 32)
    assert fused.total.flops == apart.total.flops
    assert apart.total.bytes_moved == 4 * (3 + 2 + 3 + 2) * 64 * 32 + 4 * (64 * 32 + 32)


def test_what_a_kernel_reads_in_another_order_costs_nothing_but_a_repetition_is_written() -> None:
    def read(x, w, repeat):
        y = x.transpose(1, 0)[:8]
        y = jnp.broadcast_to(y[None], (3, 8, 16)) if repeat else y
        return y @ w

    plain = lowered(functools.partial(read, repeat=False), struct(16, 32), struct(16, 4))
    assert [node.kind for node in plain.graph.nodes] == ["dot_general"]
    assert plain.total.read == 4 * (8 * 16 + 16 * 4)
    repeated = lowered(functools.partial(read, repeat=True), struct(16, 32), struct(16, 4))
    assert [node.kind for node in repeated.graph.nodes] == ["broadcast_in_dim", "dot_general"]
    assert repeated.total.written == 4 * (3 * 8 * 16 + 3 * 8 * 4)


def test_a_chain_never_waits_for_a_kernel_that_waits_for_it() -> None:
    """x feeds a product and, past it, what adds to the product: one chain would be its own input."""

    def crossing(x, w):
        y = jnp.tanh(x)
        return jnp.exp(y) + y @ w + jnp.sin(y)

    traced = lowered(crossing, struct(8, 8), struct(8, 8))
    kinds = [node.kind for node in traced.graph.nodes]
    assert kinds == ["tanh", "dot_general", "fused"]  # the sines sink to where they are added


def test_a_causal_mask_is_computed_where_it_is_read() -> None:
    """It depends on no data: neither written nor read. The mask of a ReLU is, a byte an element, for its gradient."""

    def masked(x):
        return jnp.where(jnp.tril(jnp.ones((64, 64), bool)), jnp.tanh(x @ x), 0.0)

    traced = lowered(masked, struct(64, 64))
    assert [node.kind for node in traced.graph.nodes] == ["dot_general", "fused"]
    assert traced.total.bytes_moved == 4 * (2 * 64 * 64 + 2 * 64 * 64)  # x is read once, though it is both operands

    def loss(w, x):
        return (jax.nn.relu(x @ w) @ w).sum()

    gradient = lowered(jax.grad(loss), struct(64, 64), struct(64, 64))
    (chain,) = [node for node in gradient.graph.nodes if node.output_bytes == (4 + 1) * 64 * 64]
    assert gradient.work[chain.name].read == 4 * 64 * 64


OPERATIONS = ("add", "tanh", "dot", "sum", "transpose", "slice")


@given(
    st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=25)
)
def test_any_program_lowers_to_a_graph_with_the_same_products_and_fewer_bytes(steps: Any) -> None:
    """Random programs: `Graph` refuses cycles, so that lowering is their proof."""

    def program(x):
        made = [x, x * 2.0]
        for word, first, second in steps:
            a, b = made[first % len(made)], made[second % len(made)]
            made.append(
                {
                    "add": lambda a=a, b=b: a + b,
                    "tanh": lambda a=a: jnp.tanh(a),
                    "dot": lambda a=a, b=b: a @ b,
                    "sum": lambda a=a: a - a.sum(1, keepdims=True),
                    "transpose": lambda a=a: a.T,
                    "slice": lambda a=a, b=b: jnp.concatenate([a[:3], b[3:]]),
                }[word]()
            )
        return made[-1] + 1.0

    fused, apart = (lowered(program, struct(8, 8), fuse=fuse) for fuse in (True, False))
    assert fused.total.product_flops == apart.total.product_flops
    assert fused.total.flops == apart.total.flops
    assert fused.total.bytes_moved <= apart.total.bytes_moved
    assert len(fused.graph.nodes) <= len(apart.graph.nodes)


def test_a_matrix_function_counts_as_xla_counts() -> None:
    """XLA's own cost analysis of the unoptimized program, for products, sums and elementwise arithmetic."""

    def function(x, w):
        y = jnp.maximum(x @ w, 0.0)
        return (y * y - y).sum(1)

    arguments = struct(32, 48), struct(48, 64)
    analysis = jax.jit(function).lower(*arguments).cost_analysis()
    if not analysis:
        pytest.skip("this backend analyzes no costs")
    assert lowered(function, *arguments).total.flops == pytest.approx(analysis["flops"], rel=0.02)


# --- control flow -----------------------------------------------------------------------------------------------------


@given(trips=st.integers(1, 6), width=st.integers(2, 6))
def test_a_scan_counts_as_its_unrolled_loop(trips: int, width: int) -> None:
    def scanned(x, weights):
        return lax.scan(lambda carry, w: (jnp.tanh(carry @ w), carry.sum()), x, weights)

    def unrolled(x, weights):
        sums = []
        for index in range(trips):
            sums.append(x.sum())
            x = jnp.tanh(x @ weights[index])
        return x, jnp.stack(sums)

    arguments = struct(3, width), struct(trips, width, width)
    first, second = lowered(scanned, *arguments), lowered(unrolled, *arguments)
    assert first.total.product_flops == second.total.product_flops == 2 * trips * 3 * width * width
    assert families(first)["gemm"] == trips
    (product,) = [node for node in first.graph.nodes if node.kind == "dot_general"]
    assert first.work[product.name].read == 4 * trips * (3 * width + width * width)


def test_what_a_loop_carries_is_not_dead_where_only_its_stacked_output_is_read() -> None:
    def accumulated(x, w):
        return lax.scan(lambda carry, _: (carry @ w, carry.sum()), x, None, length=5)[1]

    assert lowered(accumulated, struct(4, 4), struct(4, 4)).total.product_flops == 5 * 2 * 4**3


def test_loops_in_loops_multiply() -> None:
    def nested(x, w):
        return lax.fori_loop(0, 3, lambda _, a: lax.fori_loop(0, 4, lambda _, b: b @ w, a), x)

    assert lowered(nested, struct(8, 8), struct(8, 8)).total.product_flops == 12 * 2 * 8**3


def test_a_while_loop_is_counted_once_and_said() -> None:
    def search(x, w):
        return lax.while_loop(lambda c: c.sum() < 10.0, lambda c: c @ w, x)

    traced = lowered(search, struct(8, 8), struct(8, 8))
    assert traced.total.product_flops == 2 * 8**3
    assert len(traced.notes) == 1 and "unknown length, its body counted once" in traced.notes[0]


def test_a_cond_counts_its_costliest_branch_and_says_so() -> None:
    def choose(x):
        return lax.cond(x.sum() > 0.0, lambda a: a + 1.0, lambda a: a @ a @ a, x)

    traced = lowered(choose, struct(8, 8))
    assert traced.total.product_flops == 2 * 2 * 8**3
    assert "branch" in traced.notes[0] and "of 2, the costliest" in traced.notes[0]


def test_calls_are_entered_and_recomputation_is_counted() -> None:
    def block(w, x):
        return jnp.tanh(x @ w)

    def loss(w, x, wrap):
        return (wrap(block)(w, x) @ w).sum()

    arguments = struct(16, 16), struct(16, 16)
    plain = lowered(functools.partial(loss, wrap=lambda f: f), *arguments).total.product_flops
    assert lowered(functools.partial(loss, wrap=jax.jit), *arguments).total.product_flops == plain
    again = jax.grad(functools.partial(loss, wrap=jax.checkpoint))
    kept = jax.grad(functools.partial(loss, wrap=lambda f: f))
    difference = lowered(again, *arguments).total.product_flops - lowered(kept, *arguments).total.product_flops
    assert difference == 0.0 or difference == 2 * 16**3  # the forward product is dead code unless it is read


def test_collectives_are_named_not_timed() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("ranks",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("ranks")

    def summed(x):
        return lax.psum(jnp.tanh(x), "ranks")

    function = jax.shard_map(summed, mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec())
    traced = lowered(function, struct(8, 8))
    assert families(traced) == {"elementwise": 1, "none": 1}
    assert "collectives are named, not timed" in traced.notes[-1] and "psum" in traced.notes[-1]
    assert traced.total.read == 2 * 4 * 2 * 8  # each of the four ranks has two rows


def test_an_unknown_primitive_moves_its_bytes_and_is_named() -> None:
    traced = lowered(jnp.fft.fft, struct(16, 64, dtype=jnp.complex64))
    assert traced.graph.unknown == {"fft": 1}
    assert traced.total.bytes_moved == 2 * 16 * 64 * 8
    (op,) = traced.graph.nodes[0].forward
    assert op.shape == {"bytes_in": 16 * 64 * 8, "bytes_out": 16 * 64 * 8}


def test_dead_code_is_dropped() -> None:
    def wasteful(x):
        jnp.linalg.cholesky(x @ x)
        return x + 1.0

    traced = lowered(wasteful, struct(8, 8))
    assert [node.kind for node in traced.graph.nodes] == ["add"]


def test_arrays_a_function_closes_over_are_parameters() -> None:
    weight = np.ones((8, 4), np.float32)
    program = trace(lambda x: x @ weight, struct(2, 8))
    assert program.bytes_of(program.parameters) == weight.nbytes
    assert program.bytes_of(program.inputs) == 2 * 8 * 4


def test_gradients_of_everything_lower() -> None:
    """Softmax, pooling, gather, scan, cond and sorting under `grad`: no primitive is unknown but the sort."""

    def loss(table, tokens, w):
        x = jax.nn.softmax(table[tokens] @ w)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2), (1, 1, 2), "VALID")
        x = lax.scan(lambda c, row: (c + row.sum(), jnp.cumsum(row)), jnp.zeros((), x.dtype), x)[1]
        return jnp.sort(x.reshape(-1))[:3].sum()

    traced = lowered(jax.grad(loss, argnums=(0, 2)), struct(100, 16), struct(2, 5, dtype=jnp.int32), struct(16, 8))
    assert set(traced.graph.unknown) <= {"sort"}
    assert traced.total.product_flops == 3 * 2 * 10 * 16 * 8


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_function_that_fails_is_named_with_place_and_cause() -> None:
    def wrong(x, w):
        return x @ w

    with pytest.raises(InputError, match=r"wrong cannot be traced: TypeError: .*\(.*test_jaxpr_graph.py, line \d+\)"):
        trace(wrong, struct(2, 3), struct(4, 5))


def test_a_function_of_values_is_refused() -> None:
    with pytest.raises(InputError, match="branching cannot be traced: TracerBoolConversionError"):
        trace(lambda x: x if x.sum() > 0 else -x, struct(3), name="branching")


def test_a_program_without_a_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="same has no kernel"):
        lower(trace(lambda x: x.reshape(4), struct(2, 2), name="same"))
