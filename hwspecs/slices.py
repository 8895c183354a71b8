"""Slices of a GPU (MIG): devices of their own, of some of its cores and of its memory.

NVIDIA's guide (Multi-Instance GPU User Guide, "Concepts" and "Supported MIG Profiles"): a memory slice is about an
eighth of the GPU's memory, capacity and bandwidth, and of its L2, on small GPUs a quarter; slices have no link between
each other. How many SM a profile has is what the driver prints (`slices.toml`). Of one compute slice with two of memory
the guide's tables state two shares of L2 and, on the A100, one of memory; L2 lies at the memory, so here both are two.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hwspecs.files import SHIPPED, read_toml

if TYPE_CHECKING:
    from hwspecs.schema import DeviceSpec, NodeSpec

_NAME = re.compile(
    r"(?P<device>.+?)[\s_-]+(MIG[\s_-]+)?(?P<part>\d+c\.)?(?P<compute>\d+)g\.(?P<memory>\d+)gb([+-]\S+)?", re.IGNORECASE
)
KEY = "mig"  # of the source of what a slice has
NEAR = 0.1  # of a memory slice, that a profile's name rounds away
MEMORY_POWER = 0.5  # of a power limit, at most
GUIDE = "NVIDIA's MIG guide"
SOURCE = {
    "title": "Profiles that `nvidia-smi mig -lgip` prints, and NVIDIA Multi-Instance GPU User Guide",
    "publisher": "NVIDIA",
    "kind": "documentation",
    "year": 2026,
}


@dataclass(frozen=True)
class Slice:
    """What a string says: `device`: of what; `part` of a slice, such as "1c."; `compute` slices [1]; `memory` [GB]."""

    device: str
    part: str
    compute: int
    memory: int

    def name(self, whole: str) -> str:
        """The name of this slice of a device."""
        return f"{whole}-mig-{self.compute}g.{self.memory}gb"

    def sentence(self, whole: str) -> str:
        """What a slice is whose cores are not known here, and how to state it; `whole`: the name of the device."""
        return (
            f"it is a slice (MIG) of {whole} with {self.memory} GB, whose cores differ by profile; write a file with "
            f'base = "{whole}" that states its num_cores (`nvidia-smi mig -lgip` has them as SM), its peak_flops, '
            "vector_flops, memory_bandwidth, memory_capacity and l2_capacity (docs/add-a-device.md)."
        )


@dataclass(frozen=True)
class Profile:
    """`cores` of a slice [1], and its share of the memory [1]."""

    cores: int
    share: float


def slice_of(text: str) -> Slice | None:
    """The slice that a string names, such as "A100-SXM4-40GB MIG 3g.20gb" or "H100 1g.10gb"; None for another one."""
    named = _NAME.fullmatch(text.strip())
    if named is None:
        return None
    return Slice(named["device"], named["part"] or "", int(named["compute"]), int(named["memory"]))


def profile_of(whole: DeviceSpec, named: Slice) -> Profile | None:
    """The profile of a device that a slice has; None for a part of a slice, and where there is none such here."""
    entry = _entries().get(whole.name)
    if entry is None or named.part:
        return None
    slices = named.memory * 1e9 / whole.memory_capacity.si * entry["memory_slices"]
    for compute, memory, cores in entry["profiles"]:
        if compute == named.compute and abs(slices - memory) <= NEAR * memory:
            return Profile(cores, memory / entry["memory_slices"])
    return None


def slice_spec(whole: DeviceSpec, named: Slice, profile: Profile) -> DeviceSpec:
    """The specification of a slice of a device, whose source and formulas are said of every value.

    Peaks go with the cores; bandwidth and capacity of the memory, L2 and the network with the memory. The power limit
    is its part of the device's when all slices work, of the memory's power by the memory, of the rest by the cores.
    """
    from hwspecs.values import Source
    from hwspecs.variant import variant

    cores, share = profile.cores / whole.num_cores.si, profile.share
    by_cores = f"that of {whole.name} x {profile.cores} of its {whole.num_cores.quantity} cores"
    by_memory = f"that of {whole.name} x {share:g}, its memory slices ({GUIDE})"
    changes: dict[str, Any] = {
        "num_cores": float(profile.cores),
        "peak_flops": {name: value.si * cores for name, value in whole.peak_flops.items()},
        "vector_flops": whole.vector_flops.si * cores,
        **{name: getattr(whole, name).si * share for name in ("memory_bandwidth", "memory_capacity", "l2_capacity")},
        "tdp": _power(whole, cores, share),
    }
    if whole.die_area is not None:
        changes["die_area"] = whole.die_area.si * cores
    notes = {
        "num_cores": "SM of the profile, as the driver prints them",
        **dict.fromkeys(("peak_flops", "vector_flops", "die_area"), by_cores),
        **dict.fromkeys(("memory_bandwidth", "memory_capacity", "l2_capacity"), by_memory),
        "tdp": "its part of the device's when all slices work, which nothing divides in hardware",
    }
    made = variant(whole, named.name(whole.name), changes, notes, KEY, Source(**SOURCE))
    other = {"num_cores": "single source", "tdp": "estimated"}
    told = {name: getattr(made, name).model_copy(update={"confidence": each}) for name, each in other.items()}
    return made.model_copy(update={**told, "node": _alone(whole, share)})


def slice_tables(whole: Mapping[str, Any], named: Slice, origin: str) -> dict[str, Any] | None:
    """A slice of a device as the tables of a file; None where its profile is not known.

    **Arguments:** `whole`: the tables of the device; `origin`: their file, which messages name.
    """
    from hwspecs.schema import DeviceSpec, parse_spec

    spec = parse_spec(DeviceSpec, whole, origin)
    profile = profile_of(spec, named)
    return None if profile is None else slice_spec(spec, named, profile).to_dict()


def _power(whole: DeviceSpec, cores: float, share: float) -> float:
    """See `slice_spec` [W]."""
    from hwspecs.energy import energy_of

    facts = energy_of(whole)
    memory = 0.0 if facts is None else facts.per_byte.si * whole.memory_bandwidth.si
    memory = min(memory, MEMORY_POWER * whole.tdp.si)
    return (whole.tdp.si - memory) * cores + memory * share


def _alone(whole: DeviceSpec, share: float) -> NodeSpec:
    """A node of one slice, whose only link is its share of the device's network port."""
    from hwspecs.quantity import format_quantity
    from hwspecs.variant import DIGITS

    node = whole.node
    one = node.size.model_copy(
        update={"quantity": "1", "source": (KEY,), "confidence": "single source", "note": "slices have no link"}
    )
    port = node.network_bandwidth.model_copy(
        update={
            "quantity": format_quantity(node.network_bandwidth.si * share, node.network_bandwidth.unit, DIGITS),
            "source": (KEY,),
            "confidence": "estimated",
            "note": f"its part of the port of {whole.name}, by the memory",
        }
    )
    links = {"link_count": one, "link_bandwidth": port, "link_latency": node.network_latency, "network_bandwidth": port}
    return node.model_copy(update={"size": one, "topology": "single", "torus_dimensions": None, **links})


@functools.cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """Device -> its entry in `slices.toml`."""
    entries = read_toml(SHIPPED / "slices.toml")["entry"]
    return MappingProxyType({device: entry for entry in entries for device in entry["devices"]})
