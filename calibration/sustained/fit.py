"""Gauss-Newton on the three scalars of a composed kernel: how much of the arithmetic, of the memory, and which floor.

    t = launches floor + sqrt(longer^2 + exposed shorter^2) of (core, memory),  core = (compute^4 + power^4)^(1/4)

`exposed` is a share of the family: how much of the shorter shows, told by the kernels that a step runs together. Each
of compute, memory and floor is the family's value times a factor of the device and one of the software; the logarithms
of the factors have normal priors. Residuals weigh as their absolute value (iteratively reweighted), every
cell and half decade of time as much as any other, so that neither many short kernels nor one large table decides.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from calibration.kernels.model import POWER_SHARPNESS
from calibration.sustained.rows import Rows

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
# Shares of the shorter of arithmetic and transfer that may show; all of it, a sum of squares, where too few rows tell.
EXPOSED = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.05)
FEWEST_TELLING = 300
NO_WORSE = 1.02
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
    `power`: the correction of the power [log 1]; `exposed`: how much of the shorter of arithmetic and transfer shows
    [1]."""

    family: np.ndarray
    device: dict[str, np.ndarray]
    power: float
    exposed: float = 1.0

    def log_time(self, rows: Rows) -> np.ndarray:
        """Prediction for rows of any device, the software unknown [log s]."""
        return _log_time(self._scalars(rows), self.power, self.exposed, rows)[0]

    @property
    def within_datasheet(self) -> Fit:
        """The same without rates above the datasheet's, which are the table's L2 or clock."""
        limit = lambda scalars: np.r_[np.maximum(scalars[:2], 0.0), scalars[2:]]  # noqa: E731
        family = limit(self.family)
        device = {name: limit(self.family + own) - family for name, own in self.device.items()}
        return dataclasses.replace(self, family=family, device=device)

    def _scalars(self, rows: Rows) -> np.ndarray:
        names, which = np.unique(rows.device, return_inverse=True)
        each = np.array([self.family + self.device.get(name, np.zeros(3)) for name in names]).reshape(-1, 3)
        return each[which].T


def exposed_share(rows: Rows, law: Law) -> float:
    """The largest of `EXPOSED` with which the scalars of `rows` tell what kernels that a step runs together take in
    all, within `NO_WORSE` of the best."""
    if len(rows.time) < FEWEST_TELLING:
        return EXPOSED[0]
    fits = [fit_scalars(rows, law, share).within_datasheet for share in EXPOSED]
    errors = [float(np.mean(np.abs(step_errors(rows, fit.log_time(rows))))) for fit in fits]
    return next(share for share, error in zip(EXPOSED, errors, strict=True) if error <= NO_WORSE * min(errors))


def step_errors(rows: Rows, predicted: np.ndarray) -> np.ndarray:
    """log (predicted / measured) of the sums of the rows that a step runs together [steps]."""
    _, which = np.unique(rows.step, return_inverse=True)
    return np.log(np.bincount(which, np.exp(predicted)) / np.bincount(which, np.exp(rows.time)))


def fit_scalars(rows: Rows, law: Law, exposed: float = 1.0) -> Fit:
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
    problem = _Problem(rows, member, weight, mean, spread, exposed)
    starts = [mean + slower * (np.arange(len(mean)) == 0) for slower in SLOWER_ARITHMETIC]
    found = min((problem.descend(start) for start in starts), key=problem.loss)
    scalars = found[:-1].reshape(3, -1)
    of_stack = scalars[:, 1 + len(devices) :][:, stack]
    usual = of_stack @ weight
    at_device = np.array(
        [np.average(of_stack[:, device == at], axis=1, weights=weight[device == at]) for at in range(len(devices))]
    )
    offsets = scalars[:, 1 : 1 + len(devices)].T + at_device - usual
    return Fit(scalars[:, 0] + usual, dict(zip(devices.tolist(), offsets, strict=True)), float(found[-1]), exposed)


@dataclass(frozen=True)
class _Problem:
    """`member` [R, S]: which scalars each row has; `weight` [R]; `mean` and `spread` of the priors [3 S + 1]."""

    rows: Rows
    member: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    exposed: float

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
        return _log_time(each.T, found[-1], self.exposed, self.rows)


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
    scalars: np.ndarray, power: float, exposed: float, rows: Rows
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The equation above with `scalars` (compute, memory, floor) [3, R], and its slopes in these and the power: the
    share each has of the time."""
    compute, memory, floor = scalars
    core, free = _core(compute, power, rows)
    transfer = rows.memory + memory
    # Squares: the longer in full, the shorter as far as it shows.
    square_core = 2.0 * core + np.where(core < transfer, np.log(exposed), 0.0)
    square_transfer = 2.0 * transfer + np.where(core < transfer, 0.0, np.log(exposed))
    busy = np.logaddexp(square_core, square_transfer) / 2.0
    time = np.logaddexp(busy, rows.launches + floor)
    of_busy, of_core = np.exp(busy - time), np.exp(square_core - 2.0 * busy)
    return time, (of_busy * of_core * free, of_busy * (1.0 - of_core), 1.0 - of_busy, of_busy * of_core * (1.0 - free))


def _core(compute: np.ndarray, power: float, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Time of the arithmetic under the power limit [log s], and the share of its slope that the limit leaves free."""
    arithmetic = rows.compute + compute
    core = np.logaddexp(POWER_SHARPNESS * arithmetic, POWER_SHARPNESS * (rows.power + power)) / POWER_SHARPNESS
    return core, np.exp(POWER_SHARPNESS * (arithmetic - core))
