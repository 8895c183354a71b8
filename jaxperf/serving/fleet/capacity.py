"""The largest rate of arrival that meets an SLO: a bisection with several rates a round, of all lanes at once.

The same requests come faster or slower: only the times between them change. Every round is one call of a program that
is compiled once. The rates span everything from requests that are served alone to all of them at once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float64

from hwspecs.errors import InputError
from jaxperf.serving.fleet.run import simulate_whole
from jaxperf.serving.fleet.slo import Slo, meets
from jaxperf.serving.fleet.state import Load, Pool
from jaxperf.serving.simulator.metrics import Columns
from jaxperf.serving.simulator.state import Requests, Totals
from jaxperf.serving.simulator.trace import Trace
from jaxperf.serving.workloads.drawn import Stage, through_stage

SLOWEST, FASTEST = 1e-3, 1e6  # requests/s: each served alone, and all at once
RATES, PRECISION = 4, 0.02
KEPT_UP = 0.9  # of the rate at which requests come, completed at least
ENDS = 10  # one of so many requests is left out of that at either end, while the system fills and empties
FINEST, COARSEST = 1e-9, 1.0  # precision: finer, and two rates may have none between them
BY_SLO, BY_COMPLETIONS = "slo", "completions"  # why a rate fails

Simulate = Callable[[Float64[np.ndarray, "L K"]], Columns]


@dataclass(frozen=True)
class Capacity:
    """For each configuration L the largest rate that `meets` the SLO and the smallest above it that `fails` [1/s].

    A rate meets it if requests are completed as fast as they come, too (`keeps_up`). `limited_by`: why `fails` does,
    `BY_SLO` or else `BY_COMPLETIONS`; empty where it is infinite.

    `meets` is 0 where the SLO fails even for requests that are served alone; `fails` is infinite where it holds even
    when all come at once. `monotone`: no rate above `fails` was seen to meet it again; where that is false, `meets` is
    the end of the lowest interval of rates that do. `e2e`: mean latency at `meets` [s], NaN where none does: where all
    requests come within a few of these, the rate is that of a burst, not one that lasts. `beyond`: the share of the
    steps at `meets` that the table of step times did not reach [1]. `rounds`: calls of the simulator.
    """

    meets: np.ndarray
    fails: np.ndarray
    limited_by: np.ndarray
    monotone: np.ndarray
    e2e: np.ndarray
    tokens_per_second: np.ndarray
    beyond: np.ndarray
    rounds: int


def capacity(
    simulate: Simulate, slo: Slo, configurations: int, rates: int = RATES, precision: float = PRECISION
) -> Capacity:
    """Bracket the capacity of each configuration until `fails` is at most 1 + `precision` times `meets`.

    **Arguments:** `simulate`: from rates [L, K] to requests as `slo.meets` takes them, arrays [L, K, R], and perhaps
    `beyond` [L, K]; `rates`: K.
    **Raises:** `InputError` for fewer than two rates, with which the ends cannot be tried, and as `check_precision`.
    """
    check_precision(precision)
    if rates < 2:
        raise InputError(f"{rates} rates a round cannot try both ends; there must be 2 at least.")
    met_at, fails = np.zeros(configurations), np.full(configurations, np.inf)
    highest, e2e = np.zeros(configurations), np.full(configurations, np.nan)
    tokens, limited_by = np.full(configurations, np.nan), np.full(configurations, "", object)
    beyond = np.zeros(configurations)
    alone = None
    tried, rounds = np.tile(np.geomspace(SLOWEST, FASTEST, rates), (configurations, 1)), 0
    while True:
        columns, rounds = simulate(tried), rounds + 1
        alone = latencies(columns)[:, :1] if alone is None else alone  # the first rate is `SLOWEST`
        kept = meets(columns, slo)
        met = kept & keeps_up(columns, alone)
        highest = np.maximum(highest, np.where(met, tried, 0.0).max(axis=1))
        failing = np.where(met, np.inf, tried)
        lower = failing.min(axis=1) < fails
        worst = lower, failing.argmin(axis=1)[lower]
        fails[lower] = failing[worst]
        limited_by[lower] = np.where(kept[worst], BY_COMPLETIONS, BY_SLO)
        below = np.where(met & (tried < fails[:, None]), tried, 0.0)
        better = below.max(axis=1) > met_at
        best = better, below.argmax(axis=1)[better]
        e2e[better], tokens[better] = _mean_e2e(columns)[best], _tokens_per_second(columns)[best]
        beyond[better] = columns.get("beyond", np.zeros(tried.shape))[best]
        met_at = np.where(better, below.max(axis=1), met_at)
        wide = (met_at > 0.0) & np.isfinite(fails) & (fails > met_at * (1.0 + precision))
        if not wide.any():
            return Capacity(met_at, fails, limited_by, highest <= met_at, e2e, tokens, beyond, rounds)
        low, high = (np.where(wide, end, SLOWEST) for end in (met_at, fails))
        tried = np.geomspace(low, high, rates + 2, axis=1)[:, 1:-1]


def check_precision(precision: float) -> None:
    """Raises `InputError` for a precision that is out of range."""
    if not FINEST <= precision <= COARSEST:
        raise InputError(f"precision is {precision:g}; it must be a number from {FINEST:g} to {COARSEST:g}.")


def keeps_up(columns: Columns, alone: np.ndarray) -> np.ndarray:
    """Whether requests are completed at `KEPT_UP` of the rate at which they come, without those at both ends [L, K].

    A trace is finite: one that comes faster than it is served may be over before its queue costs too many their limits.

    **Arguments:** `alone` as of `middle_spans`.
    """
    came, went = middle_spans(columns, alone)
    return KEPT_UP * went <= came


def middle_spans(columns: Columns, alone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The time in which the completed requests came, and in which they were completed, without both ends [L, K] s.

    **Arguments:** `alone`: what each request takes when it is served alone [L, K, R] s, which is not waiting and comes
    off its completion: else a few long outputs at the end of a short trace look like a queue.
    """
    done = _completed(columns)
    number = done.sum(axis=-1)
    first = number // ENDS
    last = np.maximum(number - 1 - first, 0)

    def span(times: np.ndarray) -> np.ndarray:
        ordered = np.sort(np.where(done, times, np.inf), axis=-1)
        begin, end = (np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0] for place in (first, last))
        return np.where(number > 0, end, 0.0) - np.where(number > 0, begin, 0.0)

    return span(_asked(columns)), span(columns["completed"] - alone)


