"""Energy of an access where no table gives it, in joules.

DOSA (Hong et al., MICRO 2023): lines fitted to CACTI for a Gemmini in 40 nm.
"""

from __future__ import annotations

from typing import TypeVar

from jaxtyping import Array

PICO = 1e-12
Number = TypeVar("Number", float, Array)  # of a table's row, or traced

DOSA_MAC_ENERGY = 0.5608 * PICO  # 8-bit multiply, 32-bit add [J]
DOSA_REGISTER_ENERGY = 0.4875 * PICO  # a byte in a register of a processing element [J]
DOSA_DRAM_ENERGY = 100.0 * PICO  # a byte of DRAM [J]
DOSA_DRAM_BLOCK = 64.0  # bytes that DRAM moves at once [byte]


def dosa_accumulator_energy(capacity: Number) -> Number:
    """1.94 + 0.1005 KB pJ for a word of an accumulator bank of `capacity` [byte], one bank to a column of the array."""
    return (1.94 + 0.1005 * capacity / 1024.0) * PICO


def dosa_scratchpad_energy(capacity: Number) -> Number:
    """0.49 + 0.02513 KB pJ for a byte of a scratchpad of `capacity` [byte]."""
    return (0.49 + 0.02513 * capacity / 1024.0) * PICO
