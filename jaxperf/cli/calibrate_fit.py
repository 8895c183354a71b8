"""The fits of `jaxperf calibrate`: several families each in a process of its own, kept on disk as they are finished.

A process ends with what it compiled and what it read, and what kills one leaves the other families.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hwspecs.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from calibration.calibrate import Calibrated
    from calibration.datasets import KernelTable, Read
    from calibration.fit import Settings
    from calibration.parameters import Parameters

MEMORY = 4e9  # bytes that the process of a large family takes
LOOK = 0.2  # how often it is looked whether a process has ended [s]


def read_tables(paths: Sequence[Path], families: Sequence[str], excluded: Sequence[str], quiet: bool) -> list[Read]:
    """The measured tables that a fit asks for; says which files of a folder are none. Raises `InputError`."""
    from jaxperf.cli.measured import read_measured_tables

    reads, left_out = read_measured_tables(paths, families)
    check_excluded(excluded, reads)
    if not quiet:
        say_left_out(left_out)
    return reads


def check_excluded(names: Sequence[str], reads: Sequence[Read]) -> None:
    """Raises `InputError` for an unknown device, or one that has no row in the data."""
    import hwspecs

    there = sorted(devices_of(reads))
    for text in names:
        try:
            name = hwspecs.resolve(text).name
        except InputError:
            hint = did_you_mean(text, hwspecs.open_registry().aliases)
            raise InputError(
                f"--exclude-device: '{text}' is not a known device.{hint} The data has {', '.join(there) or 'none'}."
            ) from None
        if name not in there:
            raise InputError(
                f"--exclude-device: the data has no row of '{text}'.{did_you_mean(text, there)} "
                f"It has {', '.join(there) or 'no known device'}."
            )


def devices_of(reads: Sequence[Read]) -> set[str]:
    """Names of the known devices that there are rows of."""
    return {name for read in reads for table in read.tables for name in set(table.device.tolist()) if name}


def say_left_out(sentences: Sequence[str]) -> None:
    """What files or families were left out, and why."""
    for sentence in sentences:
        typer.echo(f"left out: {sentence}", err=True)


@dataclass
class Kept:
    """The families that are finished, in files beside those of `out` until these are written."""

    out: Path
    families: tuple[str, ...] = field(default=(), init=False)
    left: tuple[str, ...] = field(default=(), init=False)

    @property
    def place(self) -> str:
        return str(self.out).removesuffix(".safetensors").removesuffix(".json") + ".unfinished"

    def save(self, parameters: Parameters, left: Sequence[str]) -> None:
        """Writes what there is by now; `left`: the families still to be fitted. A full disk stops no fit."""
        from calibration.parameters import save_parameters

        with contextlib.suppress(InputError):
            save_parameters(parameters, self.place)
            self.families, self.left = tuple(parameters.families), tuple(left)

    @contextlib.contextmanager
    def said(self) -> Iterator[None]:
        """What stops the command here also says what is kept, and how to go on."""
        try:
            yield
        except (KeyboardInterrupt, InputError) as stopped:
            if not self.families:
                raise
            raise type(stopped)(f"{str(stopped) or 'Interrupted.'} {self}") from None

    def __str__(self) -> str:
        left = "".join(f" --family {name}" for name in self.left)
        replaced = "this command's --params and --family" if left else "DATA"
        return (
            f"What was fitted ({', '.join(self.families)}) is in {self.place}.safetensors and .json; "
            f"go on with --params {self.place}{left} in the place of {replaced}."
        )

    def remove(self) -> None:
        """The command is done."""
        from calibration.stored import paths

        for path in paths(self.place) if self.families else ():
            path.unlink(missing_ok=True)


def fit(
    reads: Sequence[Read],
    excluded: Sequence[str],
    settings: Settings,
    kept: Callable[[Parameters, Sequence[str]], None],
    quiet: bool,
    cores: Sequence[int],
) -> Parameters:
    """Every family of the tables fitted: one in this process, several each in its own, on as many of `cores`.

    **Raises:** `InputError` where no row can be fitted, or a process ended without saying why.
    """
    from calibration.calibrate import calibrate
    from jaxperf.cli.measured import step_log

    families = {table.family for read in reads for table in read.tables}
    own = own_cores(len(families), cores)
    with step_log(quiet) as progress:

        def apart(tables: Mapping[str, KernelTable]) -> Iterator[tuple[str, Calibrated]]:
            rows = Counter[str]()
            for table in tables.values():
                rows[table.family] += len(table)
            commands = {name: command_of(name, reads, excluded, settings.seed) for name, _ in rows.most_common()}
            return fitted_apart(commands, own, progress)

        return calibrate(reads, excluded, settings, progress, kept=kept, apart=apart if len(own) > 1 else None)


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


def command_of(family: str, reads: Sequence[Read], excluded: Sequence[str], seed: int) -> list[str]:
    """What fits one family of the tables, but for where to."""
    import hwspecs
    from jaxperf.cli.measured import only_families

    own = only_families(reads, [family])
    there = devices_of(own)
    options = [word for name in excluded if hwspecs.resolve(name).name in there for word in ("--exclude-device", name)]
    files = [str(Path(read.path).resolve()) for read in own]
    return ["calibrate", *files, "--quiet", "--seed", str(seed), "--family", family, *options]


def fitted_apart(
    commands: Mapping[str, Sequence[str]], cores: Sequence[int], progress: Callable[[str], None]
) -> Iterator[tuple[str, Calibrated]]:
    """The families that these commands fit, each on a core of its own, as they are ready.

    One without a row that can be used is left out, aloud. **Raises:** `InputError`, after all others, for those whose
    process ended otherwise.
    """
    from calibration.calibrate import NO_ROW

    waiting, free, running, broken = list(commands), list(cores), {}, []
    with tempfile.TemporaryDirectory(prefix="jaxperf-") as folder:
        place = {name: Path(folder) / name for name in commands}
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
                        yield from _calibrated(place[name])
                    elif said == NO_ROW:
                        say_left_out([f"{name}: {said}"])
                    else:
                        broken.append(f"The process that fitted {name} ended with status {status}. {said}".strip())
                time.sleep(LOOK)
        finally:
            for process, _ in running.values():
                process.terminate()
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


def _calibrated(place: Path) -> Iterator[tuple[str, Calibrated]]:
    from calibration.calibrate import Calibrated
    from calibration.parameters import load_parameters

    parameters = load_parameters(place)
    for name, family in parameters.families.items():
        yield name, Calibrated(family, [row for row in parameters.card["errors"] if row["family"] == name])
