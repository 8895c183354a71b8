"""Timing contenders fairly: one core, alternating, medians."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping


def pin_to_one_core() -> None:
    """Keep this process and every thread it starts on one core; call before JAX is imported.

    XLA sizes its thread pool by the cores it is allowed, so this also makes it single-threaded. Does nothing where the
    system has no such call.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"


def medians(
    contenders: Mapping[str, Callable[[], object]], rounds: int = 9, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median seconds of each contender over `rounds` rounds in which all take turns.

    Each runs once unmeasured before it is timed, so that none pays for what another left in caches and heap. Processor
    seconds of all threads, which on one core are what a clock shows when nothing else runs there.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            run()
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: statistics.median(each) for name, each in seconds.items()}
