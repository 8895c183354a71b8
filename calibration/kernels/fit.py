"""Fit a `KernelModel` to measured kernels: the law by maximum a posteriori, then the correction on its residuals.

Losses are robust (pseudo-Huber) in the logarithm of the time, and every cell of data (device and software stack) weighs
as the square root of its rows, so that no large table decides alone. Deterministic given `Settings.seed` and the number
of cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from calibration.intervals import Spread
from calibration.kernels.blocks import in_blocks
from calibration.kernels.family import FittedFamily
from calibration.kernels.inputs import Prepared
from calibration.kernels.levels import LEVELS, NO_NAMES, PRECISION, Names
from calibration.kernels.model import Correction, Inputs, KernelModel, Law, law_habits, law_offsets, no_heads
from calibration.kernels.priors import HABIT_OFFSET_SPREAD, HABIT_SPREAD, Priors, priors_of
from calibration.kernels.regimes import regime
from hwspecs.errors import InputError
from jaxperf.core.mappings import release_compiled
from jaxperf.core.numerics import as_float


@dataclass(frozen=True)
class Settings:
    """How a fit is run; the values were chosen on leave-one-generation-out inside the training devices, `steps` on
    shapes left out of decode and experts (a fold takes fewer: `calibration.kernels.calibrate.FOLD`)."""

    seed: int = 0
    law_steps: int = 500
    law_rows: int = 40_000
    prior: float = 4e-3
    steps: int = 20_000
    batch: int = 2048
    rate: float = 4e-3
    widths: tuple[int, ...] = (64, 64)
    decay: float = 1e-3
    rows_per_cell: int = 12_000
    softness: float = 0.02  # residuals below this weigh squared, above it in proportion [log 1]


DEFAULT = Settings()


def fit(data: Prepared, settings: Settings = DEFAULT, progress: Callable[[str], None] = lambda _: None) -> FittedFamily:
    """Fit one family on all usable rows with a latency.

    **Raises:** `InputError` if there are none.
    """
    release_compiled()  # every fit compiles anew: shapes and names are others
    data = usable_rows(data)
    if not len(data.table):
        raise InputError(f"{data.table.family}: no row to fit: it takes rows with a known device and a latency.")
    family = regime(data.table)
    data = data.take(sample(data.spelled["cell"], settings.rows_per_cell, settings.seed))
    names = NO_NAMES.extended(data.spelled)
    x, y, weight = data.inputs(names), log_time(data), cell_weights(data.spelled["cell"])
    few = sample_all(len(y), settings.law_rows, settings.seed)
    law = fit_law(rows_of(x, few), y[few], weight[few], counts(names), priors_of(family), settings)
    progress(f"{family}: law fitted on {len(y):,} rows")
    correction = fit_correction(law, x, y, weight, data.features, counts(names), settings)
    progress(f"{family}: correction fitted")
    return FittedFamily(family, data.names, names, KernelModel(law, correction), Spread())


def usable_rows(data: Prepared) -> Prepared:
    """The rows that can be learned from: their demands are numbers, and they have a latency."""
    latency = data.table.measured
    return data.take(np.flatnonzero(data.usable & np.isfinite(latency) & (latency > 0)))


def counts(names: Names) -> dict[str, int]:
    """How many names each level has."""
    return {level: len(names.known[level]) for level in LEVELS}


class Parts(NamedTuple):
    """What a model says of rows: the law's logarithm of the time [log s], the correction of it, and how far they lie
    outside what was measured (`Correction.excess`), each [R]."""

    law: np.ndarray
    correction: np.ndarray
    excess: np.ndarray

    @property
    def log_time(self) -> np.ndarray:
        """Logarithm of the time [log s]."""
        return np.asarray(self.law + self.correction, np.float64)


def predicted_parts(fitted: FittedFamily, data: Prepared) -> Parts:
    """What a family says of every row."""
    x = data.inputs(fitted.names, fitted.features)
    return Parts(*in_blocks(functools.partial(_model_rows, fitted.model), x, len(data.table)).T)


def log_times(fitted: FittedFamily, data: Prepared) -> np.ndarray:
    """Predicted logarithm of the time of every row [log s]."""
    return predicted_parts(fitted, data).log_time


@eqx.filter_jit
def _model_rows(model: KernelModel, x: Inputs) -> Float[Array, "R 3"]:
    parts = (model.law, model.correction, model.correction.excess)
    return jnp.stack([jax.vmap(part)(x) for part in parts], axis=1)


def log_time(data: Prepared) -> Float[Array, " R"]:
    """Logarithm of the measured time [log s]."""
    return as_float(np.log(data.table.measured))


def cell_weights(cells: np.ndarray) -> Float[Array, " R"]:
    """1 / sqrt(rows of the cell)."""
    _, which, count = np.unique(cells.astype(str), return_inverse=True, return_counts=True)
    return as_float(1.0 / np.sqrt(count[which]))


def sample(cells: np.ndarray, most: int, seed: int) -> np.ndarray:
    """At most `most` rows of each cell, drawn without replacement, in their order."""
    order = np.random.default_rng(seed).permutation(len(cells))
    _, which = np.unique(cells[order].astype(str), return_inverse=True)
    place = np.argsort(which, kind="stable")
    first = np.r_[0, np.flatnonzero(np.diff(which[place])) + 1]
    rank = np.arange(len(place)) - np.repeat(first, np.diff(np.r_[first, len(place)]))
    return np.sort(order[place[rank < most]])


def sample_all(rows: int, most: int, seed: int) -> np.ndarray:
    """At most `most` of all rows."""
    return np.sort(np.random.default_rng(seed).permutation(rows)[:most])


def robust(residual: Float[Array, " R"], softness: float) -> Float[Array, " R"]:
    """Pseudo-Huber loss: absolute beyond `softness`."""
    return jnp.sqrt(residual**2 + softness**2) - softness


def fit_law(
    x: Inputs,
    y: Array,
    weight: Array,
    names: dict[str, int],
    priors: Priors,
    settings: Settings,
) -> Law:
    """Maximum a posteriori parameters of the law (Adam, full batch)."""
    start = new_law({name: mean for name, (mean, _) in priors.scalars.items()}, names, x.habits.shape[-1])
    with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by its integer step
        law = _descend_law(start, x, y, weight, priors, settings)
    last_is_zero = lambda levels: {level: each.at[-1].set(0.0) for level, each in levels.items()}  # noqa: E731
    learned = last_is_zero(law.offsets), last_is_zero(law.habit_offsets)
    return eqx.tree_at(lambda tree: (tree.offsets, tree.habit_offsets), law, learned)


def new_law(means: Mapping[str, float], names: dict[str, int], habits: int) -> Law:
    """A law whose levels and habits are all zero."""
    return Law(
        **{name: as_float(mean) for name, mean in means.items()},
        habits=jnp.zeros((2, habits)),
        offsets=law_offsets(names),
        habit_offsets=law_habits(names, habits),
        factors=jnp.zeros(names["cell"] + 1),
    )


@eqx.filter_jit
def _descend_law(start: Law, x: Inputs, y: Array, weight: Array, priors: Priors, settings: Settings) -> Law:
    usual = as_float([priors.spread])
    spread = {level: usual * priors.stack if level == "stack" else usual for level in start.offsets}
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-2, settings.law_steps))

    def loss(law: Law) -> Array:
        law = eqx.tree_at(lambda tree: tree.factors, law, start.factors)  # not fitted: see `Law`
        kept = {level: each if level in priors.levels else start.offsets[level] for level, each in law.offsets.items()}
        law = eqx.tree_at(lambda tree: tree.offsets, law, kept)
        error = jnp.sum(weight * robust(jax.vmap(law)(x) - y, settings.softness)) / jnp.sum(weight)
        prior = sum(((getattr(law, name) - mean) / sd) ** 2 for name, (mean, sd) in priors.scalars.items())
        levels = sum(jnp.sum((offset / spread[level]) ** 2) for level, offset in law.offsets.items())
        levels += sum(jnp.sum((each / HABIT_OFFSET_SPREAD) ** 2) for each in law.habit_offsets.values())
        levels += jnp.sum((law.habits / HABIT_SPREAD) ** 2)
        return error + settings.prior * (prior + 0.3 * levels)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        law, state = carry
        updates, state = optimizer.update(jax.grad(loss)(law), state)
        return (eqx.apply_updates(law, updates), state), None

    first: Any = start
    return jax.lax.scan(step, (first, optimizer.init(first)), None, length=settings.law_steps)[0][0]


def fit_correction(
    law: Law, x: Inputs, y: Array, weight: Array, measured: np.ndarray, names: dict[str, int], settings: Settings
) -> Correction:
    """The network and the heads, on the law's residuals (Adam, minibatches)."""
    start = new_correction(measured, names, settings)
    keys = jax.random.split(jax.random.key(settings.seed + 1), settings.steps)
    with jax.numpy_dtype_promotion("standard"):
        learned = _descend_correction(start, law, x, y, weight, keys, settings)
    heads = {level: head.at[-1].set(0.0) for level, head in learned.heads.items()}
    return eqx.tree_at(lambda tree: tree.heads, learned, heads)


