"""Area of levels and units where no table gives it, in square metres.

SRAM: the foundry's smallest published cell over the share of a macro that is cells. TSMC's cells: 0.027 um2 at 7 nm
(Chang et al., ISSCC 2017, 12.1), 0.021 at 5 and 3 nm and 0.0175 at 2 nm (IEDM 2022 and 2024); those from 40 to 10 nm
are recalled from its announcements. The share: 31.8 Mib/mm2 of cells of 0.021 um2, 38 of 0.0175, so 0.70 in both.

Registers, adders, multipliers: synthesized for 40 nm in Aladdin (Shao et al., ISCA 2014): 5.98 um2 for a bit, 278 for
an adder and 6,350 for a multiplier of 32 bits; an adder grows with its bits, a multiplier with those of both operands.
To other nodes by the area factors of Stillmaker and Baas (Integration 58, 2017, table 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

MICRO = 1e-6
NM = 1e9  # in a metre: dividing by it rounds once, so that 7 / NM is the 7e-9 that a reader of "7nm" has
SRAM_CELLS = {  # [m] -> [m2]
    node / NM: cell * MICRO**2
    for node, cell in {40: 0.242, 28: 0.127, 16: 0.07, 10: 0.042, 7: 0.027, 5: 0.021, 3: 0.021, 2: 0.0175}.items()
}
CELL_SHARE = 0.70  # of the area of a macro [1]
LOGIC_FACTORS = {  # of the area in 45 nm: [m] -> [1]
    node / NM: factor
    for node, factor in {90: 2.8, 65: 1.5, 45: 1.0, 32: 0.46, 20: 0.21, 16: 0.19, 14: 0.17, 10: 0.1, 7: 0.059}.items()
}
ALADDIN_NODE = 40.0 / NM
REGISTER_BIT = 5.98 * MICRO**2
ADDER_BIT = 278.0 / 32.0 * MICRO**2
MULTIPLIER_BITS = 6350.0 / 32.0**2 * MICRO**2  # for a bit of one operand times a bit of the other
NODES = (7.0 / NM, 40.0 / NM)  # where both tables are known


def sram_area(bits: float, node: float) -> float:
    """Macro of `bits` [1] in the process `node` [m]; nothing is added for the periphery of a small one."""
    return bits * _between(SRAM_CELLS, node) / CELL_SHARE


def register_area(bits: float, node: float) -> float:
    """Flip-flops for `bits` [1] in the process `node` [m]."""
    return bits * REGISTER_BIT * logic_factor(node)


def mac_area(multiplier: float, adder: float, node: float) -> float:
    """Integer multiplier of two operands of `multiplier` bits and an adder of `adder` bits [1], process `node` [m]."""
    return (multiplier**2 * MULTIPLIER_BITS + adder * ADDER_BIT) * logic_factor(node)


def logic_factor(node: float) -> float:
    """Area of logic in `node` [m] over that in Aladdin's [1]."""
    return _between(LOGIC_FACTORS, node) / _between(LOGIC_FACTORS, ALADDIN_NODE)


def _between(table: Mapping[float, float], node: float) -> float:
    """Of a table over nodes, straight in logarithms; only within it."""
    nodes = np.log(sorted(table))
    values = np.log([table[known] for known in sorted(table)])
    return float(np.exp(np.interp(np.log(node), nodes, values)))


# Area of an instance of a level of so many bits [1] in a node [m]; `none` is not on the die.
AREA_LAWS: dict[str, Callable[[float, float], float]] = {
    "sram": sram_area,
    "registers": register_area,
    "none": lambda bits, node: 0.0,
}
