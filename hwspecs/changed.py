"""Where a user's device is not the shipped one of its name."""

from __future__ import annotations

from typing import Any

from hwspecs.registry import load, names
from hwspecs.schema import DeviceSpec

# What kernels of the shipped device were measured with. A lower power limit is accounted for, and other links, memory
# sizes or names leave its kernels as they are.
MEASURED_WITH = ("peak_flops", "vector_flops", "memory_bandwidth", "num_cores", "clock_rate", "l2_capacity")


def changed_facts(spec: DeviceSpec) -> tuple[str, ...]:
    """Which of `MEASURED_WITH` differ from the shipped device of that name; none where no such device is shipped."""
    if spec.name not in names():
        return ()
    shipped = load(spec.name)
    return tuple(fact for fact in MEASURED_WITH if _number(getattr(spec, fact)) != _number(getattr(shipped, fact)))


def _number(value: Any) -> Any:
    """SI number of a fact, or of each of its formats."""
    return {name: each.si for name, each in value.items()} if isinstance(value, dict) else value.si
