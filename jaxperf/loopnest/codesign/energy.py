"""How the energy of an access grows with the size of a level: only the ratio to a known machine is used.

Lines of DOSA (Hong et al., MICRO 2023; see `energy.py`), fitted to CACTI in 40 nm. Accelergy's smartbuffer_RF takes a
register file of less than 64 words to need (depth / 64)^0.78 of what one 64 words deep does; more it does not say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.loopnest.energy import dosa_accumulator_energy, dosa_scratchpad_energy

DEEPEST = 64.0  # register file that the exponent is given for [access]
DEPTH_EXPONENT = 0.78


def register_file_energy(depth: Scalar) -> Scalar:
    """Energy of an access of a register file of `depth`, of one that is `DEEPEST` [1]; NaN for one that is deeper."""
    known = as_float(depth) <= DEEPEST
    return jnp.where(known, jnp.where(known, depth / DEEPEST, 1.0) ** DEPTH_EXPONENT, math.nan)


# Energy of an access of a level of `capacity` [byte] and `depth`, its size in accesses [1], in units of its own; NaN
# where the law is not known.
LAWS: dict[str, Callable[[Any, Any], Any]] = {
    "sram": lambda capacity, depth: dosa_scratchpad_energy(capacity),
    "accumulator": lambda capacity, depth: dosa_accumulator_energy(capacity),
    "regfile": lambda capacity, depth: register_file_energy(depth),
    "fixed": lambda capacity, depth: 1.0,
}
