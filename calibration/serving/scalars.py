"""The scalars of engines and clients that are fitted, and how they are shared: each a sum of levels, shrunk towards 0.

    u = mean + deviation_all + deviation_class + deviation_engine + ...        value = exp(u), or logistic(u) of a share

An engine, a release or an architecture that nobody measured has none of its deviations, so it gets what all have in
common (Gelman and Hill 2007, chapter 12). One release on one device in one mode ("site") is one campaign of
measurements, and has one client; where no release is stated, one source is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from calibration.serving.layouts import Deployed
from jaxperf.core.formats import FORMATS
from jaxperf.core.sustained import format_class


@dataclass(frozen=True)
class Scalar:
    """One number: where it starts (log or logit) and the `deviations` of its levels; `bounded`: a share in (0, 1);
    `least`: what it stays above."""

    mean: float
    deviations: Mapping[str, float]
    bounded: bool = False
    least: float = 0.0


# Measured over priced time of all kernels of a step, which no engine and no model comes below (single kinds have
# factors of their own beside it): they are priced at what they sustain, about six tenths of the roofline for FP8
# products.
FASTEST = 0.6
SCALARS: Mapping[str, Scalar] = MappingProxyType(
    {
        # Measured over priced time: of all kernels of a step, then of kinds of them beside it [1]. Collectives start at
        # 1.16, what engines' all-reduces of 16 KB to 4 MB on A100 and H100 take over their price.
        # Floors are of every kernel alike (`pieces.KERNEL_GAP`); how much of them is left is the engine's: little where
        # graphs are replayed, all of it where kernels are launched one by one. Peers: what one-shot all-reduces read.
        "decode": Scalar(0.0, {"class": 0.05, "engine": 0.15, "site": 0.1, "kin": 0.1}, least=FASTEST),
        "prefill": Scalar(
            0.0,
            {"class": 0.1, "engine": 0.1, "engine class": 0.05, "workers": 0.1, "device": 0.1, "kin": 0.3},
            least=FASTEST,
        ),
        "dense": Scalar(0.0, {"class": 0.15}),
        "experts": Scalar(0.0, {"all": 0.2, "engine": 0.1}),
        "attention": Scalar(0.0, {"all": 0.2, "engine": 0.05}),
        "light": Scalar(0.0, {"all": 0.3, "engine": 0.1}),
        "collective": Scalar(0.15, {"all": 0.3, "engine": 0.1}),
        # Between nodes no engine has kernels of its own: nothing but the library's model is known.
        "between": Scalar(0.0, {"all": 0.3}),
        "peers": Scalar(-0.5, {"all": 0.5, "engine": 1.0}),
        "floor": Scalar(0.0, {"all": 0.15, "engine": 0.5}),
        "prefill_experts": Scalar(0.0, {"all": 0.3, "engine": 0.2}),
        "prefill_collective": Scalar(0.0, {"all": 0.3, "engine": 0.3}),
        # Host time of a decode step, of each of its sequences, of a prefill step [s].
        "step": Scalar(-7.0, {"all": 0.5, "engine": 0.5, "release": 0.3}),
        "sequence": Scalar(-11.0, {"all": 0.5, "engine": 0.7, "release": 0.5}),
        "prefill_step": Scalar(-6.0, {"all": 0.7, "engine": 0.7}),
        # Host time to launch a kernel: next to none where graphs are replayed, tens of us where an engine in Python
        # launches each alone (wider, the fit without the H100 takes 130 us for what the first token waits for) [s].
        "launch": Scalar(-12.0, {"engine": 1.5}),
        "prefill_launch": Scalar(-11.0, {"all": 0.4, "engine": 0.5}),
        # Time to first token beside the steps: of every request, and for each request in flight [s].
        "first": Scalar(-3.5, {"all": 0.7, "engine": 0.4, "site": 0.7}),
        "first_each": Scalar(-8.0, {"all": 1.0, "engine": 0.7}),
        # From a request's last token until the engine has the next request: of every turn, and for each token of the
        # prompt [s].
        "turn": Scalar(-4.5, {"all": 0.5, "engine": 0.5, "site": 0.3}),
        "tokenize": Scalar(-13.0, {"all": 0.7}),
        "handover": Scalar(-2.5, {"all": 1.0, "engine": 1.0, "release": 1.0}),
        "slots": Scalar(0.0, {"all": 0.05}),
        # Requests that wait for a slot: next to none, yet enough for the fit to see which way to go.
        "held": Scalar(-4.0, {"engine": 2.0, "kin": 2.0}),
        # One over the waves that a client sends: ten by the documents of both (`clients`), not all do so.
        "synchrony": Scalar(-2.2, {"site": 0.5}, bounded=True),
        # Share of the bursts that stay together where prefill steps do not decode: all, unless lengths differ.
        "lockstep": Scalar(2.0, {"site": 2.0}, bounded=True),
        "wait": Scalar(0.0, {"all": 0.5, "engine": 0.3, "site": 0.3}),
        "pool_synchrony": Scalar(-2.2, {"all": 1.0, "engine": 1.0}, bounded=True),
    }
)


TAILED = frozenset({"kin", "site"})  # levels of one model and of one campaign: most are alike, a few far off
ENDING_ZEROS = re.compile(r"( \d[\d.]*?)(?:\.0)+(?= |$)")  # of a release, which stands between spaces or at the end


@dataclass(frozen=True)
class Design:
    """Where each configuration finds its levels: `names` of the T fitted numbers with their prior deviation [T];
    `places[scalar]` [levels, rows] into the numbers, T (which holds 0) where a level was not fitted."""

    names: tuple[str, ...]
    deviation: np.ndarray
    places: Mapping[str, np.ndarray]


def levels_of(points: Sequence[Deployed]) -> dict[str, list[str]]:
    """The value of every level for each configuration."""
    classes = [format_class(FORMATS[point.weights].compute) for point in points]
    narrow = [f"{name} {FORMATS[point.weights].itemsize:.0f}" for name, point in zip(classes, points, strict=True)]
    engines = [f"{p.configuration.engine}{' static' * p.launched}" for p in points]
    return {
        "all": [""] * len(points),
        "class": narrow,
        "engine": engines,
        "engine class": [f"{engine} {name}" for engine, name in zip(engines, narrow, strict=True)],
        "release": [f"{e} {p.configuration.version}" for e, p in zip(engines, points, strict=True)],
        # Whether prompts and outputs have workers of their own, which are set up otherwise than those that do both.
        "workers": [f"{e} {p.configuration.mode == 'disagg'}" for e, p in zip(engines, points, strict=True)],
        "site": [
            f"{e} {p.configuration.version or p.configuration.source} {p.configuration.mode} {p.spec.name}"
            for e, p in zip(engines, points, strict=True)
        ],
        "device": [point.spec.name for point in points],
        "kin": [f"{e} {p.architecture}" for e, p in zip(engines, points, strict=True)],
    }


def design_of(points: Sequence[Deployed], names: Sequence[str] | None = None) -> Design:
    """The design of configurations: with a number for every level they have, or with the fitted `names`."""
    levels = levels_of(points)
    keys = {
        field: [[f"{field}/{level}/{value}" for value in levels[level]] for level in scalar.deviations]
        for field, scalar in SCALARS.items()
    }
    every = dict.fromkeys(name for columns in keys.values() for column in columns for name in column)
    fitted = tuple(every) if names is None else tuple(names)
    index = {_of_release(name): place for place, name in enumerate(fitted)}
    index |= {name: place for place, name in enumerate(fitted)}
    places = {
        field: np.array(
            [[index.get(name, index.get(_of_release(name), len(fitted))) for name in column] for column in columns]
        )
        for field, columns in keys.items()
    }
    return Design(fitted, np.array([deviation_of(name) for name in fitted]), places)


def _of_release(name: str) -> str:
    """The name of a number without the zeros at the end of a release: 0.12 is 0.12.0 (PEP 440)."""
    return ENDING_ZEROS.sub(r"\1", name)


def deviation_of(name: str) -> float:
    """The prior deviation of a fitted number. Raises `KeyError` or `ValueError` where no scalar has that level."""
    field, level, _ = name.split("/", 2)
    return SCALARS[field].deviations[level]


def tailed(names: Sequence[str]) -> np.ndarray:
    """Which fitted numbers are of the levels `TAILED` [T]."""
    return np.array([name.split("/", 2)[1] in TAILED for name in names], bool)


@jax.jit
def values_of(fitted: Float[Array, " T"], places: Mapping[str, Array]) -> dict[str, Float[Array, " rows"]]:
    """Every scalar for every row."""
    padded = jnp.append(fitted, jnp.zeros((), fitted.dtype))
    found = {}
    for field, scalar in SCALARS.items():
        moved = scalar.mean + padded[places[field]].sum(0)
        found[field] = jax.nn.sigmoid(moved) if scalar.bounded else above(scalar.least, moved)
    return found


def above(least: float, moved: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """exp(moved) from 0 up, below with the same slope at 0 towards `least` instead of 0."""
    room = 1.0 - least
    return jnp.where(moved < 0.0, least + room * jnp.exp(jnp.minimum(moved, 0.0) / room), jnp.exp(moved))
