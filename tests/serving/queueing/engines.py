"""Engines with made-up steps, and their steady state compiled once, for the tests of it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import numpy as np

from jaxperf.core.numerics import Scalar, as_float
from jaxperf.serving.queueing.engine import Discipline, Engine, Load
from jaxperf.serving.queueing.law import StepLaw
from jaxperf.serving.queueing.lengths import Lengths
from jaxperf.serving.queueing.open_loop import SteadyQueue, steady_state
from jaxperf.serving.queueing.saturated import request_cost
from jaxperf.serving.queueing.tail import percentile

REACH, GRAIN = 8192, 64.0


def straight_law(
    floor: float = 7e-3, token: float = 2.3e-5, decode: tuple[float, ...] = (4e-4, 0.0, 4e-8), start: float = 6e-4
) -> StepLaw:
    """linear(T) = max(floor + a little, token x T): memory-bound, then compute-bound, without stairs [s]."""
    starts = np.arange(REACH / GRAIN) * GRAIN
    linear = lambda tokens: np.maximum(floor * (1.0 + 1e-5 * tokens), token * tokens)  # noqa: E731
    return StepLaw(
        first=as_float(linear(starts + 1.0)),
        last=as_float(linear(starts + GRAIN)),
        grain=as_float(GRAIN),
        decode=as_float(decode),
        prefill=as_float((start, 0.0, 0.0, 0.0, 0.0)),
    )


def even_law(linear: float, decode: tuple[float, ...], prefill: tuple[float, ...]) -> StepLaw:
    """Linear layers of the same time [s] for any number of tokens; of the same shape as `straight_law`."""
    level = np.full(int(REACH / GRAIN), linear)
    return StepLaw(*map(as_float, (level, level, GRAIN, decode, prefill)))


@functools.cache
def _states(discipline: Discipline) -> Callable[[StepLaw, Load, Engine], SteadyQueue]:
    return jax.jit(functools.partial(steady_state, discipline))


def steady(discipline: Discipline, law: StepLaw, load: Load, engine: Engine) -> SteadyQueue:
    """The steady state, compiled once for all tests."""
    return _states(discipline)(law, load, engine)


percentiles = jax.jit(percentile)


@functools.cache
def _costs(discipline: Discipline) -> Callable[[StepLaw, Load, Engine], Scalar]:
    return jax.jit(functools.partial(request_cost, discipline))


def most_of(discipline: Discipline, law: StepLaw, lengths: tuple[Lengths, Lengths], engine: Engine) -> float:
    """The rate that an engine can serve [1/s]."""
    return 1.0 / float(_costs(discipline)(law, Load(1.0, *lengths), engine))
