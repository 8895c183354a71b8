"""Fit the composition of iterations: how a framework's in-graph times follow from isolated kernels.

Each measured iteration is one row; the kernels of its device are predicted by fitted kernel parameters. The loss is
robust in the logarithm of the forward and of the backward time, devices weigh alike, and priors hold what a handful
of iterations cannot tell. Deterministic: full batch, no random number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from calibration.composition.kernel_times import KernelTimes
from calibration.composition.rows import Row
from calibration.kernels.fit import robust
from jaxperf.core.numerics import as_float
from jaxperf.models.composition import Composition, Iteration, iteration_time, shared_limit
from jaxperf.models.graph import Op
from jaxperf.models.graph_steps import Laid, Steps

# Prior mean and standard deviation of the logarithm of each parameter, by variant. Host times: a node without a kernel
# takes 6 to 12 us with the events that measure it (label_ops). In-graph times are those of isolated kernels but for
# what a warm or a cold cache changes. Gradients are accumulated in full: the measured backward passes follow each other
# without clearing them (NeuSight, neusight/Tracing/trace.py, measure_e2e). A compiled graph issues its kernels from one
# call, without a framework's node around each. A table that was taken eagerly holds the launch in every time, most of
# which a graph hides. Assumed: kernels that wait for memory draw seven tenths of the limit of power.
PRIORS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "plain": {
        "launch": (float(np.log(5e-6)), 0.3),
        "node": (float(np.log(5e-6)), 0.3),
        "gap": (float(np.log(1e-6)), 0.5),
        "overhead": (float(np.log(1e-4)), 0.7),
        "dense": (0.0, 0.05),
        "stream": (0.0, 0.1),
        "backward_dense": (0.0, 0.05),
        "backward_stream": (0.0, 0.2),
        "accumulate": (0.0, 0.1),
        "hidden": (float(np.log(0.7)), 0.3),
        "draw": (float(np.log(0.7)), 0.2),
    },
}
PRIORS = {**PRIORS, "fusion": {**PRIORS["plain"], "node": (float(np.log(1e-6)), 0.5), "stream": (0.0, 0.2)}}
STEPS, RATE = 150, 5e-2
SOFTNESS = 0.03
STRENGTH = 3e-3  # weight of the priors against the mean loss of the rows


@dataclass(frozen=True)
class Sample:
    """One row with its graph laid out, the isolated times of its distinct kernels, with the limit of power and without
    [K], and of an empty one [s]."""

    row: Row
    laid: Laid
    times: np.ndarray
    unlimited: np.ndarray
    empty: float


class Batch(Sequence[Sample]):
    """Samples, and their arrays padded to one shape: `steps`, `times`, `unlimited`, `empty` with a leading axis [R]."""

    def __init__(self, samples: Sequence[Sample]):
        self.samples = tuple(samples)
        steps = max(len(s.laid.steps.kernel) for s in samples)
        kernels = max(len(s.laid.ops) for s in samples)
        padded = [_padded(s.laid.steps, steps, kernels) for s in samples]
        self.steps: Steps = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
        self.times = _rows([s.times for s in samples], kernels)
        self.unlimited = _rows([s.unlimited for s in samples], kernels)
        self.empty = as_float([s.empty for s in samples])

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def _rows(columns: Sequence[np.ndarray], length: int) -> Array:
    """Columns of different lengths as rows of one, zeros behind them."""
    return as_float([np.pad(each, (0, length - len(each))) for each in columns])


def _padded(steps: Steps, length: int, kernels: int) -> Steps:
    """The steps at another length and number of kernels, without the edges, which one stream does not need."""
    own = steps.dense.shape[0]
    fill = length - steps.kernel.shape[0]
    pad = lambda leaf, value: jnp.pad(leaf, (0, fill), constant_values=value)  # noqa: E731
    nodes = steps.times.shape[0]
    executed = jnp.concatenate([steps.times, jnp.zeros(1)])[steps.owner]
    return Steps(
        kernel=pad(jnp.where(steps.kernel < own, steps.kernel, kernels), kernels),
        count=pad(steps.count, 0.0),
        node=pad(steps.node, 0.0),
        part=pad(steps.part, 0),
        repeats=pad(steps.repeats, 0.0),
        dense=jnp.pad(steps.dense, (0, kernels - own)),
        before=jnp.zeros((0, 1), jnp.int32),
        owner=jnp.arange(length, dtype=jnp.int32),
        times=pad(executed, 0.0) if nodes else jnp.zeros(length),
    )


def distinct_ops(laid: Sequence[Laid]) -> list[Op]:
    """The distinct kernels of several graphs."""
    return list({op.key: op for each in laid for op in each.ops}.values())


def samples_of(
    rows: Sequence[Row], laid: Mapping[tuple, Laid], times: KernelTimes, ops: Sequence[Op], devices: Sequence[str]
) -> list[Sample]:
    """The rows with the times of their kernels, from `times` of `ops` on `devices`."""
    place = {op.key: position for position, op in enumerate(ops)}
    where = {name: position for position, name in enumerate(devices)}
    found = []
    for row in rows:
        graph = laid[row.configuration]
        index = [place[op.key] for op in graph.ops]
        found.append(sample_of(row, graph, times, where[row.device], index))
    return found


def sample_of(row: Row, laid: Laid, times: KernelTimes, device: int, index: Sequence[int]) -> Sample:
    """A row with the times of its kernels, those at `index` of `times` on its device."""
    limited, free = times.predicted[device, index], times.unlimited[device, index]
    return Sample(row, laid, limited, free, float(times.empty[device]))


@jax.jit
def _iterations(steps: Steps, times: Array, unlimited: Array, empty: Array, composition: Composition) -> Iteration:
    times = relieved(steps, times, unlimited, composition)
    return jax.vmap(iteration_time, in_axes=(0, 0, None, 0))(steps, times, composition, empty)


@jax.jit
def relieved(steps: Steps, times: Array, unlimited: Array, composition: Composition) -> Array:
    """The kernels' times where each iteration as a whole keeps the limit of power, [R, K] [s]."""
    return jax.vmap(shared_limit, in_axes=(0, 0, 0, None))(steps, times, unlimited, composition.draw)


