"""Energy per operation and per byte of a device, from its manufacturing process and its kind of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwspecs.parts import load_memory, load_process
from hwspecs.schema import DeviceSpec, MemorySpec, ProcessSpec
from hwspecs.values import EnergyPerByte, EnergyPerFlop, Format


@dataclass(frozen=True)
class EnergyFacts:
    """What arithmetic and memory traffic of a device cost, with the files that say so.

    Both are lower bounds of what the device draws: registers, caches, instructions, leakage and fans are not in them.
    """

    process: ProcessSpec
    memory: MemorySpec

    @property
    def per_flop(self) -> Mapping[Format, EnergyPerFlop]:
        """Energy of one operation by number format, a multiply-add counting as two [J/FLOP]."""
        return self.process.energy_per_flop

    @property
    def per_byte(self) -> EnergyPerByte:
        """Energy of moving one byte between the memory and the chip [J/byte]."""
        return self.memory.energy_per_byte


def energy_of(spec: DeviceSpec) -> EnergyFacts | None:
    """The energy facts of a device; None where its file states no `process` or no `memory_type`.

    **Raises:** `InputError` with the nearest names for a process or a memory that has no file.
    """
    if spec.process is None or spec.memory_type is None:
        return None
    return EnergyFacts(load_process(spec.process), load_memory(spec.memory_type))
