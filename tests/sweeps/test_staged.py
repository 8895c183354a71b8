"""Stages: every value over exactly the axes it depends on, and bit for bit what the point function gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxperf.sweeps import Sweep, axis
from jaxperf.sweeps.program import dependencies, flatten
from jaxperf.sweeps.staged import closed_to_fusion, evaluate, hidden_ones, make_stages

pytestmark = pytest.mark.usefixtures("ways")


@jax.jit
def shared(x: jax.Array) -> jax.Array:
    return jnp.sin(x) * 2.0


def formula(a: jax.Array, b: jax.Array, c: jax.Array) -> dict[str, jax.Array]:
    only_a = shared(a) + shared(a)
    both = only_a * b + jnp.where(b > 1.0, b, only_a)
    return {"x": both + c, "only_a": only_a, "fixed": jnp.asarray(3.0)}


def program_of(fn, count: int):
    return flatten(jax.make_jaxpr(lambda *x: list(fn(*x).values()))(*(jnp.ones(()) for _ in range(count))))


def test_nested_calls_are_inlined_and_repeats_are_computed_once() -> None:
    names = [equation.primitive.name for equation in program_of(formula, 3).equations]
    assert names.count("sin") == 1
    assert not {"pjit", "jit"} & set(names)


def test_equations_nobody_needs_are_dropped() -> None:
    def wasteful(a: jax.Array, b: jax.Array) -> dict[str, jax.Array]:
        jnp.exp(b)
        return {"x": a + 1.0}

    program = program_of(wasteful, 2)
    assert [equation.primitive.name for equation in program.equations] == ["add"]


@pytest.mark.parametrize(
    ("fn", "plain"),
    [
        (formula, True),
        (lambda a, b, c: {"x": jax.lax.fori_loop(0, 3, lambda _, x: x * b, a + c)}, False),
        (lambda a, b, c: {"x": jnp.polyval(jnp.ones(5), a) * b + c}, True),
        (lambda a, b, c: {"x": jax.lax.cond(a > b, lambda: b, lambda: c)}, False),
        (lambda a, b, c: {"x": jnp.zeros(3).at[1].set(a) * b + c}, False),
        (lambda a, b, c: {"x": jax.lax.dynamic_update_slice(jnp.zeros(3), b[None], (1,)) + a * c}, False),
        (lambda a, b, c: {"x": jnp.stack([a, b, c])[jnp.argmax(a)]}, True),
    ],
)
def test_a_plain_program_has_no_loop_and_writes_into_no_array(fn, plain: bool) -> None:
    assert program_of(fn, 3).plain is plain


def test_each_stage_has_the_axes_its_equations_depend_on() -> None:
    program = program_of(formula, 3)
    depends = dependencies(program, [frozenset({0}), frozenset({1}), frozenset({2})])
    found = make_stages(program, depends)
    stages = {stage.axes: [equation.primitive.name for equation in stage.equations] for stage in found}
    assert "sin" in stages[0,]
    assert stages[0, 1, 2] == ["add"]
    assert sum(len(equations) for equations in stages.values()) == len(program.equations)


def test_what_is_over_some_of_the_axes_is_closed_and_a_scalar_left_to_the_compiler() -> None:
    def product(a: jax.Array, b: jax.Array, c: jax.Array) -> dict[str, jax.Array]:
        return {"z": (a + 1.0) * (b + 1.0) * c}

    def divisions(axes: list[frozenset[int]]) -> int:
        inputs = [jnp.ones([2] * len(each)) for each in axes]
        ones = hidden_ones(str(jnp.result_type(float)))
        program = program_of(product, 3)
        shape = {axis: 2 for axis in frozenset().union(*axes)}
        traced = jax.make_jaxpr(lambda *values: evaluate(program, values, axes, shape, ones))(*inputs)
        return str(traced).count(" div ")

    nothing, first, second = frozenset(), frozenset({0}), frozenset({1})
    assert divisions([nothing, nothing, first]) == 0
    assert divisions([nothing, first, second]) == 1  # (a + 1) (b + 1), over the first axis only


def test_closing_to_fusion_changes_no_bit() -> None:
    dtype = str(jnp.result_type(float))
    values = jnp.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 1e30], dtype)
    closed = jax.jit(closed_to_fusion)(values, hidden_ones(dtype))
    assert np.asarray(closed).tobytes() == np.asarray(values).tobytes()


def test_closing_to_fusion_keeps_booleans_and_integers() -> None:
    for values in (jnp.array([True, False]), jnp.array([-3, 0, 7], jnp.int32)):
        closed = closed_to_fusion(values, hidden_ones(str(jnp.result_type(float))))
        assert closed.dtype == values.dtype
        assert (closed == values).all()


def test_the_grid_equals_the_point_function() -> None:
    a, b, c = [0.5, 1.0, 2.0], [1.0, 4.0], [0.0, 1.0, 2.0, 3.0]
    results = Sweep(formula, [axis("a", a), axis("b", b), axis("c", c)]).dense()
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            for k, z in enumerate(c):
                point = formula(jnp.asarray(x), jnp.asarray(y), jnp.asarray(z))
                for name, value in point.items():
                    np.testing.assert_allclose(results[name][i, j, k], value, rtol=4 * jnp.finfo(value.dtype).eps)


def test_a_leaf_that_is_the_same_everywhere_costs_no_axis() -> None:
    labels = {"row": [0, 1, 2]}
    uniform = axis("u", {"same": jnp.ones(3), "differs": jnp.arange(3.0)}, labels)
    sweep = Sweep(lambda u, x: {"y": u["same"] * x + u["differs"]}, [uniform, axis("x", [1.0, 2.0])])
    np.testing.assert_array_equal(sweep.dense()["y"], [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]])


@pytest.mark.parametrize("points_per_block", [1, 2, 5, 6, 12, 24, 100])
def test_blocks_of_any_size_give_the_same_bits(points_per_block: int) -> None:
    axes = [axis("a", [0.5, 1.0, 2.0]), axis("b", [1.0, 4.0, 9.0, 16.0]), axis("c", [0.0, 1.0])]
    whole = Sweep(formula, axes, points_per_block=1000).dense()
    cut = Sweep(formula, axes, points_per_block=points_per_block)
    for _ in range(2):  # a second run writes over the results of the first, the constant one's too
        for name, values in cut.dense().metrics.items():
            np.testing.assert_array_equal(values, whole[name])


def test_results_of_an_earlier_block_stay_while_they_are_held() -> None:
    sweep = Sweep(lambda x: {"y": x * 2.0}, [axis("x", range(40))], points_per_block=4)
    held = [result.metrics["y"] for result in sweep.blocks()]
    np.testing.assert_array_equal(np.concatenate(held), np.arange(40) * 2.0)
    np.testing.assert_array_equal(sweep.dense()["y"], np.arange(40) * 2.0)