def iterations(batch: Batch, composition: Composition) -> Iteration:
    """Every row's iteration [R]."""
    return _iterations(batch.steps, batch.times, batch.unlimited, batch.empty, composition)


def composition_of(logs: Mapping[str, Array]) -> Composition:
    """The composition whose parameters have these logarithms."""
    return Composition(**{name: jnp.exp(value) for name, value in logs.items()})


def fit_composition(batch: Batch | None, variant: str, without: str = "") -> Composition:
    """Maximum a posteriori parameters of a variant (Adam, full batch); the prior means where there are no rows.

    Rows of the device `without` have no weight.
    """
    priors = PRIORS[variant]
    start = {name: as_float(mean) for name, (mean, _) in priors.items()}
    rows = [] if batch is None else [sample.row for sample in batch]
    if batch is None or all(row.device == without for row in rows):
        return composition_of(start)
    forward = as_float([r.label_forward if np.isfinite(r.label_forward) else r.label for r in rows])
    backward = as_float([r.label - r.label_forward if r.mode == "train" else np.nan for r in rows])
    counts = {name: sum(r.device == name for r in rows) for name in {r.device for r in rows}}
    weight = as_float([0.0 if r.device == without else 1.0 / counts[r.device] for r in rows])
    with jax.numpy_dtype_promotion("standard"):  # optax multiplies floats by its integer step
        measured = (forward, backward, weight)
        logs = _descend(start, batch.steps, batch.times, batch.unlimited, batch.empty, *measured, dict(priors))
    return composition_of(logs)


@jax.jit
def _descend(
    start: dict[str, Array],
    steps: Steps,
    times: Array,
    unlimited: Array,
    empty: Array,
    forward: Float[Array, " R"],
    backward: Float[Array, " R"],
    weight: Float[Array, " R"],
    priors: dict[str, tuple[float, float]],
) -> dict[str, Array]:
    trained = backward > 0.0
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))

    def loss(logs: dict[str, Array]) -> Array:
        composition = composition_of(logs)
        found = _iterations(steps, times, unlimited, empty, composition)
        ahead = robust(jnp.log((found.forward + composition.overhead) / forward), SOFTNESS)
        ratio = jnp.where(trained, found.backward, 1.0) / jnp.where(trained, backward, 1.0)
        error = ahead + jnp.where(trained, robust(jnp.log(ratio), SOFTNESS), 0.0)
        prior = sum(((logs[name] - mean) / deviation) ** 2 for name, (mean, deviation) in priors.items())
        return jnp.sum(weight * error) / jnp.sum(weight) + STRENGTH * prior

    def step(carry: Any, _: None) -> tuple[Any, None]:
        logs, state = carry
        updates, state = optimizer.update(jax.grad(loss)(logs), state)
        return (eqx.apply_updates(logs, updates), state), None

    first: Any = start
    return jax.lax.scan(step, (first, optimizer.init(first)), None, length=STEPS)[0][0]
