"""The steady state of an open loop: configurations a processor second, and of the simulator; see `steady_errors`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.steady_engine import LENGTHS, REQUESTS, case_of, simulated
from benchmarks.table import Row

BLOCK = 1 << 13
CORES = 2  # of the machine that the target is for
TARGET = 1e6 / CORES  # configurations a second and core
SIMULATED = 64  # lanes


def run() -> list[Row]:
    """What `speeds` measures."""
    jax.config.update("jax_enable_x64", True)
    return list(speeds())


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
