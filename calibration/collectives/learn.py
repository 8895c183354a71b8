"""What the rows of a table teach, in the order that each part needs the one before: ports, launches, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.collectives.fit import Curves, adapted_curves, correction, fit_curves, flat_curves, merged
from calibration.collectives.launch import launch_of, launch_times
from calibration.collectives.points import Points
from calibration.collectives.ports import ports_of_few, shared_ports
from calibration.collectives.terms import TERMS, Term


@dataclass(frozen=True)
class Learned:
    """`curves` of the correction; `shared_ports`: systems whose nodes have one network port; `launches`: what the host
    needs to launch a call, by cell [s]."""

    curves: Curves
    shared_ports: tuple[str, ...]
    launches: Mapping[str, float]


def learn(points: Points, measured: np.ndarray, known: np.ndarray, terms: Sequence[Term] = TERMS) -> Learned:
    """What the rows at the places `known` teach. `measured` [R] [s].

    Rows that the law has done before the host has launched them say nothing of the kernel, so no curve sees them.
    """
    shared = shared_ports(points, measured, known)
    joined = points.joined(shared)
    launches = launch_times(joined, measured, known)
    seen = known[joined.time[known] >= launch_of(launches, joined)[known]]
    curves = fit_curves(joined.take(seen), np.log(measured[seen] / joined.time[seen]), terms)
    return Learned(merged([curves, flat_curves(joined.take(known), terms)]), shared, launches)


def learn_few(learned: Learned, points: Points, measured: np.ndarray) -> Learned:
    """The same, moved to a few rows of a system [R] [s]."""
    shared = tuple(sorted({*learned.shared_ports, *ports_of_few(learned.curves, points, measured)}))
    joined = points.joined(shared)
    launches = launch_times(joined, measured, np.arange(len(points)), learned.launches)
    seen = np.flatnonzero(joined.time >= launch_of(launches, joined))
    if not len(seen):
        return Learned(learned.curves, shared, launches)
    y = np.log(measured[seen] / joined.time[seen])
    return Learned(adapted_curves(learned.curves, joined.take(seen), y), shared, launches)


def kernel_time(learned: Learned, points: Points) -> np.ndarray:
    """The time of the law with its correction [R] [s]."""
    joined = points.joined(learned.shared_ports)
    return joined.time * np.exp(correction(learned.curves, joined))


def predicted(learned: Learned, points: Points) -> np.ndarray:
    """The time of the kernel, or of its launch by the host where that is longer [R] [s]."""
    return np.maximum(kernel_time(learned, points), launch_of(learned.launches, points))