@eqx.filter_jit
def _descend_correction(
    start: Correction, law: Law, x: Inputs, y: Array, weight: Array, keys: Array, settings: Settings
) -> Correction:
    base = jax.vmap(law)(x)
    learn = lambda c: (c.layers, c.shared, c.heads)  # noqa: E731
    optimizer = optax.adam(optax.cosine_decay_schedule(settings.rate, settings.steps))
    total = sum(len(head) - 1 for head in start.heads.values()) or 1

    def loss(learned: Any, rows: Array) -> Array:
        correction = eqx.tree_at(learn, start, learned)
        error = robust(base[rows] + jax.vmap(correction)(rows_of(x, rows)) - y[rows], settings.softness)
        penalty = sum(PRECISION[level] * jnp.sum(head**2) for level, head in correction.heads.items()) / total
        return jnp.sum(weight[rows] * error) / jnp.sum(weight[rows]) + settings.decay * penalty

    def step(carry: Any, key: Array) -> tuple[Any, None]:
        learned, state = carry
        rows = jax.random.randint(key, (settings.batch,), 0, len(y))
        updates, state = optimizer.update(jax.grad(loss)(learned, rows), state)
        return (optax.apply_updates(learned, updates), state), None

    learned = jax.lax.scan(step, (learn(start), optimizer.init(learn(start))), keys)[0][0]
    return eqx.tree_at(learn, start, learned)


def new_correction(measured: np.ndarray, names: dict[str, int], settings: Settings) -> Correction:
    """A correction of zero: random layers, zero heads, features standardized and bounded by what was measured."""
    sizes = (measured.shape[1], *settings.widths)
    keys = jax.random.split(jax.random.key(settings.seed), len(sizes))
    layers = [
        (jax.random.normal(key, (given, made)) * given**-0.5, jnp.zeros(made))
        for key, given, made in zip(keys, sizes[:-1], sizes[1:], strict=False)
    ]
    low, high = np.quantile(measured, [0.001, 0.999], axis=0)
    return Correction(
        center=as_float(measured.mean(axis=0)),
        scale=as_float(measured.std(axis=0) + 1e-3),
        lowest=as_float(low),
        highest=as_float(high),
        layers=layers,
        shared=jnp.zeros(sizes[-1] + 1),
        heads=no_heads(names, sizes[-1] + 1),
        share=as_float(1.0),
    )


def rows_of(x: Inputs, rows: Array | np.ndarray) -> Inputs:
    """Some of the rows."""
    return jax.tree.map(lambda leaf: leaf[rows], x)
