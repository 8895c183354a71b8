"""All-reduce time of one group of devices, read off the measured curve of the nearest group.

Nearest: joined in the same way (switch, PCIe, mesh), then of the same generation, then of a near number of ranks, then
of the table given first, then the device itself. Where rates differ, a buffer of S bytes counts as one that keeps the
measured group's links busy as long: S x (B_measured / B) x (traffic / traffic_measured), traffic = 2 (n - 1) / n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import hwspecs
from calibration.datasets.schema import KernelTable
from hwspecs import DeviceSpec
from jaxperf.core.device import device_from_spec
from jaxperf.core.numerics import as_float
from jaxperf.network.collectives import all_reduce_cost
from jaxperf.network.link import group_fabric

LEAST_OCTAVE = 11  # 2 KiB
ASSUMED_LINK = 0.75  # share of a link's rate where no group joined like it was measured
UNUSED_LINK = 1e12  # one rank sends nothing [byte/s]


@dataclass(frozen=True)
class Curve:
    """Median all-reduce times of one group: logarithms of size [log byte] and time [log s], both [K].

    `order`: the table it is from, 0 the first; `topology`, `rate` [byte/s], `lineage`: of the device, see `lineage`.
    """

    device: str
    ranks: int
    order: int
    size: np.ndarray
    time: np.ndarray
    topology: str
    rate: float
    lineage: str

    def at(self, size: float) -> float:
        """Time of a buffer of `size` bytes: interpolated in logarithms, constant below, in proportion above [s]."""
        place = math.log(size)
        return math.exp(float(np.interp(place, self.size, self.time)) + max(0.0, place - float(self.size[-1])))


def curve_of(device: str, ranks: int, order: int, size: np.ndarray, time: np.ndarray) -> Curve:
    """A curve with what there is to know of its device."""
    spec = hwspecs.load(device)
    node = spec.node
    return Curve(device, ranks, order, size, time, node.topology, node.link_bandwidth.si, lineage(spec))


def curves_of(tables: Sequence[KernelTable]) -> tuple[Curve, ...]:
    """The curves of measured all-reduces on one node, by table, device and ranks."""
    found = []
    for order, table in enumerate(tables):
        ranks, size = table.shape["num_gpus"], table.shape["bytes"]
        one_node = ~(table.shape["gpus_per_node"] < ranks)
        usable = (table.text["op"] == "all_reduce") & one_node & (table.flag == 0) & (table.device != "") & (size > 0)
        for device, n in sorted({(str(d), int(n)) for d, n in zip(table.device[usable], ranks[usable], strict=True)}):
            own = usable & (table.device == device) & (ranks == n)
            found.append(curve_of(device, n, order, *_knots(size[own], table.measured[own])))
    return tuple(found)


def _knots(size: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of log size and log time in bins of an octave; no smaller buffer takes longer."""
    which = np.maximum(np.log2(size) - LEAST_OCTAVE, 0.0) // 1.0
    bins = [which == each for each in np.unique(which)]
    places, times = (np.array([np.median(np.log(values[own])) for own in bins]) for values in (size, time))
    return places, _never_falling(times)


def _never_falling(values: np.ndarray) -> np.ndarray:
    """The nearest sequence, by least squares, of which no value is below the one before: neighbours that are out of
    order take their mean (pool adjacent violators; Ayer et al. 1955)."""
    pools: list[tuple[float, int]] = []  # mean and how many
    for value in values:
        mean, count = float(value), 1
        while pools and pools[-1][0] > mean:
            before, more = pools.pop()
            mean, count = (before * more + mean * count) / (more + count), more + count
        pools.append((mean, count))
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])


def all_reduce_time(curves: Sequence[Curve], spec: DeviceSpec, ranks: int, size: float) -> float:
    """Time of an all-reduce of `size` bytes over `ranks` devices [s]."""
    if ranks == 1:
        return 0.0
    alike = [curve for curve in curves if curve.topology == spec.node.topology]
    if not alike:
        fabric = group_fabric(device_from_spec(spec), as_float(ranks), as_float(ASSUMED_LINK))
        return float(all_reduce_cost(fabric, as_float(size)).time)
    nearest = min(alike, key=lambda curve: _distance(curve, spec, ranks))
    rate = nearest.rate / spec.node.link_bandwidth.si
    return nearest.at(size * rate * _traffic(ranks) / _traffic(nearest.ranks))


def _distance(curve: Curve, spec: DeviceSpec, ranks: int) -> tuple[float, ...]:
    return curve.lineage != lineage(spec), abs(math.log2(curve.ranks / ranks)), curve.order, curve.device != spec.name


def lineage(spec: DeviceSpec) -> str:
    """The generation of a device: its architecture without the variant, such as "ada" of "ada-half-rate"."""
    return spec.architecture.partition("-")[0]


def _traffic(ranks: int) -> float:
    """Bytes that a rank sends, over the buffer's."""
    return 2.0 * (ranks - 1.0) / ranks


def link_rate(curves: Sequence[Curve], spec: DeviceSpec, ranks: int, size: float) -> float:
    """The rate at which the two-shot formula of `network.collectives` without latency takes the measured time
    [byte/s]."""
    return UNUSED_LINK if ranks == 1 else _traffic(ranks) * size / all_reduce_time(curves, spec, ranks, size)


def without(curves: Sequence[Curve], devices: Sequence[str]) -> tuple[Curve, ...]:
    """The curves of other devices."""
    return tuple(curve for curve in curves if curve.device not in devices)


def curve_arrays(curves: Sequence[Curve]) -> dict[str, np.ndarray]:
    """The curves by the name `order/device/ranks`, each [2, K]."""
    return {f"{curve.order}/{curve.device}/{curve.ranks}": np.stack([curve.size, curve.time]) for curve in curves}


def curves_from(arrays: Mapping[str, np.ndarray]) -> tuple[Curve, ...]:
    """What `curve_arrays` made."""
    found = []
    for name, values in sorted(arrays.items()):
        order, device, ranks = name.split("/")
        found.append(curve_of(device, int(ranks), int(order), values[0], values[1]))
    return tuple(found)
