"""Fleets of coupled replicas: requests a processor second, beside the simulator of one replica on the same requests."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.simulator import LANES, REQUESTS, chats, processor_time
from benchmarks.table import Row


def run() -> list[Row]:
    """Llama-2-7B on A100s by our own model under vLLM v1, traces of 0.5 to 8 requests/s in 64 lanes of one call."""
    jax.config.update("jax_enable_x64", True)
    from jaxperf.api import load_device
    from jaxperf.io.huggingface import load_model
    from jaxperf.serving.fleet.routing import least_outstanding
    from jaxperf.serving.fleet.run import simulate_fleets
    from jaxperf.serving.fleet.state import Load, Pool
    from jaxperf.serving.simulator.composed import composed_times
    from jaxperf.serving.simulator.run import simulate
    from jaxperf.serving.simulator.settings import parse_scheduler
    from jaxperf.serving.simulator.state import Sizes
    from jaxperf.serving.simulator.trace import pad_traces
    from jaxperf.serving.simulator.workloads import Requests

    scheduler = parse_scheduler({"sched": "vllm_v1", "num_blocks": 7424, "batch_size_cap": 128, "tp": 1})
    reach = Requests(*(np.array([each]) for each in (0.0, 4000, 96)))
    times = composed_times(load_model("llama-2-7b"), load_device("a100-sxm-80gb"), scheduler, reach)
    settings, sizes, policy = scheduler.arrays(LANES), Sizes(slots=128), scheduler.policy
    rates = np.linspace(0.5, 8.0, LANES)

    def row(what: str, work) -> Row:
        speed = LANES * REQUESTS / processor_time(lambda: jax.block_until_ready(work()))
        return Row("fleet", f"{what}: requests a processor second", speed, "1/s")

    rows = []
    for replicas, times_rate in ((1, 1), (4, 1), (4, 4)):
        load = Load(pad_traces([chats(times_rate * float(rate), seed) for seed, rate in enumerate(rates)]))
        if replicas == 1:
            rows.append(row("not coupled", lambda load=load: simulate(policy, times, settings, load.requests, sizes)))
        lanes = jnp.full(LANES, replicas, jnp.int32)
        pool = Pool(settings, lanes, times, policy, least_outstanding, replicas, sizes)
        what = f"{replicas} coupled replica(s), {times_rate} x the rate"
        rows.append(row(what, lambda pool=pool, load=load: simulate_fleets(pool, load)))
    return rows
