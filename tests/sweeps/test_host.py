"""What NumPy makes of a traced program is what JAX makes of it, over any axes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxperf.core.numerics import ceil_div, next_power_of_two
from jaxperf.sweeps.host import evaluate_on_host
from jaxperf.sweeps.host_rules import RULES, SAME
from jaxperf.sweeps.once import evaluate_over
from jaxperf.sweeps.program import flatten

A = np.array([0.5, 3.0, -2.0, 7.25])
B = np.array([2.0, -1.5, 4.0])
TABLE = jnp.arange(12.0).reshape(3, 4)
Point = Callable[[jax.Array, jax.Array, jax.Array], object]


def _row(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """Three numbers of a point."""
    return jnp.stack([a, b, c])


POINTS: dict[str, Point] = {
    "arithmetic": lambda a, b, c: {"x": (a + b) * c - a / b, "y": -abs(a), "z": jnp.sign(b) * jnp.sqrt(abs(c))},
    "powers": lambda a, b, c: (abs(a) ** b, jnp.exp(a), jnp.exp2(b), jnp.expm1(a), jnp.log(c), jnp.log1p(c), c**3),
    "functions": lambda a, b, c: (jnp.tanh(a), jax.nn.sigmoid(b), jnp.sin(c), jnp.cos(a), jnp.square(b)),
    "rounding": lambda a, b, c: (jnp.floor(a), jnp.ceil(b), ceil_div(abs(a), c), next_power_of_two(c)),  # noqa: E501
    "choices": lambda a, b, c: (
        jnp.where(a > b, a, c),
        jnp.where((a <= b) & ~(b == c) | (a != c), jnp.isfinite(a / b), a >= c),
        lax.select_n(jnp.clip(a, 0.0, 2.0).astype(int), a, b, c),
        jnp.minimum(a, jnp.maximum(b, c)),
    ),
    "a number beside arrays": lambda a, b, c: (
        lax.div(_row(a, b, c), lax.broadcast(a, (3,))),
        (a + b) * _row(a, b, c) / b - c,
        (c ** jnp.arange(1.0, 3.0), jnp.arange(1.0, 3.0) ** b > a),
    ),
    "an array's choice": lambda a, b, c: lax.select_n(a > b, _row(a, b, c), _row(c, b, a)),
    "whole numbers": lambda a, b, c: (
        a.astype(jnp.int32) // 2,
        (a.astype(jnp.int32) - 3) >> 1,
        lax.div(a.astype(int), -2),
        (b * 1e12).astype(jnp.int32),
        (1 << c.astype(int)) ^ 5,
    ),
    "no whole number": lambda a, b, c: (
        (a / 0.0).astype(int),
        (0.0 * a / 0.0).astype(jnp.int32),
        (-b / 0.0).astype(int),
    ),
    "sums": lambda a, b, c: (_row(a, b, c).sum(), _row(a, b, a).max(), _row(b, b, c).min(), _row(a, c, c).prod()),
    "some and all": lambda a, b, c: (jnp.any(_row(a, b, c) > 3.0), jnp.all(_row(a, b, c) > 0.0)),
    "along": lambda a, b, c: (
        jnp.cumsum(_row(a, b, c)),
        jnp.cumprod(_row(c, b, a)),
        lax.cummax(_row(a, b, c)),
        lax.cummin(_row(c, a, b)),
    ),
    "backwards along": lambda a, b, c: lax.cumsum(_row(a, b, c), reverse=True),
    "shapes": lambda a, b, c: (
        jnp.outer(_row(a, b, c), jnp.arange(2.0)).T[1:, ::2],
        jnp.concatenate([_row(a, b, c)[::-1], c[None]]).reshape(2, 2),
        jnp.broadcast_to(a, (2, 3)) + TABLE[:2, :3],
    ),
    "a table's row": lambda a, b, c: TABLE[a.astype(int), b.astype(int)] + c,
    "a slice": lambda a, b, c: lax.dynamic_slice(TABLE * c, (a.astype(int), b.astype(int)), (2, 2)),
    "a part of a row": lambda a, b, c: lax.dynamic_slice(_row(a, b, c), (a.astype(int),), (2,)),
    "rounded": lambda a, b, c: (jnp.round(a * 2.0), lax.round(b), jnp.argmax(_row(a, b, c))),
    "a known number of turns": lambda a, b, c: lax.scan(lambda x, row: (x * b + row, x + c), a, TABLE[0]),
    "backwards": lambda a, b, c: lax.scan(lambda x, row: (x * b + row, row * TABLE[1]), a, TABLE[0], reverse=True),
    "until it is done": lambda a, b, c: lax.while_loop(lambda x: x < 10.0, lambda x: 2.0 * x + abs(c) + 1.0, a),
    "a loop": lambda a, b, c: lax.fori_loop(0, 3, lambda i, x: x * b + i, a),
    "a branch": lambda a, b, c: lax.cond(a > b, lambda x: x + 1.0, lambda x: x * 2.0, c),
    "a polynomial": lambda a, b, c: jnp.polyval(TABLE[0], a) + b,
    "a constant": lambda a, b, c: (jnp.asarray(2.5), a, jnp.zeros(3)),
    "a product": lambda a, b, c: (
        TABLE @ jnp.stack([a, b, c, a]),
        _row(a, b, c) @ TABLE,
        _row(a, b, c) @ _row(c, b, a),
    ),
}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("along", [((0,), (1,), ()), ((1,), (0,), ()), ((), (), (0,)), ((1,), (0,), (0,))])
def test_a_grid_is_what_jax_makes_of_each_point(name: str, along: tuple[tuple[int, ...], ...]) -> None:
    fn = jax.jit(POINTS[name])
    given = [jnp.asarray(values if axes else 2.0) for values, axes in zip((A, B, B), along, strict=True)]
    found = evaluate_over(fn, *given, along=along)
    call = fn
    for axis in sorted({axis for axes in along for axis in axes}, reverse=True):
        call = jax.vmap(call, in_axes=tuple(0 if axis in axes else None for axes in along))
    right = call(*given)
    assert jax.tree.structure(found) == jax.tree.structure(right)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-15 if name != "powers" else 1e-14)


def test_every_rule_is_tried() -> None:
    tried = set()
    for point in POINTS.values():
        program = flatten(jax.make_jaxpr(point)(1.0, 2.0, 3.0))
        tried |= {equation.primitive.name for equation in program.equations}
    assert set(SAME) | set(RULES) <= tried | {"and", "stop_gradient"}


def test_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    program = flatten(jax.make_jaxpr(lambda x: jnp.where(x > 2.0, x**1.5, jnp.log(x)))(1.0))
    monkeypatch.setattr(jax, "vmap", None)
    assert evaluate_on_host(program, [np.asarray(4.0)])[0] == 8.0


def test_values_are_let_go_of_after_their_last_use() -> None:
    program = flatten(jax.make_jaxpr(lambda x: (x, (x + 1.0) * (x + 1.0) - x))(1.0))
    kept = {one for one in program.outputs if isinstance(one, int)}
    gone = [number for done in program.last_uses for number in done]
    assert len(gone) == len(set(gone)) and not kept & set(gone)
    made = set(range(program.inputs)) | {number for equation in program.equations for number in equation.results}
    assert kept | set(gone) == made
