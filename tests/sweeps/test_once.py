"""A program run operation by operation gives what it gives compiled."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.core.numerics import ceil_div
from jaxperf.sweeps.once import evaluate_once


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
