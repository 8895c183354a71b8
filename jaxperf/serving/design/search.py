"""The sizes of least cost that hold the limits, and what another percent of each size or limit would change.

Times are staircases in the number of cores, so that the sizes are searched on grids, each finer around the best point
of the one before, whole numbers of cores throughout; slopes at the best point are derivatives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxperf.serving.design.measures import Measures, Served, judged
from jaxperf.serving.design.sized import Sizes
from jaxperf.serving.study import Assumed
from jaxperf.sweeps.once import evaluate_once, evaluate_over

SIZES = ("num_cores", "memory_bandwidth")  # facts of a device behind `Sizes`, in its order
POINTS, ROUNDS = 97, 5  # along each size, and grids: steps of 3 % of a sixteenfold range first, of 1e-6 at last
AROUND = 4  # steps of a grid on either side of its best point that the next one covers
REACHED = 1e-3  # of a logarithm from a limit, or from the end of a range


Measured = tuple[Callable[..., Measures], Served, Assumed]  # measures at sizes, and what they are of


class Range(NamedTuple):
    """Of a size over that of the base [1]; equal ends where it is not free."""

    low: float
    high: float


@dataclass(frozen=True)
class Wanted:
    """What is minimised, and measure -> limit of the others, in their units."""

    minimize: str
    limits: Mapping[str, float]


@dataclass(frozen=True)
class Best:
    """`sizes` over the base's; `held`: whether the limits hold there, else they are exceeded least; `measures`;
    `slopes`: measure -> size -> by how many percent a percent more of the size changes it; `prices`: limit -> by how
    many percent the cost falls for a percent more of it; `edges`: sizes at an end of their range."""

    sizes: Mapping[str, float]
    held: bool
    measures: Mapping[str, float]
    slopes: Mapping[str, Mapping[str, float]]
    prices: Mapping[str, float]
    edges: tuple[str, ...]


def search(
    served: Served, assumed: Assumed, wanted: Wanted, ranges: Mapping[str, Range], holds_all: bool = False
) -> Best:
    """The best design of whole cores.

    **Arguments:** `ranges`: of each of `SIZES`; `holds_all`: see `sized`. The base can run.
    """
    measured = _measured(holds_all), served, assumed
    asked = tuple(ranges[name] for name in SIZES)
    grid = _grid(measured, asked, asked, float(served.base.num_cores), wanted)
    for _ in range(ROUNDS - 1):
        grid = _grid(measured, grid.around, asked, float(served.base.num_cores), wanted)
    point, measures = grid.point, grid.measures
    slopes = _slopes(measured, point)
    free = np.array([each.low < each.high for each in asked])
    inside = free & (np.abs(np.log(point)[:, None] - np.log(np.array(asked))) > REACHED).all(axis=1)
    reached = [name for name, limit in wanted.limits.items() if abs(np.log(measures[name] / limit)) < REACHED]
    return Best(
        dict(zip(SIZES, point.tolist(), strict=True)),
        grid.held,
        measures,
        {name: dict(zip(SIZES, each.tolist(), strict=True)) for name, each in slopes.items()},
        _prices(slopes, wanted.minimize, reached, inside),
        tuple(name for name, is_free, is_inside in zip(SIZES, free, inside, strict=True) if is_free and not is_inside),
    )


@functools.cache  # so that it is traced once for all models of one structure
def _measured(holds_all: bool) -> Callable[..., Measures]:
    return jax.jit(lambda served, assumed, *sizes: judged(served, assumed, Sizes(*sizes), holds_all).measures)


class _Grid(NamedTuple):
    """The best `point` of a grid, its `measures`, whether the limits are `held` there, and the ranges `around` it."""

    point: np.ndarray
    measures: dict[str, float]
    held: bool
    around: tuple[Range, ...]


def _grid(
    measured: Measured, within: Sequence[Range], asked: Sequence[Range], base_cores: float, wanted: Wanted
) -> _Grid:
    axes = _whole(_steps(within[0]), base_cores, asked[0]), _steps(within[1])
    found = evaluate_over(*measured, *axes, along=((), (), (0,), (1,)))
    excess = _excess(found, wanted.limits)
    at = _best(found[wanted.minimize], excess)
    point = np.array([axis[index] for axis, index in zip(axes, at, strict=True)])
    around = tuple(_around(axis, index) for axis, index in zip(axes, at, strict=True))
    return _Grid(point, {name: float(value[at]) for name, value in found.items()}, bool(excess[at] <= 0.0), around)


def _steps(within: Range) -> np.ndarray:
    return np.array([within.low]) if within.low == within.high else np.geomspace(*within, POINTS)


def _whole(sizes: np.ndarray, cores: float, asked: Range) -> np.ndarray:
    """Whole numbers of cores near those sizes and within the range asked for, over the base's; those of a range without
    one, and a size that is not free, stay."""
    if asked.low == asked.high:
        return sizes
    counts = np.unique([float(round(each)) for each in (sizes * cores).tolist()])
    kept = counts[(asked.low * cores <= counts) & (counts <= asked.high * cores)]
    return (kept if kept.size else counts[:1]) / cores


def _excess(found: Measures, limits: Mapping[str, float]) -> np.ndarray:
    """By how much the limit that is exceeded most is [1], 0 where all hold; infinite where it cannot run."""
    first = np.asarray(next(iter(found.values())))
    over = [np.maximum(np.log(np.asarray(found[name]) / limit), 0.0) for name, limit in limits.items()]
    worst = np.max([np.zeros(first.shape), *over], axis=0)
    return np.where(np.isfinite(worst), worst, np.inf)


def _best(cost: np.ndarray, excess: np.ndarray) -> tuple[int, ...]:
    """The point that holds the limits at the least cost, else the one that exceeds them least."""
    held = excess <= 0.0
    order = np.where(held, cost, np.inf) if held.any() else excess
    return tuple(int(index) for index in np.unravel_index(np.argmin(order), order.shape))


def _around(axis: np.ndarray, at: int) -> Range:
    return Range(float(axis[max(at - AROUND, 0)]), float(axis[min(at + AROUND, len(axis) - 1)]))


def _slopes(measured: Measured, point: np.ndarray) -> dict[str, np.ndarray]:
    """d log of each measure by d log of each size, straight through the stairs of `ceil_div`."""
    measures_at, served, assumed = measured

    def logs(at: jax.Array) -> Measures:
        return {name: jnp.log(value) for name, value in measures_at(served, assumed, *jnp.exp(at)).items()}

    found = evaluate_once(jax.jit(jax.jacfwd(logs)), jnp.log(point))
    return {name: np.asarray(value) for name, value in found.items()}


def _prices(
    slopes: Mapping[str, np.ndarray], minimized: str, reached: Sequence[str], inside: np.ndarray
) -> dict[str, float]:
    """Multipliers of the limits that are reached: -grad cost = sum of price x grad limit over the sizes inside their
    ranges (Karush, Kuhn and Tucker), by least squares; none where no size can move."""
    if not reached or not inside.any():
        return {}
    limits = np.stack([slopes[name][inside] for name in reached], axis=-1)
    prices, *_ = np.linalg.lstsq(limits, -slopes[minimized][inside], rcond=None)
    return dict(zip(reached, np.maximum(prices, 0.0).tolist(), strict=True))
