"""Benchmarks that state no layout, format or lengths (MLPerf Inference): never fitted, reported beside what is.

Their latency in the offline scenario is that of a queue of all requests, so of the run's length, and is not asked for.
The roofline serves with every efficiency 1 and nothing waiting: B requests decode together, as many as there are or
have room, and each was prefilled alone,

    tokens / s = ranks output / (t_prefill + output t_decode(B) / B)

Of an open loop the rate is given and not asked for; B is what Little's law has there (at least 1).
The fitted constant is the median excess over the roofline of the same scenario on all other devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from calibration.datasets.serving import OUTPUTS, ServingTable
from calibration.figures import figures
from calibration.serving.engines import most_running
from calibration.serving.evaluate import CONSTANT, LINE, OURS, HeldOut, work
from calibration.serving.fit import states_of
from calibration.serving.law import rows_of
from calibration.serving.layouts import Deployed, deployed
from calibration.serving.pieces import Pieces, pieces_of
from calibration.serving.ranking import kendall
from calibration.serving.refit import UNGATED
from calibration.serving.scalars import design_of
from jaxperf.core.sustained import ROOFLINE
from jaxperf.core.sustained_file import SustainedTable

*LATENCIES, RATE = OUTPUTS
OFFLINE = "offline"
ITERATIONS = 50  # of the fixed point; each takes the error down by the share of the bytes that the batch brings
LEAST_DEVICES = 5  # of a model whose order is asked for
LEAST_OTHERS = 3  # configurations on other devices that a constant is made of


def ungated_points(table: ServingTable) -> list[Deployed]:
    """The configurations of such benchmarks that can be priced."""
    points, _ = deployed(table)
    return [p for p in points if p.configuration.source.startswith(UNGATED) and p.configuration.measured]


def ungated_errors(points: Sequence[Deployed], rates: SustainedTable, found: HeldOut) -> list[dict[str, Any]]:
    """Rows, mean, median and 90th percentile of the error by scenario and output [1]: of us with what was fitted to all
    other sources, of the roofline and of a constant.

    **Returns:** also, offline: with `device` the median of predicted over measured output rates [1]; with `model` and
    `who` Kendall's tau of its devices by their median output rate a device (`calibration.serving.ranking`) [1].
    """
    residuals = _residuals(points, rates, found)
    scenarios = np.array([p.configuration.scenario for p in points])
    rows = []
    for scenario in dict.fromkeys(scenarios.tolist()):
        for output in (RATE,) if scenario == OFFLINE else LATENCIES:
            asked = (scenarios == scenario) & np.isfinite(residuals[OURS][output])
            if asked.any():
                for who, of in residuals.items():
                    told = figures(of[output][asked])
                    rows.append({"scenario": scenario, "output": output, "who": who, **told})
    offline = (scenarios == OFFLINE) & np.isfinite(residuals[OURS][RATE])
    of_rates = {who: residuals[who][RATE][offline] for who in (OURS, LINE)}
    own = [point for point, asked in zip(points, offline, strict=True) if asked]
    return rows + _by_device(own, of_rates[OURS]) + _orders(own, of_rates)


def _by_device(points: Sequence[Deployed], residual: np.ndarray) -> list[dict[str, Any]]:
    devices = np.array([p.spec.name for p in points])
    return [
        {
            "device": name,
            "rows": int((devices == name).sum()),
            "ratio": float(np.exp(np.median(residual[devices == name]))),
        }
        for name in sorted(set(devices.tolist()))
    ]


def _orders(points: Sequence[Deployed], residuals: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """How well the devices of each model with `LEAST_DEVICES` are ordered by whom."""
    models, devices = np.array([p.architecture for p in points]), np.array([p.spec.name for p in points])
    sizes = np.array([p.replicas * p.group for p in points])
    measured = np.array([p.configuration.measured[RATE] for p in points]) / sizes
    rows = []
    for model in sorted(set(models.tolist())):
        names = sorted(set(devices[models == model].tolist()))
        if len(names) < LEAST_DEVICES:
            continue
        own = [(models == model) & (devices == name) for name in names]
        right = np.array([np.median(measured[each]) for each in own])
        for who, residual in residuals.items():
            told = np.array([np.median((measured * np.exp(residual))[each]) for each in own])
            rows.append({"model": model, "who": who, "devices": len(names), "tau": kendall(told, right)})
    return rows


def _residuals(
    points: Sequence[Deployed], rates: SustainedTable, found: HeldOut
) -> Mapping[str, Mapping[str, np.ndarray]]:
    """log predicted - log measured by who and output, NaN where nothing was measured [rows]."""
    state, _ = states_of(jnp.asarray(found.fitted), design_of(points, found.design.names), rows_of(points, rates))
    line = _roofline(points, pieces_of(points, rates, ROOFLINE))
    devices = np.array([p.spec.name for p in points])
    scenarios = np.array([p.configuration.scenario for p in points])
    residuals: dict[str, dict[str, np.ndarray]] = {who: {} for who in (OURS, CONSTANT, LINE)}
    for output in OUTPUTS:
        measured = np.log([p.configuration.measured.get(output, np.nan) for p in points])
        residuals[OURS][output] = np.log(np.asarray(getattr(state, output))) - measured
        residuals[LINE][output] = np.log(line[output]) - measured
        residuals[CONSTANT][output] = _without_own(residuals[LINE][output], devices, scenarios)
    return residuals


def _without_own(residual: np.ndarray, devices: np.ndarray, scenarios: np.ndarray) -> np.ndarray:
    """Residuals less the median of the same scenario on other devices, NaN where these are too few [rows]."""
    found = np.full(residual.shape, np.nan)
    for name, scenario in set(zip(devices.tolist(), scenarios.tolist(), strict=True)):
        own = (devices == name) & (scenarios == scenario)
        others = residual[(devices != name) & (scenarios == scenario) & np.isfinite(residual)]
        if len(others) >= LEAST_OTHERS:
            found[own] = residual[own] - np.median(others)
    return found


def _roofline(points: Sequence[Deployed], pieces: Pieces) -> Mapping[str, np.ndarray]:
    """`OUTPUTS` with every efficiency 1 and nothing waiting [rows] [s, throughput 1/s]."""
    found = []
    for place, point in enumerate(points):
        batch = _decoding(point, pieces, place)
        prefill, decode = work(pieces, place, 1.0, batch)
        each = prefill + point.output * decode / batch
        served = point.replicas * point.data * point.output / each
        found.append((prefill, decode, prefill + (point.output - 1.0) * decode, served))
    return dict(zip(OUTPUTS, np.array(found).T, strict=True))


def _decoding(point: Deployed, pieces: Pieces, place: int) -> float:
    """Requests that a rank decodes together [1]: what it has in flight, as far as there is room; of an open loop what
    Little's law has there, rate x output x t_decode(B), from below."""
    room = most_running(point.configuration.engine, point.spec.memory_capacity.si)
    room = max(1.0, min(room, float(pieces.slots[place]) or room))
    ranks, batch = point.replicas * point.data, 1.0
    if not np.isnan(point.concurrency):
        return float(np.clip(point.concurrency / ranks, 1.0, room))
    for _ in range(ITERATIONS):
        waiting = point.rate / ranks * point.output * work(pieces, place, 1.0, batch)[1]
        batch = float(np.clip(waiting, 1.0, room))
    return batch
