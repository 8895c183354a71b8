"""Time calls of a compiled function: warm-up, one wait a call, repeats until they agree with a budget, cold or warm.

Nothing is subtracted. The time of a call includes its dispatch; `dispatch_floor` measures that alone. What a GPU's own
kernels take, without it, is `calibration.microbench.device_clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Clock = Callable[[], float]
FLUSH = "flush_cache"  # in the name of the module that empties the cache, by which a profile tells its kernels


@dataclass(frozen=True)
class TimingSettings:
    """`least` and `most` calls timed; between them, calls are added until `seconds` have passed. `warm_up`: calls
    before, of which the first compiles."""

    least: int = 3
    most: int = 50
    seconds: float = 0.1
    warm_up: int = 2


@dataclass(frozen=True)
class Timing:
    """Median and fastest of the repeats [s]; `spread`: interquartile range over the median [1]."""

    median: float
    fastest: float
    spread: float
    repeats: int


def time_calls(
    call: Callable[[], Any],
    settings: TimingSettings = TimingSettings(),
    before: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time `call`, waiting for its result each time; `before` runs untimed ahead of every call.

    **Arguments:** `call`: returns arrays, or any tree of them.
    **Raises:** `ValueError` for a call that returns no array: nothing would be waited for.
    """
    warm_up(call, settings)
    times: list[float] = []
    end = clock() + settings.seconds
    while len(times) < settings.least or (len(times) < settings.most and clock() < end):
        before()
        start = clock()
        jax.block_until_ready(call())
        times.append(clock() - start)
    return summarize(times)


def warm_up(call: Callable[[], Any], settings: TimingSettings) -> None:
    """Call `settings.warm_up` times, of which the first compiles. Raises `ValueError` for a call without an array."""
    for _ in range(settings.warm_up):
        if not jax.tree.leaves(jax.block_until_ready(call())):
            raise ValueError("the call returns no array; its work would not be waited for")


def summarize(times: Sequence[float]) -> Timing:
    """Median, fastest and spread of measured times [s]."""
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return Timing(float(middle), float(min(times)), float((high - low) / middle), len(times))


def live(function: Callable[..., Any], arguments: tuple[jax.Array, ...]) -> Callable[[], Any]:
    """A call of the compiled function whose work the compiler cannot remove: operands are arguments, so that nothing
    is folded at compile time, and all results are returned, so that nothing is dead.

    **Raises:** `ValueError` where a result depends on no argument, or is an argument.
    """
    traced = jax.make_jaxpr(function)(*arguments).jaxpr
    depend = {id(variable) for variable in traced.invars}  # a literal cannot be hashed
    for equation in traced.eqns:
        if any(id(each) in depend for each in equation.invars):
            depend |= {id(variable) for variable in equation.outvars}
    computed = depend - {id(variable) for variable in traced.invars}
    if any(id(result) not in computed for result in traced.outvars):
        raise ValueError("a result does not depend on the operands; the compiler would compute it once")
    compiled = jax.jit(function)
    return lambda: compiled(*arguments)


def dispatch_floor(settings: TimingSettings = TimingSettings(most=1000)) -> Timing:
    """The least a timed call takes: one element, one addition. In every row's time; never subtracted [s]."""
    return time_calls(live(lambda x: x + 1.0, (jnp.ones(1, jnp.float32),)), settings)


def clock_resolution() -> float:
    """The step of the clock [s]."""
    return time.get_clock_info("perf_counter").resolution


def cache_flush(size: float) -> Callable[[], None]:
    """Something to run before a call so that it finds its operands cold: reads and writes `size` bytes in place."""
    buffer = [jnp.zeros(max(1, int(size) // 4), jnp.float32)]

    def flush_cache(x: jax.Array) -> jax.Array:
        return x + 1.0

    touch = jax.jit(flush_cache, donate_argnums=0)

    def flush() -> None:
        buffer[0] = jax.block_until_ready(touch(buffer[0]))

    flush()
    return flush


def stream_bandwidth(size: float, repeats: int = 10) -> float:
    """Bytes read and written a second by an addition in place over `size` bytes, fastest of the repeats [byte/s]."""
    flush, times = cache_flush(size), []
    for _ in range(repeats):
        start = time.perf_counter()
        flush()
        times.append(time.perf_counter() - start)
    return 2.0 * 4 * max(1, int(size) // 4) / min(times)
