"""The answer for one graph on one device: its time, what its interval is made of, and the plain roofline.

The interval propagates those of the kernels. With shares w of the device's time and standard deviations c of the
logarithm of each kernel, of which the part rho is an error of the device that all its kernels have alike,

    sigma^2 = rho (sum w c)^2 + (1 - rho) sum w^2 c^2 + composition^2

and the half-width of the 90 % interval is kappa sigma, kappa so that nine of ten iterations of devices held out lie
inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from calibration.composition.graphs import Batch, Sample, distinct_ops, iterations, relieved, sample_of
from calibration.composition.kernel_times import KernelTimes, kernel_times
from calibration.composition.rows import Row
from calibration.kernels.parameters import Parameters
from jaxperf.core.numerics import as_float
from jaxperf.models.composition import Composition, step_durations
from jaxperf.models.graph_steps import Laid, Steps

TIERS = ("measured", "adapted", "transfer", "roofline")
NO_MODEL = "a kernel of the graph has no model in this format on this device"


@dataclass(frozen=True)
class Width:
    """What the interval is made of: `rho` [1], `composition` [log 1], and `kappa` by tier [1]."""

    rho: float
    composition: float
    kappa: Mapping[str, float]

    def half(self, prediction: Prediction) -> float:
        """Half-width of the 90 % interval [log 1]; a tier without an own kappa has the largest."""
        return self.kappa.get(prediction.tier, max(self.kappa.values())) * prediction.sigma(self)


@dataclass(frozen=True)
class Prediction:
    """One row's answer in seconds; `common`, `separate`: (sum w c)^2 and sum w^2 c^2 of its kernels [1]; `exposed`: how
    much of the time a device waits for what others send."""

    time: float
    forward: float
    kernel: float
    host: float
    roofline: float
    common: float
    separate: float
    tier: str
    exposed: float = 0.0

    def sigma(self, width: Width) -> float:
        """Standard deviation of the logarithm of the time [log 1]."""
        return math.sqrt(width.rho * self.common + (1.0 - width.rho) * self.separate + width.composition**2)


Answer = tuple[Row, Prediction | None, str]  # a row with its prediction and a note, or without one and the reason


def predict_able(
    rows: Sequence[Row],
    laid: Mapping[tuple, Laid],
    compositions: Mapping[str, Composition],
    kernels: Parameters,
    directories: Sequence[str] = (),
) -> list[Prediction]:
    """The predictions of rows that have a graph and a device, in their order."""
    if not rows:
        return []
    ops = distinct_ops([laid[row.configuration] for row in rows])
    devices = sorted({row.device for row in rows})
    times = kernel_times(ops, devices, kernels, directories=directories)
    place = {op.key: position for position, op in enumerate(ops)}
    found: dict[int, Prediction] = {}
    # Graphs of like length share a batch, so that a short one is not padded to the longest.
    groups: dict[tuple[str, int], list[int]] = {}
    for at, row in enumerate(rows):
        length = len(laid[row.configuration].steps.kernel)
        groups.setdefault((row.variant, (length - 1).bit_length()), []).append(at)
    for (variant, _), members in groups.items():
        samples, columns = [], []
        for at in members:
            row = rows[at]
            index = [place[op.key] for op in laid[row.configuration].ops]
            columns.append((devices.index(row.device), index))
            samples.append(sample_of(row, laid[row.configuration], times, *columns[-1]))
        answers = _answers(samples, columns, times, compositions[variant])
        found.update(zip(members, answers, strict=True))
    return [found[at] for at in range(len(rows))]


def _answers(
    samples: Sequence[Sample],
    columns: Sequence[tuple[int, list[int]]],
    times: KernelTimes,
    composition: Composition,
) -> list[Prediction]:
    batch = Batch(samples)
    iteration = iterations(batch, composition)
    relief = relieved(batch.steps, batch.times, batch.unlimited, composition)
    work = np.asarray(_kernel_work(batch.steps, relief, batch.empty, composition), np.float64)
    ones, none = jnp.ones_like(batch.times), jnp.zeros_like(batch.empty)
    used = np.asarray(_kernel_work(batch.steps, ones, none, _counting(composition)), np.float64)
    answers = []
    for at, (device, index) in enumerate(columns):
        share = work[at, : len(index)] / max(work[at].sum(), 1e-30)
        deviation = np.nan_to_num(times.deviation[device, index], posinf=1.0, neginf=1.0)
        answers.append(
            Prediction(
                time=float(iteration.time[at]),
                forward=float(iteration.forward[at]),
                kernel=float(iteration.kernel[at]),
                host=float(iteration.host[at]),
                roofline=float(used[at, : len(index)] @ np.nan_to_num(times.roofline[device, index])),
                common=float((share @ deviation) ** 2),
                separate=float(share**2 @ deviation**2),
                tier=_tier(times.tier[device, index], share),
            )
        )
    return answers


@jax.jit
def _kernel_work(steps: Steps, times: jax.Array, empty: jax.Array, composition: Composition) -> jax.Array:
    """How long the device works for each distinct kernel in one iteration, [rows, K] [s]."""

    def row(steps: Steps, times: jax.Array, empty: jax.Array) -> jax.Array:
        each, count = step_durations(steps, times, composition, empty)
        executed = jnp.concatenate([steps.times, jnp.zeros(1)])[steps.owner]
        return jax.ops.segment_sum(executed * each * count, steps.kernel, num_segments=times.shape[0] + 1)[:-1]

    return jax.vmap(row)(steps, times, empty)


def _counting(composition: Composition) -> Composition:
    """A composition in which a kernel of time 1 works for as long as it is executed: nothing but counts."""
    return Composition(0.0, 0.0, 0.0, 0.0, accumulate=as_float(composition.accumulate))


def _tier(tiers: np.ndarray, share: np.ndarray) -> str:
    """The tier that most of the device's time comes from; the more cautious one of equals."""
    parts = {name: float(share[tiers == name].sum()) for name in TIERS}
    return max(reversed(TIERS), key=lambda name: parts[name])
