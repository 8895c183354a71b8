"""Operations that are made, gated, skipped or never met, from the states of their operands.

Wu et al., MICRO 2022, section 5.3.4, and Timeloop's src/sparse-analysis/compute-gs-analyzer.cpp. What follows a leader
only reaches the units where the leader's tile is not empty; there an operand is not zero with probability
d / (1 - P(leader tile empty)), and else it is zero (stored as it is) or absent (its storage has metadata).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from jaxperf.core.numerics import Scalar
from jaxperf.loopnest.mapping import product
from jaxperf.loopnest.sparse.whole import round_down


class Split(NamedTuple):
    """A count by what becomes of it: made in full, gated (takes its time, little energy) or skipped [1]."""

    actual: Scalar
    gated: Scalar
    skipped: Scalar


class State(NamedTuple):
    """One operand at the units. `filled`: probability that it is not zero where the units see it [1]; `absent`:
    whether its zeros are left out of its storage."""

    filled: Scalar
    absent: bool


def filled_share(density: Scalar, empty: Sequence[Scalar]) -> Scalar:
    """d / prod (1 - P(its own leader tile empty)) over the followers that it leads, at most 1 [1]."""
    met = product(1.0 - each for each in empty)
    possible = met > 0.0
    return jnp.where(possible, jnp.clip(density / jnp.where(possible, met, 1.0), 0.0, 1.0), 0.0)


def operations(
    macs: Scalar, saved: Sequence[Scalar], states: Sequence[State], gates_zeros: bool, skips_unaligned: bool
) -> Split:
    """What becomes of the operations of a nest.

    **Arguments:** `macs` [1]; `saved`: share that no follower is delivered for, of each follower [1]; `gates_zeros`:
    units gate where an operand is zero; `skips_unaligned`: they look for operands of which all exist.
    """
    reached = macs
    for share in saved:
        reached = reached - round_down(reached * share)
    stored = product(state.filled for state in states if not state.absent)
    present = product(state.filled for state in states if state.absent)
    partial, none = _alignment(states, present)
    zero = present * (1.0 - stored)
    nothing = jnp.zeros_like(reached)
    skipped = round_down(reached * partial) if skips_unaligned else nothing
    gated = nothing
    if gates_zeros:
        gated = round_down(reached * (zero if skips_unaligned else zero + partial))
    return Split(reached - skipped - gated - round_down(reached * none), gated, skipped)


def _alignment(states: Sequence[State], present: Scalar) -> tuple[Scalar, Scalar]:
    """Probabilities that some operands are absent where others are not, and that all are [1]."""
    all_absent = all(state.absent for state in states) and bool(states)
    none = product(1.0 - state.filled for state in states) if all_absent else jnp.zeros_like(present)
    return jnp.maximum(1.0 - present - none, 0.0), none
