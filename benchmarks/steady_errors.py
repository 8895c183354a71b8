"""The steady state of an open loop: its errors against the simulator.

`python -m benchmarks.steady_errors [usual] [pipelines] [regimes]` prints every point of the comparisons that are named
(all of them if none is) and their means, for tens of minutes: not part of the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.steady_engine import (
    ARRIVALS,
    IN_STAGES,
    LATENCIES,
    LENGTHS,
    REQUESTS,
    SCHEDULERS,
    Case,
    case_of,
    classes,
    measured,
    simulated,
)
from benchmarks.steady_regimes import Setup, regimes
from benchmarks.steady_regimes import case_of as regime_case

LANES = 16
LOADS = (0.1, 0.3, 0.5, 0.7)
STAGES = (2, 4)  # of the pipelines
PARTS = ("usual", "pipelines", "regimes")
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
    for name in IN_STAGES:
        for stages in STAGES:
            case = case_of(name, stages)
            model = _model_of(case)
            for lengths in USUAL:
                for load in LOADS:
                    yield _compared(case, model, (name, stages, lengths, "poisson"), load)


def further() -> Iterator[tuple[str, list[Point]]]:
    """The points of every regime."""
    models: dict[Any, Callable[..., Any]] = {}
    for name, setups in regimes():
        points = []
        for setup in setups:
            model = models.setdefault(setup.scheduler == "vllm", _model_at(regime_case(setup).discipline))
            points.append(_regime(setup, model))
            _show(points[-1])
        yield name, points


def _regime(setup: Setup, model: Callable[..., Any]) -> Point:
    from jaxperf.serving.queueing.lengths import DRAWN, lengths_of
    from jaxperf.serving.simulator.workloads import draw_lengths

    case, random = regime_case(setup), np.random.default_rng(0)
    longest = setup.budget if setup.scheduler == "vllm" else 1 << 20  # v0 computes a prompt in one step
    drawn = [draw_lengths(random, each, DRAWN, "lengths") for each in setup.lengths]
    prompt, output = lengths_of(np.minimum(drawn[0], longest)), lengths_of(drawn[1])
    variation = setup.variation**2

    def at(rate: float) -> Any:
        return model(case.law, case.engine, prompt, output, rate, variation)

    rate = setup.load * 1e-3 / float(at(1e-3)[0].utilization)
    poisson = {"kind": "poisson"} if setup.variation == 1.0 else {"kind": "gamma", "cv": setup.variation}
    found = measured(
        case, setup.lengths, {**poisson, "rate": rate}, LANES * REQUESTS // setup.requests, longest, setup.requests
    )
    what = (setup.scheduler, 1, f"{float(prompt.mean):.0f}+{float(output.mean):.0f}", f"cv {setup.variation:g}")
    return _point(what, at(rate), found)


def _compared(case: Case, model: Callable[..., Any], what: tuple[str, int, str, str], load: float) -> Point:
    _, _, lengths, arrivals = what
    prompt, output = classes(lengths)
    variation = ARRIVALS[arrivals].get("cv", 1.0) ** 2
    most = 1.0 / float(model(prompt, output, 1e-3, variation)[0].utilization) * 1e-3
    return _point(
        what, model(prompt, output, load * most, variation), simulated(case, lengths, arrivals, load * most, LANES)
    )


def _point(what: tuple[str, int, str, str], predicted: Any, found: dict[str, tuple[float, float]]) -> Point:
    state, tails = predicted
    means = tuple(float(getattr(state, each)) / found[each][0] - 1.0 for each in LATENCIES)
    percentiles = tuple(float(tails[each]) / found[each][1] - 1.0 for each in LATENCIES)
    return Point(*what, float(state.utilization), means, percentiles)


def _model_of(case: Case) -> Callable[..., Any]:
    model = _model_at(case.discipline)
    return lambda *load: model(case.law, case.engine, *load)


def _model_at(discipline: Any) -> Callable[..., Any]:
    """The steady state and its 99th percentiles, of a law, an engine, prompts, outputs, rate and variation."""
    from jaxperf.serving.queueing.engine import Load
    from jaxperf.serving.queueing.open_loop import steady_state
    from jaxperf.serving.queueing.tail import percentile

    @jax.jit
    def model(law: Any, engine: Any, prompt: Any, output: Any, rate: Any, variation: Any) -> Any:
        load = Load(rate, prompt, output, variation)
        state = steady_state(discipline, law, load, engine)
        return state, percentile(state, load, 0.99)

    return model


def _show(point: Point) -> None:
    errors = "".join(f"{100.0 * error:+6.1f}" for error in (*point.mean, *point.p99))
    head = f"{point.scheduler:13s} {point.stages} {point.lengths:10s} {point.arrivals:8s}"
    print(f"{head} {point.utilization:.2f} {errors}", flush=True)


def _sum_up(name: str, points: list[Point]) -> None:
    for kind in ("mean", "p99"):
        errors = 100.0 * np.abs([getattr(point, kind) for point in points])
        there = np.where(np.isnan(errors), 0.0, errors)  # of one token there is no TPOT
        mean = there.sum(axis=0) / np.maximum((~np.isnan(errors)).sum(axis=0), 1)
        told = f"mean {mean.round(1)}, largest {there.max(axis=0).round(1)} %"
        print(f"{name}, {kind}: {told} of {len(points)} points", flush=True)


def main() -> None:
    """Print every point of what is asked for, and the means."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.steady_errors", description="Errors of the steady state."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of: {', '.join(PARTS)} (default: all)")
    parts = parser.parse_args().parts
    for part in parts:
        if part not in PARTS:
            parser.error(f"unknown part '{part}'; allowed: {', '.join(PARTS)}")
    jax.config.update("jax_enable_x64", True)
    print("scheduler, stages, lengths, arrivals, utilization; errors in % of mean ttft, tpot, e2e, and of their p99")
    for part in parts or PARTS:
        if part == "regimes":
            found = list(further())
            for name, points in found:
                _sum_up(name, points)
            every = [point for _, points in found for point in points]
        else:
            every = []
            for point in comparison() if part == "usual" else pipelines():
                every.append(point)
                _show(point)
        _sum_up(part, every)


if __name__ == "__main__":
    main()
