"""The host of a device: its link, and of a superchip the processor whose memory it is."""

from __future__ import annotations

from dataclasses import dataclass

from hwspecs.parts import load_link
from hwspecs.schema import DeviceSpec, LinkSpec


@dataclass(frozen=True)
class HostFacts:
    """What a device has of its host: `link`, one direction of its share `link_bandwidth` [byte/s]; of the memory of a
    known `processor` its share, `memory_bandwidth` [byte/s] and `memory_capacity` [byte], else None."""

    link: LinkSpec
    link_bandwidth: float
    processor: str | None = None
    memory_bandwidth: float | None = None
    memory_capacity: float | None = None


def host_of(spec: DeviceSpec) -> HostFacts | None:
    """The host of a device: as its file states it, else, of a card on PCI Express, at the link that joins it to the
    others; None where neither tells.

    **Raises:** `InputError` with the nearest names for a link or a processor that has no file.
    """
    host = spec.host
    if host is None:
        if spec.node.topology != "pcie":
            return None
        link = load_link(spec.node.link)
        return HostFacts(link, link.bandwidth.si)
    link, sharers = load_link(host.link), 1.0 if host.devices is None else host.devices.si
    if host.processor is None:
        return HostFacts(link, link.bandwidth.si / sharers)
    from hwspecs.registry import load

    processor = load(host.processor)
    return HostFacts(
        link=link,
        link_bandwidth=link.bandwidth.si / sharers,
        processor=processor.name,
        memory_bandwidth=processor.memory_bandwidth.si / sharers,
        memory_capacity=processor.memory_capacity.si / sharers,
    )
