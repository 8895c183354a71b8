"""A program run operation by operation gives what it gives compiled."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.core.numerics import ceil_div
from jaxperf.sweeps.once import OFTEN, evaluate_once, evaluate_over, host_first


class Tiled(NamedTuple):
    tiles: jax.Array
    busy: dict[str, jax.Array]


def test_one_by_one_is_as_compiled_and_traced_once() -> None:
    rates, traces = jnp.array([2.0, 3.0, 5.0]), []

    @jax.jit
    def fn(sizes: dict[str, jax.Array], row: jax.Array) -> Tiled:
        traces.append(1)
        tiles = jax.vmap(lambda rate: ceil_div(sizes["m"] + row, rate))(rates)
        level = jax.lax.fori_loop(0, 3, lambda _, value: value * 0.5, jnp.max(tiles))
        return Tiled(tiles, {"level": level, "rows": sizes["m"], "nothing": jnp.zeros(())})

    for m in (7.0, 64.0):
        given = {"m": jnp.asarray(m)}, jnp.arange(3.0)
        found, wanted = evaluate_once(fn, *given), fn(*given)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for ours, right in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_array_equal(ours, right)
    assert len(traces) == 1


def test_a_product_of_two_axes_is_each_of_its_points() -> None:
    traces = []

    @jax.jit
    def fn(level: dict[str, jax.Array], point: tuple[jax.Array, jax.Array], shift: jax.Array) -> dict[str, jax.Array]:
        traces.append(1)
        scaled = level["share"] * point[0]
        return {"own": point[1], "both": scaled * point[1] + shift, "level": level["share"] + shift, "none": shift}

    levels, points = {"share": jnp.array([0.5, 1.0])}, (jnp.arange(1.0, 4.0), jnp.arange(6.0).reshape(3, 2))
    found = evaluate_over(fn, levels, points, jnp.asarray(2.0), along=((0,), (1,), ()))
    assert {name: each.shape for name, each in found.items()} == {
        "own": (2, 3, 2),
        "both": (2, 3, 2),
        "level": (2, 3),
        "none": (2, 3),
    }
    assert len(traces) == 1
    for i in range(2):
        for j in range(3):
            wanted = fn({"share": levels["share"][i]}, (points[0][j], points[1][j]), jnp.asarray(2.0))
            for name, each in wanted.items():
                np.testing.assert_allclose(found[name][i, j], each, rtol=1e-15)


def test_what_is_called_often_or_traced_is_compiled() -> None:
    @jax.jit
    def fn(point: dict[str, jax.Array], factor: float) -> tuple[jax.Array, jax.Array]:
        return ceil_div(point["m"], point["n"]) * factor, point["m"] > 3.0

    point, call = {"m": jnp.asarray(7.0), "n": jnp.asarray(2.0)}, host_first(fn)
    for number in range(OFTEN + 2):
        found = call(point, 1.5)
        assert (float(found[0]), bool(found[1])) == (6.0, True) and all(isinstance(each, jax.Array) for each in found)
        assert fn._cache_size() == (number >= OFTEN)
    slope = jax.grad(lambda m: host_first(fn)({**point, "m": m}, 1.5)[0])(jnp.asarray(7.0))
    np.testing.assert_allclose(slope, 0.75)
