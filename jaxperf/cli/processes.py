"""Commands of this very jaxperf, each in a process and on a core of its own, and the files that they write.

A process ends with what it compiled and what it read, and what kills one leaves the others.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hwspecs.errors import InputError
from jaxperf.cli.measured import say_left_out

if TYPE_CHECKING:
    from calibration.datasets import KernelTable

MEMORY = 4e9  # bytes that the process of a large family takes
LOOK = 0.2  # how often it is looked whether a process has ended [s]


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def own_cores(families: int, cores: Sequence[int]) -> list[int]:
    """The core of each process that runs at a time: one for each family, as far as there are cores and memory.

    Never more for one: sums over several threads are taken in another order, so that parameters would depend on how
    many cores a machine has. And XLA's threads wait busily: two processes on the same two cores take three times as
    long as on one each.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else MEMORY
    return list(cores[: max(1, min(families, int(memory // MEMORY)))])


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is computed meanwhile has one core where the system can say so, and JAX, if it has not begun, one thread."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def most_rows_first(tables: Iterable[KernelTable]) -> list[str]:
    """The families of tables, those that take longest first."""
    rows = Counter[str]()
    for table in tables:
        rows[table.family] += len(table)
    return [family for family, _ in rows.most_common()]


def written(
    commands: Mapping[str, Sequence[str]],
    cores: Sequence[int],
    progress: Callable[[str], None],
    nothing: str,
    ending: str = "",
) -> Iterator[Path]:
    """What the commands write with `-o`, as each is ready, one at a time on each of `cores`.

    One that says `nothing` is left out, aloud. **Raises:** `InputError`, after all others, for those that ended
    otherwise.
    """
    waiting, free, running, broken = list(commands), list(cores), {}, []
    with tempfile.TemporaryDirectory(prefix="jaxperf-") as folder:
        place = {name: Path(folder) / f"{name}{ending}" for name in commands}
        try:
            while waiting or running:
                while waiting and free:
                    name, core = waiting.pop(0), free.pop(0)
                    running[name] = started(commands[name], place[name], core), core
                for name in [name for name, (process, _) in running.items() if process.poll() is not None]:
                    process, core = running.pop(name)
                    free.append(core)
                    status, said = process.returncode, _said(place[name])
                    if not status:
                        progress(name)
                        yield place[name]
                    elif said == nothing:
                        say_left_out([f"{name}: {said}"])
                    else:
                        broken.append(f"The process that fitted {name} ended with status {status}. {said}".strip())
                time.sleep(LOOK)
        finally:
            for process, _ in running.values():
                process.kill()  # what it has written goes with the folder; asked to end, it would finish its step
                process.wait()
    if broken:
        raise InputError(" ".join(broken))


def started(command: Sequence[str], out: Path, core: int) -> subprocess.Popen[bytes]:
    """This very jaxperf with a command on one core, and what it has to say in a file beside `out`."""
    where = os.pathsep.join(path or os.getcwd() for path in sys.path)
    words = [sys.executable, "-P", "-m", "jaxperf", *command, "-o", str(out)]
    with out.with_name(f"{out.name}.log").open("wb") as log:
        process = subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": where}, stdout=subprocess.DEVNULL, stderr=log
        )
    if hasattr(os, "sched_setaffinity"):  # long before it has loaded JAX, whose threads are then one
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, {core})
    return process


def _said(out: Path) -> str:
    """The last line of what a process has to say."""
    lines = out.with_name(f"{out.name}.log").read_text(errors="replace").split("\n")
    return next((line.removeprefix("jaxperf: ") for line in reversed(lines) if line.strip()), "")
