"""The steady state of an open loop: configurations a processor second, and its errors against the simulator.

`python -m benchmarks.steady_state` prints every point of the comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Row

BLOCK = 1 << 13
CORES = 2  # of the machine that the target is for
TARGET = 1e6 / CORES  # configurations a second and core
LANES, REQUESTS, SIMULATED = 16, 1024, 64
WARM_UP = 0.2  # of the requests: they find an emptier system
CAP, BLOCKS = 256, 30000
LOADS = (0.1, 0.3, 0.5, 0.7)
LATENCIES = ("ttft", "tpot", "e2e")
SCHEDULERS = {
    "vllm": {"sched": "vllm", "max_tokens_in_batch": 8192},
    "vllm_v1": {"sched": "vllm_v1", "max_tokens_in_batch": 2048},
    "sarathi": {"sched": "sarathi_fixed", "chunk_size": 512},
}
LENGTHS = {
    "fixed": ({"kind": "fixed", "value": 1024}, {"kind": "fixed", "value": 128}),
    "chats": ({"kind": "uniform", "low": 16, "high": 2000}, {"kind": "uniform", "low": 10, "high": 400}),
    "spread": ({"kind": "lognormal", "mean": 1000, "cv": 0.8}, {"kind": "lognormal", "mean": 200, "cv": 0.8}),
    "short": ({"kind": "lognormal", "mean": 100, "cv": 0.5}, {"kind": "uniform", "low": 50, "high": 300}),
    "long": ({"kind": "uniform", "low": 2000, "high": 7000}, {"kind": "uniform", "low": 20, "high": 200}),
}
LONGEST = 8000  # tokens of a prompt: vLLM v0 computes it in one step
STAGES = (2, 4)  # of the pipelines
USUAL = ("chats", "short", "fixed")  # lengths of bursts, and of pipelines
ARRIVALS = {"poisson": {"kind": "poisson"}, "bursts": {"kind": "gamma", "cv": 2.0}}


class Case(NamedTuple):
    """An engine of Llama-3-8B on an H100: its scheduler in the simulator, its step times, and both for the model."""

    scheduler: Any
    times: Any
    law: Any
    discipline: Any
    engine: Any


class Point(NamedTuple):
    """One comparison: what was simulated, its utilization, relative errors of means and of 99th percentiles."""

    scheduler: str
    stages: int
    lengths: str
    arrivals: str
    utilization: float
    mean: tuple[float, ...]
    p99: tuple[float, ...]


def run() -> list[Row]:
    """Speeds, then the mean error of each latency over both grids."""
    jax.config.update("jax_enable_x64", True)
    return [*speeds(), *_errors(list(comparison()), ""), *_errors(list(pipelines()), "pipelines, ")]


def _errors(points: list[Point], of: str) -> Iterator[Row]:
    for kind, target in (("mean", "<= 10"), ("p99", "<= 15")):
        errors = np.abs([getattr(point, kind) for point in points]) * 100.0
        for name, error in zip(LATENCIES, errors.mean(axis=0), strict=True):
            what = f"{of}{kind} {name} against the simulator, {len(points)} points"
            yield Row("steady_state", what, error, "%", target)


def speeds() -> Iterator[Row]:
    """Configurations (rate, slots, budget) a processor second, with and without percentiles, and of the simulator."""
    from jaxperf.serving.queueing.engine import Engine, Load
    from jaxperf.serving.queueing.lengths import lengths_as
    from jaxperf.serving.queueing.open_loop import steady_state
    from jaxperf.serving.queueing.tail import percentile

    case = case_of("vllm_v1")
    seconds = _processor_time(lambda: simulated(case, "chats", "poisson", 8.0, SIMULATED), 1)
    yield Row("steady_state", f"the simulator, {REQUESTS} requests each", SIMULATED / seconds, "1/s")
    jax.config.update("jax_enable_x64", False)  # as a sweep runs: what it finds is computed again in 64 bits
    law = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), case.law)
    prompt, output = (lengths_as(kind) for kind in LENGTHS["chats"])
    random = np.random.default_rng(0)
    draws = [random.uniform(*ends, BLOCK).astype(np.float32) for ends in ((1.0, 15.0), (64.0, 256.0), (1024.0, 8192.0))]

    def means(law: Any, rate: Any, slots: Any, budget: Any) -> Any:
        state = steady_state(case.discipline, law, Load(rate, prompt, output), Engine(slots, budget))
        return state.ttft, state.tpot, state.e2e, state.utilization

    def with_percentiles(law: Any, rate: Any, slots: Any, budget: Any) -> Any:
        load = Load(rate, prompt, output)
        return percentile(steady_state(case.discipline, law, load, Engine(slots, budget)), load, 0.99)

    for what, function in (("means", means), ("means and 99th percentiles", with_percentiles)):
        call = jax.jit(jax.vmap(function, in_axes=(None, 0, 0, 0)))
        speed = BLOCK / _processor_time(lambda call=call: call(law, *draws), 10)
        target = f">= {TARGET:.0f}" if function is means else ""
        yield Row("steady_state", f"vLLM v1, {what}: configurations a processor second", speed, "1/s", target)
    jax.config.update("jax_enable_x64", True)


def _processor_time(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of one call, after one that compiles."""
    jax.block_until_ready(work())
    start = time.process_time()
    for _ in range(rounds):
        jax.block_until_ready(work())
    return (time.process_time() - start) / rounds


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


