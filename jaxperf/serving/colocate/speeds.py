"""How fast engines run in every combination of what they do at the same time, over their speeds alone.

A combination is a place in `PHASES`, or `IDLE`, for each engine.
"""

from __future__ import annotations

import jax
import numpy as np

from jaxperf.core.numerics import as_float
from jaxperf.serving.colocate.overlap import IDLE, PHASES
from jaxperf.serving.techniques.colocation import fair_speeds

_fair_speeds = jax.jit(jax.vmap(fair_speeds))


def combinations(engines: int) -> np.ndarray:
    """All of them, the state of the last engine changing fastest [combinations, engines]."""
    return np.array(list(np.ndindex(*[len(PHASES) + 1] * engines)))


def speeds_side_by_side(states: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Kernels of all engines at once (MPS): max-min fair in what each phase needs [combinations, engines] [1].

    **Arguments:** `states` [combinations, engines]; `shares` [engines, phases, resources]: of the time
    of a step alone that it keeps each resource busy [1].
    """
    return np.asarray(_fair_speeds(as_float(_needs(states, shares))))


def speeds_in_turns(states: np.ndarray) -> np.ndarray:
    """Time slices: of k engines that have work each has 1 / k of the time [combinations, engines] [1]."""
    working = (states != IDLE).sum(axis=1, keepdims=True)
    return np.broadcast_to(1.0 / np.maximum(working, 1), states.shape)


def busy_seconds(states: np.ndarray, seconds: np.ndarray, speeds: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """How long each engine keeps the resources busy, in all combinations together [engines, resources] s.

    **Arguments:** `seconds` [combinations] s; `speeds` [combinations, engines]; the others as above.
    """
    return np.einsum("c,ce,cer->er", seconds, speeds, _needs(states, shares))


def _needs(states: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """What each engine needs at full speed, nothing where it is idle [combinations, engines, resources]."""
    engines, _, resources = shares.shape
    with_idle = np.concatenate([shares, np.zeros((engines, 1, resources))], axis=1)
    return with_idle[np.arange(engines), states]
