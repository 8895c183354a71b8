"""Where a user's device is not the shipped one of its name, or that its file started from."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from hwspecs.registry import load, names
from hwspecs.schema import DeviceSpec

# What kernels of the shipped device were measured with. A lower power limit is accounted for, and other links, memory
# sizes or names leave its kernels as they are.
KERNELS_WITH = ("peak_flops", "vector_flops", "memory_bandwidth", "num_cores", "clock_rate", "l2_capacity")
COLLECTIVES_WITH = (
    *("node.size", "node.topology", "node.link_count", "node.link_bandwidth", "node.link_latency"),
    *("node.network_bandwidth", "node.network_latency"),
)


def origin_of(spec: DeviceSpec) -> DeviceSpec | None:
    """The shipped device that a device is or was made from: of its name, else its `base`; None for one of its own."""
    name = next((each for each in (spec.name, spec.base) if each in names()), None)
    return None if name is None else load(name)


def changed_from(origin: DeviceSpec, spec: DeviceSpec, among: Sequence[str] = KERNELS_WITH) -> tuple[str, ...]:
    """Which facts differ from those of another device."""
    return tuple(fact for fact in among if _number(spec, fact) != _number(origin, fact))


def changed_facts(spec: DeviceSpec, among: Sequence[str] = KERNELS_WITH) -> tuple[str, ...]:
    """Which facts differ from the shipped device of that name; none where no such device is shipped."""
    if spec.name not in names():
        return ()
    return changed_from(load(spec.name), spec, among)


def own_launch_latency(spec: DeviceSpec) -> bool:
    """Whether the launch latency of a device is its user's: not that of the shipped device that it was made from."""
    origin = origin_of(spec)
    return origin is None or origin.launch_latency != spec.launch_latency


def _number(spec: DeviceSpec, fact: str) -> Any:
    """SI number of a fact, or of each of its formats; or the text that it is."""
    value = attrgetter(fact)(spec)
    if isinstance(value, dict):
        return {name: each.si for name, each in value.items()}
    return getattr(value, "si", value)