def _tokens_per_second(columns: Columns) -> np.ndarray:
    """Output tokens over the time from the first arrival to the last completion [L, K] 1/s; of none it is NaN."""
    real, done = columns["real"], _completed(columns)
    first = np.where(real, columns["arrived"], np.inf).min(axis=-1)
    last = np.where(done, columns["completed"], -np.inf).max(axis=-1)
    return np.where(done, columns["output"], 0.0).sum(axis=-1) / np.where(last > first, last - first, np.nan)


def _mean_e2e(columns: Columns) -> np.ndarray:
    """Mean latency of the completed requests [L, K] s; of none it is zero."""
    return latencies(columns).sum(axis=-1) / np.maximum(_completed(columns).sum(axis=-1), 1)


def latencies(columns: Columns) -> np.ndarray:
    """From when each request is asked to its completion [L, K, R] s, 0 where there is none."""
    return np.where(_completed(columns), columns["completed"] - _asked(columns), 0.0)


def _asked(columns: Columns) -> np.ndarray:
    return columns.get("asked", columns["arrived"])


def _completed(columns: Columns) -> np.ndarray:
    return columns["real"] & (columns["completed"] >= 0.0)


def fleet_capacity(
    pool: Pool,
    load: Load,
    slo: Slo,
    rates: int = RATES,
    precision: float = PRECISION,
    stages: Sequence[Stage] = (),
) -> Capacity:
    """The capacity of each lane of a pool, for its load; times of follow-ups stay as they are.

    **Arguments:** `stages`: what requests go through first; those of the load are then in the order in which they are
    asked, and arrive when they are asked.
    **Raises:** `InputError` as `unit_arrivals` and `capacity` do.
    """
    units = unit_arrivals(load.requests)

    def simulate(tried: Float64[np.ndarray, "L K"]) -> Columns:
        lanes, order, asked = after_stages(at_rates(load, units, tried), stages)
        found = simulate_whole(with_lanes(pool, rates), lanes)
        columns = columns_of(found.requests, lanes.requests, tried.shape, order, asked)
        return {**columns, "beyond": share_beyond([found.replicas.totals], tried.shape)}

    return capacity(simulate, slo, units.shape[0], rates, precision)