def case_of(name: str, stages: int = 1) -> Case:
    """The engine with one of `SCHEDULERS`, its step times composed of the shipped kernels."""
    import hwspecs
    from jaxperf.core.sustained_file import calibration_of, load_sustained_table
    from jaxperf.io.huggingface import load_model
    from jaxperf.serving.queueing.engine import Engine, chunked, prefill_first
    from jaxperf.serving.queueing.law import table_law
    from jaxperf.serving.simulator.composed import composed_times
    from jaxperf.serving.simulator.settings import parse_scheduler
    from jaxperf.serving.simulator.workloads import Requests

    settings = {**SCHEDULERS[name], "num_blocks": BLOCKS, "batch_size_cap": CAP, "pp": stages}
    scheduler = parse_scheduler({**settings, "enable_prefix_caching": False} if name == "vllm_v1" else settings)
    device = calibration_of(hwspecs.load("h100-sxm"), load_sustained_table(None)).calibrated
    reach = Requests(np.zeros(CAP), np.full(CAP, LONGEST), np.full(CAP, 192))
    times = composed_times(load_model("llama-3-8b"), device, scheduler, reach)
    budget = scheduler.numbers["batch_tokens" if name == "vllm" else "chunk"]
    discipline = prefill_first if name == "vllm" else chunked
    return Case(scheduler, times, table_law(times), discipline, Engine(float(CAP), float(budget), float(stages)))


def classes(lengths: str) -> list[Any]:
    """The classes of prompts and outputs, prompts no longer than `LONGEST`."""
    from jaxperf.serving.queueing.lengths import DRAWN, lengths_of
    from jaxperf.serving.simulator.workloads import draw_lengths

    random = np.random.default_rng(0)
    return [lengths_of(np.minimum(draw_lengths(random, kind, DRAWN, lengths), LONGEST)) for kind in LENGTHS[lengths]]


def simulated(case: Case, lengths: str, arrivals: str, rate: float, lanes: int) -> dict[str, tuple[float, float]]:
    """(mean, 99th percentile) of each latency over lanes with requests of their own [s]."""
    import dataclasses

    from jaxperf.serving.simulator.metrics import request_metrics
    from jaxperf.serving.simulator.run import simulate
    from jaxperf.serving.simulator.state import Sizes
    from jaxperf.serving.simulator.trace import pad_traces
    from jaxperf.serving.simulator.workloads import draw_requests

    prompt, output = LENGTHS[lengths]
    process = {**ARRIVALS[arrivals], "rate": rate}
    drawn = [
        draw_requests({"count": REQUESTS, "seed": seed, "arrivals": process, "prompt": prompt, "output": output})
        for seed in range(lanes)
    ]
    drawn = [dataclasses.replace(each, prompt=np.minimum(each.prompt, LONGEST)) for each in drawn]
    found = simulate(
        case.scheduler.policy,
        case.times,
        case.scheduler.arrays(lanes),
        pad_traces(drawn),
        Sizes(slots=CAP, stages=case.scheduler.pipeline_parallel),
    )
    columns = {
        name: np.asarray(getattr(found.requests, name)) for name in ("arrived", "scheduled", "first_token", "completed")
    }
    metrics = request_metrics({**columns, "output": np.stack([each.output for each in drawn])})
    kept = {name: metrics[name][:, int(WARM_UP * REQUESTS) :] for name in LATENCIES}
    return {name: (float(np.nanmean(each)), float(np.nanquantile(each, 0.99))) for name, each in kept.items()}


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
