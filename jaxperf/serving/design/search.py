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
from jaxperf.serving.design.sized import SIZES, Sizes
from jaxperf.serving.study import Assumed
from jaxperf.sweeps.once import evaluate_once, evaluate_over

# Along each free size, by how many are free; and the steps of a grid on either side of its best point that the next one
# covers: of the first grid, steps are 3 % of a sixteenfold range of two sizes, and a fifth of it of four.
POINTS = {0: 1, 1: 97, 2: 97, 3: 33, 4: 17}
AROUND = 3
FINEST = 1e-6  # of a logarithm: the steps of the last grid
# A grid of few steps may lead past the corner where several limits meet: grids near the best point are tried for as
# long as they have a better one.
AGAIN, NEAR = 8, 1.1
EQUAL = 1e-12  # relative, of costs
REACHED = 1e-3  # of a logarithm from a limit, or from the end of a range


class _Measured(NamedTuple):
    """What the measures are of, in the order of `measures_over`."""

    served: Served
    assumed: Assumed
    holds_all: bool


class Range(NamedTuple):
    """Of a size over that of the base [1]; equal ends where it is not free."""

    low: float
    high: float


@dataclass(frozen=True)
class Wanted:
    """What is minimised, a measure or a size, and measure -> limit of the others, in their units."""

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

    **Arguments:** `ranges`: of those of `SIZES` that are free; `holds_all`: see `sized`. The base can run.
    """
    measured = _Measured(served, assumed, holds_all)
    asked = tuple(ranges.get(name, Range(1.0, 1.0)) for name in SIZES)
    grid = _finest(measured, asked, asked, wanted)
    for _ in range(AGAIN):
        near = tuple(_near(each, ends) for each, ends in zip(grid.point.tolist(), asked, strict=True))
        other = _finest(measured, near, asked, wanted)
        gain = grid.measures[wanted.minimize] / other.measures[wanted.minimize] - 1.0
        if not other.held or (grid.held and gain <= FINEST):
            break
        grid = other
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


def measures_over(served: Served, assumed: Assumed, axes: Sequence[np.ndarray], holds_all: bool) -> Measures:
    """Measures of every combination of sizes over the base's, an axis for each of `SIZES`."""
    along = ((), (), *((index,) for index in range(len(axes))))
    return evaluate_over(_measured(holds_all), served, assumed, *axes, along=along)


@functools.cache  # so that it is traced once for all models of one structure
def _measured(holds_all: bool) -> Callable[..., Measures]:
    return jax.jit(lambda served, assumed, *sizes: judged(served, assumed, Sizes(*sizes), holds_all).measures)


class _Grid(NamedTuple):
    """The best `point` of a grid, its `measures`, whether the limits are `held` there, and the ranges `around` it."""

    point: np.ndarray
    measures: dict[str, float]
    held: bool
    around: tuple[Range, ...]


def _near(size: float, ends: Range) -> Range:
    return Range(max(ends.low, size / NEAR), min(ends.high, size * NEAR)) if ends.low < ends.high else ends


def _finest(measured: _Measured, within: Sequence[Range], asked: Sequence[Range], wanted: Wanted) -> _Grid:
    """The last of the grids that start with these ranges."""
    cores = float(measured.served.base.num_cores)
    grid = _grid(measured, within, asked, cores, wanted)
    while not _narrow(grid.around, cores):
        grid = _grid(measured, grid.around, asked, cores, wanted)
    return grid


def _grid(
    measured: _Measured, within: Sequence[Range], asked: Sequence[Range], base_cores: float, wanted: Wanted
) -> _Grid:
    points = POINTS[sum(each.low < each.high for each in asked)]
    axes = [grid_of(name, each, points, base_cores, own) for name, each, own in zip(SIZES, within, asked, strict=True)]
    found = measures_over(measured.served, measured.assumed, axes, measured.holds_all)
    excess = _excess(found, wanted.limits)
    at = _best(np.asarray(found[wanted.minimize]), excess)
    point = np.array([axis[index] for axis, index in zip(axes, at, strict=True)])
    around = tuple(_around(axis, index) for axis, index in zip(axes, at, strict=True))
    return _Grid(point, {name: float(value[at]) for name, value in found.items()}, bool(excess[at] <= 0.0), around)


def _narrow(around: Sequence[Range], base_cores: float) -> bool:
    """Whether the grid around which these are had every whole number of cores, and the finest steps of the rest."""
    cores, *others = around
    every = (cores.high - cores.low) * base_cores < 2 * AROUND + 0.5
    return every and all(np.log(each.high / each.low) <= 2 * AROUND * FINEST for each in others)


def grid_of(name: str, within: Range, points: int, base_cores: float, asked: Range | None = None) -> np.ndarray:
    """Steps along a size, over the base's; of cores whole numbers, within the range that was `asked` too: all of them
    where there are no more than `points`."""
    if within.low == within.high or name != SIZES[0]:
        return np.geomspace(*within, points) if within.low < within.high else np.array([within.low])
    low, high = (end * base_cores for end in within)
    steps = np.arange(round(low), round(high) + 1.0) if high - low < points else np.geomspace(low, high, points)
    counts = np.unique([float(round(each)) for each in steps.tolist()])
    ends = (end * base_cores for end in asked or within)
    kept = counts[(next(ends) <= counts) & (counts <= next(ends))]
    return (kept if kept.size else counts[:1]) / base_cores


def _excess(found: Measures, limits: Mapping[str, float]) -> np.ndarray:
    """By how much the limit that is nearest is exceeded [1], below 0 where all hold; infinite where it cannot run."""
    first = np.asarray(next(iter(found.values())))
    over = [np.log(np.asarray(found[name]) / limit) for name, limit in limits.items()]
    worst = np.max(over or [np.where(np.isnan(first), np.nan, 0.0)], axis=0)
    return np.where(np.isfinite(worst), worst, np.inf)


def _best(cost: np.ndarray, excess: np.ndarray) -> tuple[int, ...]:
    """The point that holds the limits at the least cost, of equal ones the farthest from the limits, else the one that
    exceeds them least."""
    held = excess <= 0.0
    if held.any():
        excess = np.where(held & (cost <= np.min(cost[held]) * (1.0 + EQUAL)), excess, np.inf)
    return tuple(int(index) for index in np.unravel_index(np.argmin(excess), excess.shape))


def _around(axis: np.ndarray, at: int) -> Range:
    return Range(float(axis[max(at - AROUND, 0)]), float(axis[min(at + AROUND, len(axis) - 1)]))


def _slopes(measured: _Measured, point: np.ndarray) -> dict[str, np.ndarray]:
    """d log of each measure by d log of each size, straight through the stairs of `ceil_div`."""
    served, assumed, holds_all = measured
    measures_at = _measured(holds_all)

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
