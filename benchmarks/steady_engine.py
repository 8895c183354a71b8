"""The engine whose steady state is measured and compared: Llama-3-8B on an H100, and its simulation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

REQUESTS = 1024  # of a lane
WARM_UP = 0.2  # of the requests: they find an emptier system
CAP, BLOCKS = 256, 30000
LATENCIES = ("ttft", "tpot", "e2e")
SCHEDULERS = {
    "vllm": {"sched": "vllm", "max_tokens_in_batch": 8192},
    "vllm_v1": {"sched": "vllm_v1", "max_tokens_in_batch": 2048},
    "sarathi": {"sched": "sarathi_fixed", "chunk_size": 512},
}
IN_STAGES = {**SCHEDULERS, "vllm_queue": {**SCHEDULERS["vllm_v1"], "pipeline_batches": "vllm_queue"}}
LENGTHS = {
    "fixed": ({"kind": "fixed", "value": 1024}, {"kind": "fixed", "value": 128}),
    "chats": ({"kind": "uniform", "low": 16, "high": 2000}, {"kind": "uniform", "low": 10, "high": 400}),
    "spread": ({"kind": "lognormal", "mean": 1000, "cv": 0.8}, {"kind": "lognormal", "mean": 200, "cv": 0.8}),
    "short": ({"kind": "lognormal", "mean": 100, "cv": 0.5}, {"kind": "uniform", "low": 50, "high": 300}),
    "long": ({"kind": "uniform", "low": 2000, "high": 7000}, {"kind": "uniform", "low": 20, "high": 200}),
}
LONGEST = 8000  # tokens of a prompt: vLLM v0 computes it in one step
ARRIVALS = {"poisson": {"kind": "poisson"}, "bursts": {"kind": "gamma", "cv": 2.0}}


class Case(NamedTuple):
    """An engine of Llama-3-8B on an H100: its scheduler in the simulator, its step times, and both for the model."""

    scheduler: Any
    times: Any
    law: Any
    discipline: Any
    engine: Any


def case_of(name: str, stages: int = 1) -> Case:
    """The engine with one of `IN_STAGES`, its step times composed of the shipped kernels."""
    import hwspecs
    from jaxperf.core.sustained_file import calibration_of, load_sustained_table
    from jaxperf.io.huggingface import load_model
    from jaxperf.serving.queueing.engine import Engine, chunked, prefill_first
    from jaxperf.serving.queueing.law import table_law
    from jaxperf.serving.simulator.composed import composed_times
    from jaxperf.serving.simulator.settings import parse_scheduler
    from jaxperf.serving.simulator.workloads import Requests

    settings = {**IN_STAGES[name], "num_blocks": BLOCKS, "batch_size_cap": CAP, "pp": stages}
    of_v1 = settings["sched"] == "vllm_v1"
    scheduler = parse_scheduler({**settings, "enable_prefix_caching": False} if of_v1 else settings)
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
    return measured(case, LENGTHS[lengths], {**ARRIVALS[arrivals], "rate": rate}, lanes, LONGEST)


def measured(
    case: Case,
    lengths: tuple[dict[str, Any], ...],
    process: dict[str, Any],
    lanes: int,
    longest: int,
    count: int = REQUESTS,
) -> dict[str, tuple[float, float]]:
    """`simulated` for any lengths and arrivals, prompts no longer than `longest`, and `count` requests a lane."""
    import dataclasses

    from jaxperf.serving.simulator.metrics import request_metrics
    from jaxperf.serving.simulator.run import simulate
    from jaxperf.serving.simulator.state import Sizes
    from jaxperf.serving.simulator.trace import pad_traces
    from jaxperf.serving.simulator.workloads import draw_requests

    prompt, output = lengths
    drawn = [
        draw_requests({"count": count, "seed": seed, "arrivals": process, "prompt": prompt, "output": output})
        for seed in range(lanes)
    ]
    drawn = [dataclasses.replace(each, prompt=np.minimum(each.prompt, longest)) for each in drawn]
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
    kept = {name: metrics[name][:, int(WARM_UP * count) :] for name in LATENCIES}
    return {name: _ends(each) for name, each in kept.items()}


def _ends(values: np.ndarray) -> tuple[float, float]:
    """Mean and 99th percentile; NaN where there is no value."""
    there = values[np.isfinite(values)]
    return (float(there.mean()), float(np.quantile(there, 0.99))) if len(there) else (np.nan, np.nan)
