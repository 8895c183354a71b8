"""What the rows of a table teach, in the order that each part needs the one before: networks, launches, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from calibration.collectives.fit import Curves, adapted_curves, correction, fit_curves, flat_curves, merged
from calibration.collectives.larger import least_of_larger
from calibration.collectives.launch import launch_of, launch_times
from calibration.collectives.laws import OPS, RUNNERS
from calibration.collectives.networks import networks, networks_of_few
from calibration.collectives.points import Network, Points
from calibration.collectives.terms import TERMS, Term
from jaxperf.network.nccl import ANY_WAY, WAYS

ABOVE = 1.0 + 1e-9  # a hair more bytes
SETTING, DEVICE = "cell setting", "device"  # the levels of what was measured, and on what


@dataclass(frozen=True)
class Learned:
    """`curves` of the correction; `network`: how nodes reach it, by system; `launches`: what the host needs to launch a
    call, by cell [s]."""

    curves: Curves
    network: Network
    launches: Mapping[str, float]


def learn(points: Points, measured: np.ndarray, known: np.ndarray, terms: Sequence[Term] = TERMS) -> Learned:
    """What the rows at the places `known` teach. `measured` [R] [s].

    Rows that the law has done before the host has launched them say nothing of the kernel, so no curve sees them.
    """
    network = networks(points, measured, known)
    joined = points.joined(network)
    launches = launch_times(joined, measured, known)
    seen = known[joined.time[known] >= launch_of(launches, joined)[known]]
    curves = fit_curves(joined.take(seen), np.log(measured[seen] / joined.time[seen]), terms)
    return Learned(merged([curves, flat_curves(joined.take(known), terms)]), network, launches)


def learn_few(learned: Learned, points: Points, measured: np.ndarray) -> Learned:
    """The same, moved to a few rows of a system [R] [s]."""
    few = networks_of_few(learned.curves, points, measured)
    pairs = {**learned.network.port_pairs, **few.port_pairs}
    network = Network(pairs, tuple(sorted({*learned.network.static_routes, *few.static_routes})))
    joined = points.joined(network)
    launches = launch_times(joined, measured, np.arange(len(points)), learned.launches)
    seen = np.flatnonzero(joined.time >= launch_of(launches, joined))
    if not len(seen):
        return Learned(learned.curves, network, launches)
    y = np.log(measured[seen] / joined.time[seen])
    return Learned(adapted_curves(learned.curves, joined.take(seen), y), network, launches)


def as_run(learned: Learned, points: Points) -> Points:
    """The points as the nodes of their systems reach the network, each all-reduce by the way that it is run.

    A library chooses by its own model, also where it chooses badly. By how much each way is off was seen on other
    devices, and may make of its choice the slower one: where no device told what it chooses, it is the way of the least
    corrected time, so that faster links are not slower, nor more bytes out of proportion.
    """
    joined = points.joined(learned.network)
    rows = np.flatnonzero(_is_open(learned.curves, joined))
    if not len(rows):
        return joined
    open_rows = joined.take(rows)
    ways = np.arange(len(WAYS), dtype=float)
    times = [_corrected(learned.curves, open_rows.run_by(np.full(len(rows), way))) for way in ways]
    chosen = np.full(len(joined), ANY_WAY)
    chosen[rows] = ways[np.argmin(times, axis=0)]
    return joined.run_by(chosen)


def kernel_time(learned: Learned, points: Points) -> np.ndarray:
    """The time of the law with its correction [R] [s]. `points`: `as_run`.

    In a setting that was not measured curves of several levels add up, so that the sum may fall where each rises: it
    has the least time of all larger sizes. What was measured keeps its own steps, where a library changes its way.
    """
    time = _corrected(learned.curves, points)
    measured = np.isin(points.names[SETTING], learned.curves.known[f"{SETTING} by size"])[points.group]
    rows = np.flatnonzero(~measured & (points.problem == 0))
    if len(rows):
        time[rows] = least_of_larger(points.take(rows), time[rows], partial(_time_of_larger, learned))
    return time


def _time_of_larger(learned: Learned, points: Points) -> np.ndarray:
    """The corrected time of points of `least_of_larger` [R] [s].

    Where the way is open no time may fall at a power of two, at which the rates of trees step, because rounding left
    its bytes below it. On devices that were measured it may: else unseen ranks are 9.97 % off in the mean, not 9.90.
    """
    above = np.where(_is_open(learned.curves, points), ABOVE, 1.0)
    return _corrected(learned.curves, as_run(learned, points.times(above)))


def _is_open(curves: Curves, points: Points) -> np.ndarray:
    """Which rows are all-reduces of a library on devices that were not measured [R]."""
    device = np.isin(points.names[DEVICE], curves.known[f"{DEVICE} by size"])[points.group]
    library = points.numbers["runner"] == RUNNERS.index("library")
    return ~device & library & (points.numbers["op"] == OPS.index("all_reduce")) & (points.problem == 0)


def _corrected(curves: Curves, points: Points) -> np.ndarray:
    return points.time * np.exp(correction(curves, points))


def predicted(learned: Learned, points: Points) -> np.ndarray:
    """The time of the kernel, or of its launch by the host where that is longer [R] [s]."""
    run = as_run(learned, points)
    return np.maximum(kernel_time(learned, run), launch_of(learned.launches, run))
