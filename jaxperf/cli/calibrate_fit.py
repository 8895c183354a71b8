"""The fits of `jaxperf calibrate`: several families each in a process of its own, kept on disk as they are finished."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hwspecs.errors import InputError
from jaxperf.cli import processes
from jaxperf.cli.measured import NO_GPU, devices_named, devices_of, say_left_out

if TYPE_CHECKING:
    from calibration.datasets import KernelTable, Read
    from calibration.kernels.calibrate import Calibrated
    from calibration.kernels.fit import Settings
    from calibration.kernels.parameters import Parameters


def read_tables(paths: Sequence[Path], families: Sequence[str], excluded: Sequence[str], quiet: bool) -> list[Read]:
    """The measured tables that a fit asks for; says which files of a folder are none. Raises `InputError`."""
    from jaxperf.cli.measured import read_measured_tables

    reads, left_out = read_measured_tables(paths, families)
    devices_named(excluded, reads, "--exclude-device")
    if not quiet:
        say_left_out(left_out)
    return reads


def beside_gpus(reads: Sequence[Read], excluded: Sequence[str], quiet: bool) -> list[str]:
    """Devices of another kind whose rows lie beside those of GPUs: their law is not the GPUs', so that these are fitted
    without them, which is said. Rows of other kinds alone are fitted as they are."""
    import hwspecs
    from calibration.kernels.calibrate import not_gpus

    there = devices_of(reads) - {hwspecs.resolve(name).name for name in excluded}
    others = [name for name in not_gpus(reads) if name in there]
    if len(others) == len(there):
        return []
    if not quiet:
        say_left_out([f"{name}: {NO_GPU} (--adapt)." for name in others])
    return others


@dataclass
class Kept:
    """The families that are finished, in files beside those of `out` until these are written."""

    out: Path
    families: tuple[str, ...] = field(default=(), init=False)
    left: tuple[str, ...] = field(default=(), init=False)

    @property
    def place(self) -> str:
        from jaxperf.core.parameter_files import base_of

        return base_of(self.out) + ".unfinished"

    def save(self, parameters: Parameters, left: Sequence[str]) -> None:
        """Writes what there is by now; `left`: the families still to be fitted. A full disk stops no fit."""
        from calibration.kernels.parameters import save_parameters

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
        from jaxperf.core.parameter_files import paths

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
    from calibration.kernels.calibrate import NO_ROW, calibrate
    from jaxperf.cli.measured import step_log

    own = processes.own_cores(len({table.family for read in reads for table in read.tables}), cores)
    with step_log(quiet) as progress:

        def elsewhere(tables: Mapping[str, KernelTable]) -> Iterator[tuple[str, Calibrated]]:
            families = processes.most_rows_first(tables.values())
            commands = {name: command_of(name, reads, excluded, settings.seed) for name in families}
            for place in processes.written(commands, own, progress, NO_ROW):
                yield from _calibrated(place)

        return calibrate(reads, excluded, settings, progress, kept=kept, apart=elsewhere if len(own) > 1 else None)


def command_of(family: str, reads: Sequence[Read], excluded: Sequence[str], seed: int) -> list[str]:
    """What fits one family of the tables, but for where to."""
    import hwspecs
    from jaxperf.cli.measured import only_families

    own = only_families(reads, [family])
    there = devices_of(own)
    options = [word for name in excluded if hwspecs.resolve(name).name in there for word in ("--exclude-device", name)]
    files = [str(Path(read.path).resolve()) for read in own]
    return ["calibrate", *files, "--quiet", "--seed", str(seed), "--family", family, *options]


def _calibrated(place: Path) -> Iterator[tuple[str, Calibrated]]:
    from calibration.kernels.calibrate import Calibrated
    from calibration.kernels.parameters import load_parameters

    parameters = load_parameters(place)
    for name, family in parameters.families.items():
        yield name, Calibrated(family, [row for row in parameters.card["errors"] if row["family"] == name])