def unit_arrivals(requests: Trace) -> Float64[Array, "L R"]:
    """The times of arrival of each lane, counted from the first, at one request a second in the mean.

    **Raises:** `InputError` where all requests of a lane arrive at once: such a burst has no rate.
    """
    arrived, count = np.asarray(requests.arrived), np.asarray(requests.count)
    span = np.take_along_axis(arrived, count[:, None] - 1, axis=1) - arrived[:, :1]
    if not (span > 0.0).all():
        raise InputError("all requests arrive at once; a rate needs requests that arrive one after another.")
    return jnp.asarray((arrived - arrived[:, :1]) / span * (count[:, None] - 1))


def at_rates(load: Load, units: Float64[Array, "L R"], rates: Float64[np.ndarray, "L K"]) -> Load:
    """The load of every lane at each of its rates, as lanes L x K."""
    arrived = units[:, None, :] / jnp.asarray(rates)[:, :, None]
    wide = repeated(load, rates.shape[1])
    requests = dataclasses.replace(wide.requests, arrived=arrived.reshape(-1, units.shape[1]))
    return dataclasses.replace(wide, requests=requests)


def after_stages(load: Load, stages: Sequence[Stage]) -> tuple[Load, np.ndarray, np.ndarray | None]:
    """The load in the order in which it comes out of the stages, that order, and when each request of it was asked
    [L, R], None where there are no stages."""
    requests = load.requests
    asked = np.asarray(requests.arrived)
    if not stages:
        return load, np.broadcast_to(np.arange(asked.shape[1]), asked.shape), None
    arrived = asked.copy()
    for lane, number in enumerate(np.asarray(requests.count).tolist()):
        arrived[lane, :number] = functools.reduce(through_stage, stages, asked[lane, :number])
    order = np.argsort(arrived, axis=1, kind="stable")
    rows = np.arange(len(order))[:, None]
    ordered = {
        name: jnp.asarray(values)[rows, order]
        for name in ("prompt", "output", "path", "brought", "priority")
        if (values := getattr(requests, name)) is not None
    }
    ordered["arrived"] = jnp.asarray(arrived[rows, order])
    return dataclasses.replace(load, requests=dataclasses.replace(requests, **ordered)), order, asked[rows, order]


def with_lanes(pool: Pool, times: int) -> Pool:
    """The pool with every lane so many times."""
    lanes = repeated((pool.settings, pool.replicas), times)
    return dataclasses.replace(pool, settings=lanes[0], replicas=lanes[1])


def repeated(tree: Any, times: int) -> Any:
    """Every lane so many times, one behind the other."""
    return jax.tree.map(lambda values: jnp.repeat(values, times, axis=0), tree)


def share_beyond(totals: Sequence[Totals], shape: tuple[int, int]) -> np.ndarray:
    """The share of the steps that the table of step times did not reach, of the replicas of all pools [L, K] [1].

    **Arguments:** `totals` of each pool, lanes L x K and an axis of replicas.
    """
    steps, beyond = (sum(np.asarray(getattr(one, name)).sum(axis=-1) for one in totals) for name in ("steps", "beyond"))
    return (beyond / np.maximum(steps, 1)).reshape(shape)


def columns_of(
    found: Requests, requests: Trace, shape: tuple[int, int], order: np.ndarray, asked: np.ndarray | None
) -> Columns:
    """Simulated lanes L x K as `slo.meets` takes them, arrays [L, K, R], every request at the same place at all rates;
    `order` and `asked` as of `after_stages`."""
    number = requests.arrived.shape[-1]
    columns = {name: getattr(found, name) for name in ("arrived", "scheduled", "first_token", "completed")}
    columns |= {} if asked is None else {"asked": asked}
    columns |= {"output": requests.output, "real": np.arange(number) < np.asarray(requests.count)[:, None]}
    places = np.argsort(order, axis=1)
    placed = {name: np.take_along_axis(np.asarray(values), places, axis=1) for name, values in columns.items()}
    return {name: values.reshape(*shape, number) for name, values in placed.items()}
