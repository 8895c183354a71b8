"""What a training step reaches of its host: the link that the device's file names, and of a superchip the processor's
memory; elsewhere what is assumed of all devices (`assumed_training.toml`)."""

from __future__ import annotations

import dataclasses

from hwspecs.host import HostFacts, host_of
from hwspecs.quantity import format_quantity
from hwspecs.schema import DeviceSpec
from jaxperf.core.numerics import as_float
from jaxperf.training.efficiencies import TrainingEfficiencies

# Of the link one way, by large copies of pinned memory (PCI Express 5 x16 is reported at 0.88 by NVIDIA's nvbandwidth;
# pageable memory and other devices of the socket take the rest), and of the processor's memory, by streams.
LINK_SHARE = {"low": 0.5, "nominal": 0.8, "high": 0.95}
MEMORY_SHARE = {"low": 0.5, "nominal": 2.0 / 3.0, "high": 0.85}


def host_rates(spec: DeviceSpec, level: str = "nominal") -> dict[str, float]:
    """The fields of `TrainingEfficiencies` that are known of a device's host, at a `level` of the assumptions
    [byte/s]; none where its file names no link."""
    facts = host_of(spec)
    if facts is None:
        return {}
    rates = {"host_bandwidth": facts.link_bandwidth * LINK_SHARE[level]}
    if facts.memory_bandwidth is not None:
        rates["host_memory_bandwidth"] = facts.memory_bandwidth * MEMORY_SHARE[level]
    return rates


def with_host(efficiencies: TrainingEfficiencies, spec: DeviceSpec, level: str = "nominal") -> TrainingEfficiencies:
    """The efficiencies with what is known of a device's host in the place of what is assumed of all."""
    return dataclasses.replace(efficiencies, **{name: as_float(rate) for name, rate in host_rates(spec, level).items()})


def host_note(spec: DeviceSpec, efficiencies: TrainingEfficiencies) -> str:
    """What copies to the host and its updates are priced with, and whether the device's file tells it."""
    facts, link = host_of(spec), _rate(float(efficiencies.host_bandwidth))
    memory = _rate(float(efficiencies.host_memory_bandwidth))
    if facts is None:
        return f"no file tells how {spec.name} is joined to its host: a link of {link} and memory of {memory} are taken"
    return f"to its host {spec.name} has {_share(facts, link)}, and {_memory(facts, memory)}"


def _share(facts: HostFacts, link: str) -> str:
    return f"{facts.link.name}, of whose {_rate(facts.link_bandwidth)} copies reach {link}"


def _memory(facts: HostFacts, memory: str) -> str:
    if facts.processor is None:
        return f"that the host's memory gives a device {memory} is assumed"
    return f"the memory of {facts.processor} gives it {memory}"


def _rate(value: float) -> str:
    return format_quantity(value, "byte/s", 3)
