"""The serving simulator: requests a processor second, of one replica and of many in one call, and the time of 1,000."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.table import Row

if TYPE_CHECKING:
    from jaxperf.serving.simulator.step_time import AbstractStepTime
    from jaxperf.serving.simulator.trace import Trace

REQUESTS, LANES, CONFIGURATIONS = 512, 64, 1000
# Requests a processor second of Vidur 7d47513 on traces of these rates, one run at a time, measured on such a core.
VIDUR = {("vllm", 2.0): 434, ("vllm", 6.0): 1709, ("sarathi", 2.0): 408, ("sarathi", 6.0): 1455}
SINGLE, BATCHED = 15, {2.0: 120, 6.0: 40}  # times Vidur's rate, the targets
# What costs time beside the plain queue of vLLM v1 (no targets).
KINDS = {"plain": {}, "priorities": {"scheduling_policy": "priority"}, "two stages": {"pp": 2}}
SECONDS = "<= 10"  # for 1,000 configurations of 512 requests, compiled before


def run() -> list[Row]:
    """Llama-2-7B on one A100 by our own model; lengths as in chats, so that batches mix short and long requests."""
    jax.config.update("jax_enable_x64", True)
    from jaxperf.api import load_device
    from jaxperf.io.huggingface import load_model
    from jaxperf.serving.simulator.composed import composed_times
    from jaxperf.serving.simulator.run import simulate
    from jaxperf.serving.simulator.settings import Scheduler, parse_scheduler
    from jaxperf.serving.simulator.state import Settings, Sizes
    from jaxperf.serving.simulator.trace import pad_traces
    from jaxperf.serving.simulator.workloads import Requests

    model, device = load_model("llama-2-7b"), load_device("a100-sxm-80gb")

    def traces(rates: np.ndarray) -> Trace:
        return pad_traces([chats(float(rate), seed) for seed, rate in enumerate(rates)])

    def scheduler(name: str) -> Scheduler:
        return parse_scheduler({"sched": name, "num_blocks": 7424, "batch_size_cap": 128, "tp": 1})

    reach = Requests(*(np.array([each]) for each in (0.0, 4000, 96)))
    times = {name: composed_times(model, device, scheduler(name), reach) for name in ("vllm", "sarathi", "vllm_v1")}

    def call(name: str, settings: Settings, given: Trace) -> Callable[[], object]:
        policy = scheduler(name).policy
        return lambda: jax.block_until_ready(simulate(policy, times[name], settings, given, Sizes(slots=128)))

    rows = []
    for (name, rate), vidur in VIDUR.items():
        for lanes, target in ((1, SINGLE), (LANES, BATCHED[rate])):
            work = call(name, scheduler(name).arrays(lanes), traces(np.full(lanes, rate)))
            speed = lanes * REQUESTS / processor_time(work)
            what = f"{name}, {rate:g} requests/s, {lanes} lane(s): requests a processor second"
            rows.append(Row("simulator", what, speed, "1/s", f">= {target * vidur}", f"Vidur {vidur}"))
    rows += kinds_of_queues(times["vllm_v1"], traces(np.full(LANES, 4.0)))
    settings, rates = configurations(scheduler("vllm_v1").arrays(CONFIGURATIONS))
    work = call("vllm_v1", settings, traces(rates))
    what = f"{CONFIGURATIONS:,} configurations x {REQUESTS} requests, vllm_v1: processor time"
    return [*rows, Row("simulator", what, processor_time(work, rounds=1), "s", SECONDS)]


def kinds_of_queues(times: AbstractStepTime, trace: Trace) -> list[Row]:
    """vLLM v1 at 4 requests/s, with each of `KINDS`; priorities are drawn from ten."""
    from jaxperf.serving.simulator.run import simulate
    from jaxperf.serving.simulator.settings import parse_scheduler
    from jaxperf.serving.simulator.state import Sizes

    drawn = jnp.asarray(np.random.default_rng(0).integers(0, 10, trace.prompt.shape), jnp.int32)
    rows = []
    for what, keys in KINDS.items():
        scheduler = parse_scheduler({"sched": "vllm_v1", "num_blocks": 7424, "batch_size_cap": 128, "tp": 1, **keys})
        given = dataclasses.replace(trace, priority=drawn) if scheduler.by_priority else trace
        sizes = Sizes(slots=128, stages=scheduler.pipeline_parallel)
        arguments = (scheduler.policy, times, scheduler.arrays(LANES), given, sizes)
        work = functools.partial(lambda given: jax.block_until_ready(simulate(*given)), arguments)
        speed = LANES * REQUESTS / processor_time(work, rounds=1)
        rows.append(Row("simulator", f"vllm_v1, {what}, {LANES} lanes: requests a processor second", speed, "1/s"))
    return rows


def chats(rate: float, seed: int):
    """A trace of 512 requests that come at `rate` a second."""
    from jaxperf.serving.simulator.workloads import draw_requests

    return draw_requests(
        {
            "count": REQUESTS,
            "seed": seed,
            "arrivals": {"kind": "poisson", "rate": rate},
            "prompt": {"kind": "uniform", "low": 16, "high": 2000},
            "output": {"kind": "uniform", "low": 10, "high": 400},
        }
    )


def configurations(settings):
    """Request rates, batch caps, token budgets and cache sizes, each lane its own; lanes alike in work lie together."""
    random = np.random.default_rng(0)
    rates = np.sort(random.uniform(0.5, 8.0, CONFIGURATIONS))
    draws = {
        "cap": random.integers(16, 129, CONFIGURATIONS),
        "chunk": random.integers(256, 4097, CONFIGURATIONS),
        "blocks": random.integers(1000, 10000, CONFIGURATIONS),
    }
    arrays = {name: jnp.asarray(values, jnp.int32) for name, values in draws.items()}
    return type(settings)(**{**vars(settings), **arrays}), rates


def processor_time(work: Callable[[], object], rounds: int = 3) -> float:
    """Processor seconds of one call, after one that compiles."""
    work()
    start = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - start) / rounds
