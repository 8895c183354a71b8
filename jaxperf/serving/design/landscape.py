"""Measures around a design, over one or two of its free sizes, for a picture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwspecs.errors import InputError
from jaxperf.serving.design.answer import CAPACITY, Design, Question, range_of, served_of
from jaxperf.serving.design.search import grid_of, measures_over
from jaxperf.serving.design.sized import SIZES, size_of

POINTS = 65  # along each size


class Landscape(NamedTuple):
    """`sizes`: one or two free facts -> their numbers [n], in SI units; `measures`: of every combination [n] or [n, n],
    NaN where the model cannot run."""

    sizes: dict[str, np.ndarray]
    measures: dict[str, np.ndarray]


def landscape(question: Question, found: Design) -> Landscape:
    """Measures over the ranges of the first two free sizes; the others are those of the design."""
    shown = shown_sizes(question)
    ends = {name: range_of(question, name) for name in shown}
    fixed = {name: np.array([each]) for name, each in found.best.sizes.items() if name not in shown}
    axes = fixed | {name: grid_of(name, ends[name], POINTS, question.spec.num_cores.si) for name in shown}
    measures = measures_over(*served_of(question), [axes[name] for name in SIZES], CAPACITY in question.free)
    kept = tuple(slice(None) if name in shown else 0 for name in SIZES)
    values = {name: np.asarray(value)[kept] for name, value in measures.items()}
    return Landscape({name: axes[name] * size_of(question.spec, name).si for name in shown}, values)


def shown_sizes(question: Question) -> tuple[str, ...]:
    """Which sizes a picture has. Raises `InputError` where none is free."""
    shown = tuple(name for name in SIZES if name in question.free)[:2]
    if not shown:
        raise InputError(f"A picture of a design needs a free size: {', '.join(SIZES)}.")
    return shown
