"""Energy of an access or an operation in another process, as a multiple of what it is in the process it is known for.

Jouppi et al., "Ten Lessons From Three Generations Shaped Google's TPUv4i", ISCA 2021, table 2, has the same operations
in 45 and in 7 nm (as recalled, like the energies of `hwspecs/processes`); between the two, straight in logarithms.
SRAM gains the more the larger it is, since wires gain least in cells close by; DRAM does not follow the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jaxperf.loopnest.area import NM

NODES = (7.0 / NM, 45.0 / NM)  # [m]
KB = 1024.0
# Energy in 45 and in 7 nm [pJ]; of SRAM that of 64 bits by capacity [byte].
MULTIPLY_ADD = (0.2 + 0.1, 0.07 + 0.03)  # 8-bit multiplication, 32-bit addition
FLIP_FLOPS = (0.1, 0.03)  # logic: the 32-bit addition
SRAM = {8.0 * KB: (10.0, 7.5), 32.0 * KB: (20.0, 8.5), 1024.0 * KB: (100.0, 14.0)}


def mac_factor(after: float, before: float) -> float:
    """Of a multiply-accumulate unit: energy in the process `after` over that in `before` [m]."""
    return (after / before) ** _exponent(*MULTIPLY_ADD)


def register_factor(capacity: float, after: float, before: float) -> float:
    """Of flip-flops, as many as there are."""
    return (after / before) ** _exponent(*FLIP_FLOPS)


def sram_factor(capacity: float, after: float, before: float) -> float:
    """Of a macro of `capacity` [byte]: its exponent straight in ln capacity, and at the ends that of the table."""
    exponents = [_exponent(*SRAM[known]) for known in sorted(SRAM)]
    return (after / before) ** float(np.interp(math.log(capacity), np.log(sorted(SRAM)), exponents))


def _exponent(old: float, new: float) -> float:
    """Of the feature size, between the two processes [1]."""
    return math.log(old / new) / math.log(NODES[1] / NODES[0])


# By what a level is made of, a key of `area.AREA_LAWS`; what is not on the die does not follow its process.
LEVEL_FACTORS: dict[str, Callable[[float, float, float], float]] = {
    "sram": sram_factor,
    "registers": register_factor,
    "none": lambda capacity, after, before: 1.0,
}
