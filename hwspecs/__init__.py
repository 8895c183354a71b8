"""Hardware facts of AI accelerators: peak rates, memories, links, each with its source and confidence.

Importing this package loads neither jax, pydantic nor pint: the public names below are fetched on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwspecs.checks import Deviation, expected_peaks, peak_deviations
    from hwspecs.energy import EnergyFacts, energy_of
    from hwspecs.errors import InconsistentPeaks, InputError, did_you_mean, nearest
    from hwspecs.flagship import flagship_of
    from hwspecs.host import HostFacts, host_of
    from hwspecs.network import NetworkSpec, load_network, network_names
    from hwspecs.parts import load_architecture, load_link, load_memory, load_process
    from hwspecs.quantity import format_quantity, parse_quantity
    from hwspecs.registry import Registry, Resolution, load, names, open_registry, resolve
    from hwspecs.schema import ArchitectureSpec, DeviceSpec, LinkSpec, MemorySpec, NodeSpec, ProcessSpec
    from hwspecs.values import CONFIDENCES, FORMATS, Source, Value

# Written out, because type checkers do not follow computed __all__.
__all__ = [
    "CONFIDENCES",
    "FORMATS",
    "ArchitectureSpec",
    "Deviation",
    "DeviceSpec",
    "EnergyFacts",
    "HostFacts",
    "InconsistentPeaks",
    "InputError",
    "LinkSpec",
    "MemorySpec",
    "NetworkSpec",
    "NodeSpec",
    "ProcessSpec",
    "Registry",
    "Resolution",
    "Source",
    "Value",
    "did_you_mean",
    "energy_of",
    "expected_peaks",
    "flagship_of",
    "format_quantity",
    "host_of",
    "load",
    "load_architecture",
    "load_link",
    "load_memory",
    "load_network",
    "load_process",
    "names",
    "nearest",
    "network_names",
    "open_registry",
    "parse_quantity",
    "peak_deviations",
    "resolve",
]


def _home(name: str) -> str | None:
    """The module that defines a public name, or None."""
    match name:
        case "InconsistentPeaks" | "InputError" | "did_you_mean" | "nearest":
            return "errors"
        case "format_quantity" | "parse_quantity":
            return "quantity"
        case "CONFIDENCES" | "FORMATS" | "Source" | "Value":
            return "values"
        case "ArchitectureSpec" | "DeviceSpec" | "LinkSpec" | "MemorySpec" | "NodeSpec" | "ProcessSpec":
            return "schema"
        case "NetworkSpec" | "load_network" | "network_names":
            return "network"
        case "load_architecture" | "load_link" | "load_memory" | "load_process":
            return "parts"
        case "EnergyFacts" | "energy_of":
            return "energy"
        case "flagship_of":
            return "flagship"
        case "HostFacts" | "host_of":
            return "host"
        case "Deviation" | "expected_peaks" | "peak_deviations":
            return "checks"
    return "registry" if name in __all__ else None


def __getattr__(name: str) -> Any:
    home = _home(name)
    if home is None:
        raise AttributeError(f"module 'hwspecs' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hwspecs.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
