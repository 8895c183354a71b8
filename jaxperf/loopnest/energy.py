"""Energy of an access where no table gives it: parametric forms of published tools, in joules.

Timeloop's built-in model (src/model/pat, NVIDIA): a line in the capacity, scaled to the width. DOSA (Hong et al.,
MICRO 2023): lines fitted to CACTI for a Gemmini in 40 nm. Energies per bit of DRAM: `hwcomponents_cacti`.
"""

from __future__ import annotations

from typing import TypeVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxperf.core.numerics import Scalar

PICO = 1e-12
Number = TypeVar("Number", float, Array)  # of a table's row, or traced

# Energy of a bit that is read or written [J/bit], by kind of memory (hwcomponents_cacti).
DRAM_BIT_ENERGY = {
    "hbm2": 6.25 * PICO,
    "hbm3": 4.05 * PICO,
    "hbm4": 3.2 * PICO,
    "lpddr": 40.0 * PICO,
    "lpddr4": 8.0 * PICO,
    "ddr3": 70.0 * PICO,
}
DOSA_MAC_ENERGY = 0.5608 * PICO  # 8-bit multiply, 32-bit add [J]
DOSA_REGISTER_ENERGY = 0.4875 * PICO  # a byte in a register of a processing element [J]
DOSA_DRAM_ENERGY = 100.0 * PICO  # a byte of DRAM [J]
DOSA_DRAM_BLOCK = 64.0  # bytes that DRAM moves at once [byte]


def pat_sram_energy(capacity: Number, width: Number) -> Number:
    """(1 + 5 (KB - 0.5) / 99.5) width / 16 pJ for an access to an SRAM of `capacity` [byte] and `width` [bit]."""
    return (1.0 + 5.0 * (capacity / 1024.0 - 0.5) / 99.5) * width / 16.0 * PICO


def pat_dram_energy(width: Number) -> Number:
    """200 width / 16 pJ for an access to DRAM of `width` [bit]."""
    return 200.0 * width / 16.0 * PICO


def pat_mac_energy(width: Number) -> Number:
    """(width / 16)^2 pJ for a multiply-accumulate of operands of `width` [bit]."""
    return width / 16.0 * (width / 16.0) * PICO


def dosa_accumulator_energy(capacity: Number) -> Number:
    """1.94 + 0.1005 KB pJ for a word of an accumulator bank of `capacity` [byte], one bank to a column of the array."""
    return (1.94 + 0.1005 * capacity / 1024.0) * PICO


def dosa_scratchpad_energy(capacity: Number) -> Number:
    """0.49 + 0.02513 KB pJ for a byte of a scratchpad of `capacity` [byte]."""
    return (0.49 + 0.02513 * capacity / 1024.0) * PICO


def scaled_register_file_energy(energy: Scalar, width: Scalar, depth: Scalar) -> Scalar:
    """Dynamic energy of a `width` [bit] x `depth` [1] file, from that of the smallest macro CACTI models, 32 x 64.

    E (width / max(32, width)) (depth / max(64, depth))^0.78, the scaling of Timeloop's `smartbuffer_RF`.
    """
    return energy * (width / jnp.maximum(width, 32.0)) * (depth / jnp.maximum(depth, 64.0)) ** 0.78
