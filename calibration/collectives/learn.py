"""What the rows of a table teach, in the order that each part needs the one before: networks, launches, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from calibration.collectives.fit import Curves, adapted_curves, correction, fit_curves, flat_curves, merged
from calibration.collectives.larger import least_of_larger
from calibration.collectives.launch import launch_of, launch_times
from calibration.collectives.networks import networks, networks_of_few
from calibration.collectives.points import Network, Points
from calibration.collectives.terms import TERMS, Term

SETTING = "cell setting"  # the level of what was measured


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


def kernel_time(learned: Learned, points: Points) -> np.ndarray:
    """The time of the law with its correction [R] [s].

    In a setting that was not measured curves of several levels add up, so that the sum may fall where each rises: it
    has the least time of all larger sizes. What was measured keeps its own steps, where a library changes its way.
    """
    joined = points.joined(learned.network)
    time = _corrected(learned.curves, joined)
    measured = np.isin(joined.names[SETTING], learned.curves.known[f"{SETTING} by size"])[joined.group]
    rows = np.flatnonzero(~measured & (joined.problem == 0))
    if len(rows):
        time[rows] = least_of_larger(joined.take(rows), time[rows], partial(_corrected, learned.curves))
    return time


def _corrected(curves: Curves, points: Points) -> np.ndarray:
    return points.time * np.exp(correction(curves, points))


def predicted(learned: Learned, points: Points) -> np.ndarray:
    """The time of the kernel, or of its launch by the host where that is longer [R] [s]."""
    return np.maximum(kernel_time(learned, points), launch_of(learned.launches, points))
