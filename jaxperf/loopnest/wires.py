"""Wires between an instance of a level and its children, which sit on a square mesh around it."""

from __future__ import annotations

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.accesses import Accesses
from jaxperf.loopnest.architecture import Level


def mesh_hops(multicast: Scalar, children: Scalar) -> Scalar:
    """Hops of a word that enters a mesh of n `children` at the middle of a side and reaches f of them [1].

    sqrt(n f) + (sqrt(n) - sqrt(f)) / 2 - sqrt(n / f) + 1/2: along the columns it needs and up each of them. Timeloop,
    src/model/network-legacy.cpp (Parashar et al., ISPASS 2019). Results come back the same way.
    """
    n, f = (jnp.sqrt(jnp.maximum(count, 1.0)) for count in (children, multicast))
    return n * f + 0.5 * (n - f) - n / f + 0.5


def wire_energy(level: Level, counted: Accesses, words: Scalar) -> Scalar:
    """Energy of `words` of one operand between one instance and its children [J]."""
    return words * mesh_hops(counted.multicast, counted.children) * level.hop_energy
