"""Errors on devices that the prior never saw, with few of their networks measured, by the protocol of HELP.

HELP (Lee et al., NeurIPS 2021; github.com/HayeonLee/HELP) learns on the first networks of nine devices. Of each other
device a few networks of the same part are measured, and networks after that part are predicted; both are drawn between
the tenth and the ninetieth percentile of the device's latencies. Also here: each device left out of all the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.edge.adapt import adapt
from calibration.edge.prior import Freedom, Prior, fit_prior
from calibration.edge.rows import device_columns
from calibration.edge.spaces import SPACES, space_of
from calibration.intervals import quantiles
from calibration.orders import spearman
from hwspecs.errors import InputError

SHOTS = (1, 3, 10, 30, 100)
CHOSEN_ON = 10  # measured networks, with which the freedom of the covariance is chosen
DRAWS = 20  # of each number of networks
TESTED = 1000
INSIDE = (0.1, 0.9)  # of a device's latencies, what is drawn from
GRID = tuple(Freedom(a, e, r) for a in (1.0, 4.0, 16.0) for e in (0.01, 0.05, 0.3, 1.0) for r in (1e-4, 1e-3))
LEARNED_FROM = (  # the devices that HELP learns from
    *("1080ti_1", "1080ti_32", "1080ti_64", "1080ti_256", "silver_4114", "silver_4210r"),
    *("samsung_a50", "pixel3", "essential_ph_1", "samsung_s7"),
)


class Protocol(NamedTuple):
    """Networks that devices are learned from, devices that HELP reports, and its rank correlations with ten."""

    learned: int
    tested: Mapping[str, float]


PROTOCOLS: Mapping[str, Protocol] = {
    "nasbench201": Protocol(
        900, dict(titan_rtx_256=0.987, gold_6226=0.989, fpga=0.985, pixel2=0.802, raspi4=0.890, eyeriss=0.940)
    ),
    "fbnet": Protocol(4000, dict(fpga=0.892, raspi4=0.887, eyeriss=0.943)),
}


@dataclass(frozen=True)
class Measured:
    """All networks of a space: their `features` [N, F] and `work` [N, 3], and the latencies of each device [N] [s]."""

    space: str
    features: np.ndarray
    work: np.ndarray
    latency: Mapping[str, np.ndarray]


class Trial(NamedTuple):
    """Networks of a device predicted after some were measured: `predicted`, `measured` [s], and the standard deviation
    `spread` of the prediction's logarithm [n]; `by_macs` [s]: what one constant a multiply-accumulate says."""

    predicted: np.ndarray
    measured: np.ndarray
    spread: np.ndarray
    by_macs: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """Residuals in standard deviations [n]."""
        return np.log(self.predicted / self.measured) / self.spread


def read_devices(path: str | Path) -> Measured:
    """A table of HELP's layout: networks of one space, a column of latencies for each device.

    **Raises:** `InputError` for a file that cannot be read, a network of another space, or too few to hold any out.
    """
    networks, latency = device_columns(path)
    space = space_of(networks[0])
    if len(networks) < PROTOCOLS[space].learned + TESTED:
        least = PROTOCOLS[space].learned + TESTED
        raise InputError(f"{path} has {len(networks)} networks; to learn from and to test on, {least} are needed.")
    parsed = np.array([SPACES[space].parse(text) for text in networks], int)
    return Measured(space, SPACES[space].features(parsed), SPACES[space].work(parsed), latency)


def known_devices(data: Measured) -> list[str]:
    """The devices of a table that HELP learns from; all of them where it has none of these."""
    return [name for name in LEARNED_FROM if name in data.latency] or list(data.latency)


def machine(device: str) -> str:
    """A device without its batch; a machine is left out with all of its batches."""
    return re.sub(r"_(1|32|64|256)$", "", device)


def learned(data: Measured, devices: Sequence[str], freedom: Freedom) -> Prior:
    """The prior of some devices, from the first networks of the table."""
    count = PROTOCOLS[data.space].learned
    latency = np.column_stack([data.latency[name][:count] for name in devices])
    return fit_prior(devices, data.features[:count], data.work[:count], latency, freedom)


def trials(
    data: Measured, device: str, prior: Prior, shots: int, draws: int | None = None, seed: int = 7
) -> list[Trial]:
    """Predictions for a device after `shots` of its networks, drawn anew each of `draws` times (None: `DRAWS`)."""
    count, latency = PROTOCOLS[data.space].learned, data.latency[device]
    pool, tested = _inside(latency, 0, count), _inside(latency, count, count + TESTED)
    macs, generator = data.work[:, 0], np.random.default_rng(seed)
    found = []
    for _ in range(draws or DRAWS):
        own = generator.choice(pool, shots, replace=False)
        predicted, spread = adapt(prior, data.features[own], latency[own]).predict(data.features[tested])
        by_macs = macs[tested] * np.median(latency[own] / macs[own])
        found.append(Trial(predicted, latency[tested], spread, by_macs))
    return found


def choose(data: Measured, devices: Sequence[str]) -> Freedom:
    """The freedom of the covariance with the best rank correlation on each of `devices`, left out with its machine."""
    priors = {freedom: learned(data, devices, freedom) for freedom in GRID}
    scores = {freedom: _mean_rank(data, prior, devices) for freedom, prior in priors.items()}
    return max(scores, key=lambda freedom: scores[freedom])


def _mean_rank(data: Measured, prior: Prior, devices: Sequence[str]) -> float:
    found = [
        spearman(trial.predicted, trial.measured)
        for device in devices
        for trial in trials(data, device, elsewhere(prior, device), CHOSEN_ON, draws=4, seed=1)
    ]
    return float(np.mean(found))


def elsewhere(prior: Prior, device: str) -> Prior:
    """The prior without a machine."""
    return prior.without([name for name in prior.devices if machine(name) == machine(device)])


def _inside(latency: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The networks of a part of the table between the percentiles `INSIDE` of its latencies."""
    part = latency[start:stop]
    ends = [round(share * len(part)) for share in INSIDE]
    return start + np.argsort(part, kind="stable")[slice(*ends)]


def widths(data: Measured, prior: Prior, shots: Sequence[int] = SHOTS) -> dict[int, float]:
    """By measured networks, the half-width of the 90 % interval in standard deviations of the prediction's logarithm
    [1]: the quantile over all devices of the prior, each predicted without its machine."""
    priors = {device: elsewhere(prior, device) for device in prior.devices}
    ratios = {
        each: [trial.ratio for name, others in priors.items() for trial in trials(data, name, others, each)]
        for each in shots
    }
    return {each: quantiles(np.concatenate(found))[1] for each, found in ratios.items()}


def measured_residuals(data: Measured, freedom: Freedom) -> dict[str, np.ndarray]:
    """log predicted / measured of every second network of each device [n], by a fit to the others."""
    latency = np.column_stack(list(data.latency.values()))[::2]
    prior = fit_prior(list(data.latency), data.features[::2], data.work[::2], latency, freedom)
    return {name: np.log(prior.latency(name, data.features[1::2]) / each[1::2]) for name, each in data.latency.items()}
