"""Gauss-Newton on the three scalars of a composed kernel: how much of the arithmetic, of the memory, and which floor.

    log t = log(launches floor + sqrt(core^2 + memory^2)),  core = (compute^4 + power^4)^(1/4)

Each of compute, memory and floor is the family's value times a factor of the device and one of the software; the
logarithms of the factors have normal priors. Residuals weigh as their absolute value (iteratively reweighted), every
cell and half decade of time as much as any other, so that neither many short kernels nor one large table decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.kernels.model import POWER_SHARPNESS
from calibration.sustained.rows import Rows
from jaxperf.kernels.roofline import FITTED_SHARPNESS

STEPS = 15
LARGEST_STEP = 0.5  # [log 1]
SOFTNESS = 0.05  # residuals below it weigh squared [log 1]
PRIOR = 4e-3
SLOWER_ARITHMETIC = (0.0, 1.5)  # of the starts, than the law says [log 1]
# Standard deviations of the logarithms of (compute, memory, floor).
FAMILY_SPREAD = (0.3, 0.2, 0.7)
DEVICE_SPREAD = (0.2, 0.2, 0.4)
STACK_SPREAD = (0.3, 0.2, 0.5)
POWER_SPREAD = 0.1
LEAST_WEIGHED = 20  # a half decade of a cell with fewer rows weighs as its rows do


@dataclass(frozen=True)
class Law:
    """What the family's law says: inverse efficiencies [log 1], floor [log s], correction of the power [log 1]."""

    compute: float
    memory: float
    floor: float
    power: float


@dataclass(frozen=True)
class Fit:
    """`family` [3] and `device[name]` [3]: logarithms of (1 / compute, 1 / memory, floor), the device's to be added;
    `power`: the correction of the power [log 1]."""

    family: np.ndarray
    device: dict[str, np.ndarray]
    power: float

    def log_time(self, rows: Rows) -> np.ndarray:
        """Prediction for rows of any device, the software unknown [log s]."""
        none = np.zeros(3)
        names, which = np.unique(rows.device, return_inverse=True)
        each = np.array([self.family + self.device.get(name, none) for name in names]).reshape(-1, 3)
        compute, memory, floor = each[which].T
        return _log_time(compute, memory, floor, self.power, rows)[0]


def fit_scalars(rows: Rows, law: Law) -> Fit:
    """The scalars of the family and of every device of `rows`, each with the mean of the software measured there.

    A slow kernel may be one of arithmetic or of memory, and a descent keeps to the side on which it starts: the best of
    those from several starts counts.
    """
    devices, device = np.unique(rows.device, return_inverse=True)
    stacks, stack = np.unique(rows.stack, return_inverse=True)
    member = np.concatenate([np.ones((len(device), 1)), np.eye(len(devices))[device], np.eye(len(stacks))[stack]], 1)
    sizes = (1, len(devices), len(stacks))
    spread = np.repeat(np.array([FAMILY_SPREAD, DEVICE_SPREAD, STACK_SPREAD]).T, sizes, axis=1).ravel()
    spread, mean = np.r_[spread, POWER_SPREAD], np.zeros((3, sum(sizes)))
    mean[:, 0] = law.compute, law.memory, law.floor
    mean, weight = np.r_[mean.ravel(), law.power], weights(rows)
    problem = _Problem(rows, member, weight, mean, spread)
    starts = [mean + slower * (np.arange(len(mean)) == 0) for slower in SLOWER_ARITHMETIC]
    found = min((problem.descend(start) for start in starts), key=problem.loss)
    scalars = found[:-1].reshape(3, -1)
    of_stack = scalars[:, 1 + len(devices) :][:, stack]
    usual = of_stack @ weight
    at_device = np.array(
        [np.average(of_stack[:, device == at], axis=1, weights=weight[device == at]) for at in range(len(devices))]
    )
    offsets = scalars[:, 1 : 1 + len(devices)].T + at_device - usual
    return Fit(scalars[:, 0] + usual, dict(zip(devices.tolist(), offsets, strict=True)), float(found[-1]))


@dataclass(frozen=True)
class _Problem:
    """`member` [R, S]: which scalars each row has; `weight` [R]; `mean` and `spread` of the priors [3 S + 1]."""

    rows: Rows
    member: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    def loss(self, found: np.ndarray) -> float:
        """Weighted residuals, about their absolute values, and the priors."""
        left = self.rows.time - self._time(found)[0]
        prior = 0.5 * PRIOR * (((found - self.mean) / self.spread) ** 2).sum()
        return float(self.weight @ np.sqrt(left**2 + SOFTNESS**2) + prior)

    def descend(self, found: np.ndarray) -> np.ndarray:
        for _ in range(STEPS):
            time, slopes = self._time(found)
            left = self.rows.time - time
            pull = self.weight / np.sqrt(left**2 + SOFTNESS**2)
            of_scalars = [self.member * slope[:, None] for slope in slopes[:3]]
            jacobian = np.concatenate([*of_scalars, slopes[3][:, None]], axis=1)
            normal = jacobian.T @ (jacobian * pull[:, None]) + np.diag(PRIOR / self.spread**2)
            downhill = jacobian.T @ (pull * left) - PRIOR * (found - self.mean) / self.spread**2
            found = found + np.linalg.solve(normal, downhill).clip(-LARGEST_STEP, LARGEST_STEP)
        return found

    def _time(self, found: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        each = self.member @ found[:-1].reshape(3, -1).T
        return _log_time(each[:, 0], each[:, 1], each[:, 2], found[-1], self.rows)


def weights(rows: Rows) -> np.ndarray:
    """One over the number of rows of the cell in the same half decade of time, in all 1."""
    halves = np.floor(2.0 * rows.time / np.log(10.0)).astype(int).astype(str)
    _, which, count = np.unique(np.char.add(rows.cell, halves), return_inverse=True, return_counts=True)
    weight = 1.0 / np.maximum(count[which], LEAST_WEIGHED)
    return weight / weight.sum()


def weighted_quantile(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    """The smallest value that, with all below it, has `share` of the weight."""
    order = np.argsort(values)
    place = int(np.searchsorted(np.cumsum(weight[order]), share * weight.sum()))
    return float(values[order][min(place, len(values) - 1)])


def _log_time(
    compute: np.ndarray, memory: np.ndarray, floor: np.ndarray, power: float, rows: Rows
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The equation above, and its slopes in (compute, memory, floor, power): the share each has of the time."""
    q, p = POWER_SHARPNESS, FITTED_SHARPNESS
    arithmetic, capped = rows.compute + compute, rows.power + power
    core = np.logaddexp(q * arithmetic, q * capped) / q
    busy = np.logaddexp(p * core, p * (rows.memory + memory)) / p
    time = np.logaddexp(busy, rows.launches + floor)
    of_busy, of_core, free = np.exp(busy - time), np.exp(p * (core - busy)), np.exp(q * (arithmetic - core))
    return time, (of_busy * of_core * free, of_busy * (1.0 - of_core), 1.0 - of_busy, of_busy * of_core * (1.0 - free))
