"""Many layouts at once: columns of layout fields in, columns of results out, block by block, one compile.

A block is small so that what passes between the fused loops stays in the cache of one core; cores take turns in them.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from hwspecs.errors import InputError, did_you_mean
from jaxperf.core.compiler_options import JOINTLY
from jaxperf.core.device import Device
from jaxperf.sweeps.once import evaluate_over
from jaxperf.training.efficiencies import TrainingEfficiencies
from jaxperf.training.layout import Layout
from jaxperf.training.model import TrainingModel
from jaxperf.training.step import training_step

BLOCK = 8192  # layouts; near the fastest of 512 ... 32768 in either precision, see docs/training.md
HOST_BLOCK = 2**16  # and on the host, where each operation of each block is a call of NumPy
METRICS = ("time", "unchecked_time", "memory.total", "mfu", "bubble_fraction", "energy", "reason")

Column = Shaped[np.ndarray, " rows"]


@functools.partial(jax.jit, static_argnames="metrics", compiler_options=JOINTLY)
def evaluate_block(
    model: TrainingModel,
    base: Layout,
    columns: Mapping[str, Shaped[Array, " block"]],
    device: Device,
    efficiencies: TrainingEfficiencies,
    metrics: tuple[str, ...],
) -> dict[str, Shaped[Array, " block"]]:
    """`training_step` of one block of layouts: `base` with the fields of `columns` replaced."""
    return jax.vmap(_point(metrics), (None, None, 0, None, None))(model, base, columns, device, efficiencies)


@functools.cache
def _point(metrics: tuple[str, ...]) -> Callable[..., dict[str, Array]]:
    """`metrics` of `training_step` for one layout."""

    def point(
        model: TrainingModel, base: Layout, fields: Mapping[str, Array], device: Device, rates: TrainingEfficiencies
    ) -> dict[str, Array]:
        step = training_step(model, dataclasses.replace(base, **fields), device, rates)
        return {name: operator.attrgetter(name)(step) for name in metrics}

    return jax.jit(point)


def few_layouts(
    model: TrainingModel,
    columns: Mapping[str, Column],
    device: Device,
    efficiencies: TrainingEfficiencies,
    *,
    base: Layout | None = None,
    metrics: Sequence[str] = METRICS,
) -> dict[str, Column]:
    """All results of `layout_blocks`, computed on the host (`jaxperf.sweeps.host`): nothing is compiled."""
    rows, point = _check(columns), _point(tuple(metrics))
    base = Layout() if base is None else base
    kinds = {name: jnp.asarray(getattr(base, name)).dtype for name in columns}
    along = ((), (), (0,), (), ())

    def one(start: int) -> dict[str, Column]:
        fields = {name: np.asarray(each[start : start + HOST_BLOCK], kinds[name]) for name, each in columns.items()}
        return evaluate_over(point, model, base, fields, device, efficiencies, along=along)

    blocks = [one(start) for start in range(0, rows, HOST_BLOCK)]
    return {name: np.concatenate([found[name] for found in blocks]) for name in metrics}


def layout_blocks(
    model: TrainingModel,
    columns: Mapping[str, Column],
    device: Device,
    efficiencies: TrainingEfficiencies,
    *,
    base: Layout | None = None,
    metrics: Sequence[str] = METRICS,
    block: int = BLOCK,
) -> Iterator[tuple[slice, dict[str, Column]]]:
    """Results of the rows of `columns`, block by block in their order.

    **Arguments:** `columns`: one array a varying field of `Layout`, all of one length; `base`: the other fields;
    `metrics`: dotted attributes of `TrainingStep`, such as "exposed.data"; `block`: rows at once.
    **Returns:** pairs of the rows and their metrics.
    **Raises:** `InputError` for an unknown field, columns of different lengths or no rows.
    """
    rows = _check(columns)
    base = Layout() if base is None else base
    kinds = {name: jnp.asarray(getattr(base, name)).dtype for name in columns}
    size = min(block, rows)

    def one(start: int) -> tuple[slice, dict[str, Column]]:
        here = slice(start, min(start + size, rows))
        fields = {name: _padded(np.asarray(each[here], kinds[name]), size) for name, each in columns.items()}
        found = evaluate_block(model, base, fields, device, efficiencies, tuple(metrics))
        return here, {name: np.asarray(values)[: here.stop - start] for name, values in found.items()}

    yield one(0)  # compiles, once
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            yield from pool.map(one, range(size, rows, size))
        finally:
            pool.shutdown(cancel_futures=True)


def evaluate_layouts(
    model: TrainingModel,
    columns: Mapping[str, Column],
    device: Device,
    efficiencies: TrainingEfficiencies,
    *,
    base: Layout | None = None,
    metrics: Sequence[str] = METRICS,
    block: int = BLOCK,
) -> dict[str, Column]:
    """All results of `layout_blocks`, joined: one array a metric, in the order of the rows."""
    options = {"base": base, "metrics": metrics, "block": block}
    blocks = [found for _, found in layout_blocks(model, columns, device, efficiencies, **options)]
    return {name: np.concatenate([found[name] for found in blocks]) for name in metrics}


def _padded(values: Column, size: int) -> Column:
    """The last row repeated up to a whole block, so that every block has one shape."""
    return np.pad(values, (0, size - len(values)), mode="edge")


def _check(columns: Mapping[str, Column]) -> int:
    """The number of rows."""
    allowed = [field.name for field in dataclasses.fields(Layout)]
    for name in columns:
        if name not in allowed:
            raise InputError(f"Layout has no field '{name}'.{did_you_mean(name, allowed)}")
    shapes = {name: np.shape(each) for name, each in columns.items()}
    if not shapes or (0,) in shapes.values():
        raise InputError("There are no layouts to evaluate: the columns are empty.")
    if len({*shapes.values()}) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise InputError(f"Columns of layouts must be one-dimensional and equally long; they are {shapes}.")
    return next(iter(shapes.values()))[0]
