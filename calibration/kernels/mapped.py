"""A function of one kernel over the chunks of a table (`calibration.datasets.groups`): blocks of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxperf.sweeps.once import evaluate_over

WHOLE, BLOCK, ROW = (), (0,), (0, 1)  # the axes of what a chunk shares, what a block shares, and rows


def on_host(point: Callable[..., Any], along: Sequence[tuple[int, ...]]) -> Callable[..., Any]:
    """`point` of chunks of any size, traced once and never compiled; `along`: the axes of each argument."""
    return functools.partial(evaluate_over, jax.jit(point), along=along)


def compiled(
    point: Callable[..., Any], along: Sequence[tuple[int, ...]], options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """`point` of chunks, compiled for each size of them with these options."""
    rows = jax.vmap(point, in_axes=tuple(0 if axes == ROW else None for axes in along))
    blocks = jax.vmap(rows, in_axes=tuple(None if axes == WHOLE else 0 for axes in along))
    return jax.jit(blocks, compiler_options=None if options is None else dict(options))
