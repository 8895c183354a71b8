"""The steady state of an open loop: its errors against the simulator.

`python -m benchmarks.steady_errors` prints every point of the comparison, for tens of minutes: not part of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.steady_engine import ARRIVALS, LATENCIES, LENGTHS, SCHEDULERS, Case, case_of, classes, simulated

LANES = 16
LOADS = (0.1, 0.3, 0.5, 0.7)
STAGES = (2, 4)  # of the pipelines
USUAL = ("chats", "short", "fixed")  # lengths of bursts, and of pipelines


class Point(NamedTuple):
    """One comparison: what was simulated, its utilization, relative errors of means and of 99th percentiles."""

    scheduler: str
    stages: int
    lengths: str
    arrivals: str
    utilization: float
    mean: tuple[float, ...]
    p99: tuple[float, ...]


def comparison() -> Iterator[Point]:
    """Every scheduler, lengths and load with Poisson arrivals; bursts with the usual lengths."""
    for name in SCHEDULERS:
        case = case_of(name)
        model = _model_of(case)
        for lengths in LENGTHS:
            for arrivals in ARRIVALS if lengths in USUAL else ("poisson",):
                for load in LOADS:
                    yield _compared(case, model, (name, 1, lengths, arrivals), load)


def pipelines() -> Iterator[Point]:
    """Every scheduler in stages, with Poisson arrivals."""
    for name in SCHEDULERS:
        for stages in STAGES:
            case = case_of(name, stages)
            model = _model_of(case)
            for lengths in USUAL:
                for load in LOADS:
                    yield _compared(case, model, (name, stages, lengths, "poisson"), load)


def _compared(case: Case, model: Callable[..., Any], what: tuple[str, int, str, str], load: float) -> Point:
    _, _, lengths, arrivals = what
    prompt, output = classes(lengths)
    variation = ARRIVALS[arrivals].get("cv", 1.0) ** 2
    most = 1.0 / float(model(prompt, output, 1e-3, variation)[0].utilization) * 1e-3
    state, tails = model(prompt, output, load * most, variation)
    measured = simulated(case, lengths, arrivals, load * most, LANES)
    means = tuple(float(getattr(state, each)) / measured[each][0] - 1.0 for each in LATENCIES)
    percentiles = tuple(float(tails[each]) / measured[each][1] - 1.0 for each in LATENCIES)
    return Point(*what, float(state.utilization), means, percentiles)


def _model_of(case: Case) -> Callable[..., Any]:
    from jaxperf.serving.queueing.engine import Load
    from jaxperf.serving.queueing.open_loop import steady_state
    from jaxperf.serving.queueing.tail import percentile

    @jax.jit
    def model(prompt: Any, output: Any, rate: Any, variation: Any) -> Any:
        load = Load(rate, prompt, output, variation)
        state = steady_state(case.discipline, case.law, load, case.engine)
        return state, percentile(state, load, 0.99)

    return model


def main() -> None:
    """Print every point of the comparison and the means."""
    jax.config.update("jax_enable_x64", True)
    print("scheduler, stages, lengths, arrivals, utilization; errors in % of mean ttft, tpot, e2e, and of their p99")
    for grid in (comparison, pipelines):
        points = []
        for point in grid():
            points.append(point)
            errors = "".join(f"{100.0 * error:+6.1f}" for error in (*point.mean, *point.p99))
            head = f"{point.scheduler:10s} {point.stages} {point.lengths:8s} {point.arrivals:8s}"
            print(f"{head} {point.utilization:.2f} {errors}", flush=True)
        for kind in ("mean", "p99"):
            errors = 100.0 * np.abs([getattr(point, kind) for point in points])
            ends = f"mean {errors.mean(axis=0).round(1)}, largest {errors.max(axis=0).round(1)} %"
            print(f"{kind}: {ends} of {len(points)} points")


if __name__ == "__main__":
    main()
