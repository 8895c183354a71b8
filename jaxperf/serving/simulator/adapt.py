"""Four terms that fit step times to one measured log: what the engine reaches of our linear layers and attention, and
what its host adds to a step and to each decode."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError
from jaxperf.serving.simulator.metrics import request_metrics
from jaxperf.serving.simulator.run import simulate_requests
from jaxperf.serving.simulator.settings import Scheduler
from jaxperf.serving.simulator.step_time import StepTimeTable

COMPARED = ("ttft", "tpot", "e2e")
FEWEST = 10  # requests with times that four terms are fitted to
EVALUATIONS = 150
# Where the search starts, how far its first steps go, and where it ends: factors, then seconds.
START = np.array([0.9, 0.9, 5e-4, 2e-5])
FIRST_STEPS = np.array([-0.2, -0.3, 1.5e-3, 8e-5])
BOUNDS = ((0.1, 10.0), (0.0, 10.0), (0.0, 0.1), (0.0, 1e-2))


class Terms(NamedTuple):
    """Factors of the linear layers' and of the attention's time [1], and seconds added to every step and for each
    decode in it."""

    linear: float
    attention: float
    step: float
    decode: float


def with_terms(table: StepTimeTable, terms: Terms) -> StepTimeTable:
    """The table with t = linear x tokens[T] + attention x (decode + prefill) + step + decode x n."""
    decodes = jnp.arange(table.decode.shape[0], dtype=jnp.float64)
    some = (jnp.arange(table.tokens.shape[0]) > 0).astype(jnp.float64)
    return dataclasses.replace(
        table,
        tokens=table.tokens * terms.linear + some * terms.step,
        decode=table.decode * terms.attention + (decodes * terms.decode)[:, None],
        prefill=table.prefill * terms.attention,
    )


def fit_terms(table: StepTimeTable, scheduler: Scheduler, requests: Any, measured: Mapping[str, np.ndarray]) -> Terms:
    """The terms with which the simulated log is nearest to the measured one, by a simplex search; deterministic.

    Minimized is the sum over TTFT, TPOT and E2E of |mean error| and mean |error|, each over the measured mean.

    **Arguments:** `requests`: all that ran, in order of arrival, `arrived` [s], `prompt`, `output` [tokens];
    `measured`: their `first_token` and `completed` [s], NaN where a request is not to be compared.
    **Raises:** `InputError` where fewer than ten requests have both times.
    """
    from scipy.optimize import minimize

    known = np.isfinite(measured["first_token"]) & np.isfinite(measured["completed"])
    check_compared(int(known.sum()))
    targets = request_metrics(_columns(requests, measured))
    compared = [name for name in COMPARED if np.isfinite(targets[name][known]).any()]  # no TPOT of single tokens

    def loss(values: np.ndarray) -> float:
        found = simulate_requests(scheduler, with_terms(table, Terms(*values)), [requests]).requests
        ours = {name: getattr(found, name)[0, : len(known)] for name in ("first_token", "completed")}
        metrics = request_metrics(_columns(requests, ours))
        return sum(_error(metrics[name][known], targets[name][known]) for name in compared)

    simplex = np.vstack([START, START + np.diag(FIRST_STEPS)])
    options = {"maxfev": EVALUATIONS, "initial_simplex": simplex}
    best = minimize(loss, START, method="Nelder-Mead", bounds=BOUNDS, options=options)
    return Terms(*best.x.tolist())


def check_compared(number: int) -> None:
    """Raises `InputError` where so many requests with both times are too few to fit terms to."""
    if number < FEWEST:
        raise InputError(f"only {number} requests of the log have both times; four terms need {FEWEST}.")


def _columns(requests: Any, times: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    first, last = times["first_token"], times["completed"]
    return {
        "arrived": requests.arrived,
        "output": requests.output,
        "scheduled": first,
        "first_token": first,
        "completed": last,
    }


def _error(ours: np.ndarray, measured: np.ndarray) -> float:
    """|mean error| and mean |error| over the measured mean; a request that was not completed counts as all wrong."""
    both = np.isfinite(measured)
    difference = np.where(np.isfinite(ours), ours, 0.0)[both] - measured[both]
    return float((abs(difference.mean()) + np.abs(difference).mean()) / measured[both].mean())
