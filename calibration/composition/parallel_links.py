"""Times of what the devices of a layout send to each other, by measured all-reduce curves where the group lies in one
node and was measured alike, else by the closed forms of `jaxperf.network.collectives`.

Ranks are placed tensor, then data, then pipeline (Megatron-LM's order), densely into nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from calibration.composition.batches_links import ASSUMED_LINK, Curve, all_reduce_time
from hwspecs import DeviceSpec
from jaxperf.core.device import device_from_spec
from jaxperf.core.numerics import as_float
from jaxperf.network.collectives import all_reduce_cost, all_to_all_cost, send_cost
from jaxperf.network.link import filled_fabric, group_fabric, pair_fabric


def reduction_time(curves: Sequence[Curve], spec: DeviceSpec, ranks: int, span: int, size: float) -> float:
    """All-reduce of `size` bytes over `ranks` devices, evenly spread over `span` places [s]."""
    if ranks == 1 or not size:
        return 0.0
    local = _local(spec, ranks, span)
    if local == ranks:
        return all_reduce_time(curves, spec, ranks, size)
    device = device_from_spec(spec)
    spread = filled_fabric(device, as_float(local), as_float(ranks), as_float(ASSUMED_LINK))
    return float(all_reduce_cost(spread, as_float(size)).time)


def sending_time(spec: DeviceSpec, devices: int, size: float) -> float:
    """One device to its neighbour in the next pipeline stage, across nodes where the `devices` span several [s]."""
    fabric = pair_fabric(device_from_spec(spec), as_float(devices), as_float(ASSUMED_LINK))
    return float(send_cost(fabric, as_float(size)).time)


def exchange_time(spec: DeviceSpec, ranks: int, size: float) -> float:
    """All-to-all over `ranks` devices, each of which hands on `size` bytes [s]."""
    fabric = group_fabric(device_from_spec(spec), as_float(ranks), as_float(ASSUMED_LINK))
    return float(all_to_all_cost(fabric, as_float(size)).time)


def ideal_reduction(spec: DeviceSpec, ranks: int, span: int, size: float) -> float:
    """The same all-reduce at the published rates of the links, without latency [s].

    Of n ranks in each of N nodes 2 (n - 1)/n S / B_link + 2 (N - 1)/N (S / n) / B_network.
    """
    local = _local(spec, ranks, span)
    nodes = -(-ranks // local)
    inside = 2.0 * (local - 1.0) / local * size / spec.node.link_bandwidth.si
    return inside + 2.0 * (nodes - 1.0) / nodes * size / local / spec.node.network_bandwidth.si


def ideal_exchange(spec: DeviceSpec, ranks: int, size: float) -> float:
    """The same all-to-all at the published rates of the links, without latency [s].

    Of n ranks in each of N nodes what stays inside, (n - 1)/(n N) S / B_link, beside what leaves, (N - 1)/N S /
    B_network.
    """
    local = _local(spec, ranks, ranks)
    nodes = -(-ranks // local)
    inside = (local - 1.0) / (local * nodes) * size / spec.node.link_bandwidth.si
    return max(inside, (nodes - 1.0) / nodes * size / spec.node.network_bandwidth.si)


def ideal_sending(spec: DeviceSpec, devices: int, size: float) -> float:
    """The same message at the published rate of the links, without latency: S / B [s]."""
    node = spec.node
    return size / (node.link_bandwidth.si if devices <= node.size.si else node.network_bandwidth.si)


def _local(spec: DeviceSpec, ranks: int, span: int) -> int:
    """How many of the ranks of a group lie in one node."""
    size = int(spec.node.size.si)
    return ranks if span <= size else max(ranks * size // span, 1)
