"""Time a call by what the device itself ran: the durations of its kernels in a profile, without dispatch or gaps.

The host's clock (`calibration.microbench.timing`) sees a GPU's kernel through tens of microseconds of dispatch; what
serving engines measure by replaying graphs has none of it, and neither have these times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibration.microbench.timing import FLUSH, Timing, TimingSettings, live, summarize, time_calls, warm_up

DEVICE_PLANE = "/device:"
NANO = 1e-9


@dataclass(frozen=True)
class Kernel:
    """One kernel of a profile: its name, the module that launched it ("" where unknown), start and duration [s]."""

    name: str
    module: str
    start: float
    duration: float


def time_on_device(
    call: Callable[[], Any], settings: TimingSettings, before: Callable[[], None] = lambda: None
) -> Timing:
    """Time `call` by its kernels; `before` runs ahead of every call, and kernels of `cache_flush` are not counted.

    **Raises:** `ValueError` for a call that returns no array, or where the profile shows none of its kernels: a device
    without such a profile, as processors are.
    """
    warm_up(call, settings)
    once = time_calls(call, TimingSettings(least=1, most=1, seconds=0.0, warm_up=0), before)
    repeats = int(np.clip(settings.seconds / once.median, settings.least, settings.most))
    return summarize(per_call(profile(call, repeats, before), repeats))


def device_bandwidth(size: float) -> float:
    """Bytes read and written a second by an addition over `size` bytes, fastest of the repeats [byte/s]."""
    numbers = jnp.zeros(max(1, int(size) // 4), jnp.float32)
    return 2.0 * numbers.nbytes / time_on_device(live(lambda x: x + 1.0, (numbers,)), TimingSettings()).fastest


def profile(call: Callable[[], Any], repeats: int, before: Callable[[], None] = lambda: None) -> list[Kernel]:
    """The kernels that the device ran in `repeats` calls, in the order of their starts."""
    options: Any = jax.profiler.ProfileOptions()
    options.host_tracer_level = options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(repeats):
                before()
                jax.block_until_ready(call())
        files = [str(each) for each in Path(folder).rglob("*.xplane.pb")]
        found = [each for file in files for each in kernels(jax.profiler.ProfileData.from_file(file).planes)]
    return sorted(found, key=lambda each: each.start)


def kernels(planes: Iterable[Any]) -> Iterator[Kernel]:
    """What ran on devices; summaries (lines without a stream), which repeat it, are left out."""
    for plane in planes:
        if plane.name.startswith(DEVICE_PLANE):
            for line in plane.lines:
                if line.name.startswith("Stream"):
                    for event in line.events:
                        module = str(dict(event.stats).get("hlo_module", ""))
                        yield Kernel(event.name, module, NANO * event.start_ns, NANO * event.duration_ns)


def per_call(found: Iterable[Kernel], repeats: int) -> list[float]:
    """Seconds of each call: the sum of its kernels; the mean of all where calls do not have the same number of them.

    **Raises:** `ValueError` where there is no kernel.
    """
    durations = [each.duration for each in found if FLUSH not in each.module]
    if not durations:
        raise ValueError("the profile shows no kernel of this call; time it with the host's clock")
    if len(durations) % repeats:
        return [sum(durations) / repeats]
    return np.sum(np.reshape(durations, (repeats, -1)), axis=1).tolist()
