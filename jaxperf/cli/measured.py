"""What the commands on measured kernels share: JAX in 32 bits, tables and folders of them, what was wrong with rows."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean, shortened

if TYPE_CHECKING:
    from rich.console import Console

    from calibration.datasets import Read
    from calibration.kernels.parameters import Parameters

TABLES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")  # what is opened of a folder
NO_GPU = "no GPU, and the law is that of GPUs; its rows only adapt it"
LOCATED = 10  # so many problems are shown; the rest is counted

Params = Annotated[
    Path | None,
    typer.Option("--params", metavar="PARAMS", help="Parameters made by jaxperf calibrate (default: the shipped)."),
]
Families = Annotated[
    list[str] | None,
    typer.Option("--family", metavar="NAME", help="Only this family, such as gemm; may be repeated."),
]


def start_single_precision(quick: bool = False) -> None:
    """JAX as every command starts it, but in 32 bits: the scatter of measured times is thousands of roundings wide,
    and a fit is then the same as from Python, where 32 bits are JAX's own default."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick)
    import jax

    jax.config.update("jax_enable_x64", False)


def check_families(names: Sequence[str]) -> None:
    """Raises `InputError` for a name that is no family, or one that no law is written for."""
    from calibration.datasets import FAMILIES
    from calibration.kernels.demand import POINTS

    for name in names:
        if name not in FAMILIES:
            raise InputError(
                f"--family: '{name}' is not a family.{did_you_mean(name, FAMILIES)} Known: {', '.join(POINTS)}."
            )
        if name not in POINTS:
            raise InputError(f"--family: {name} has no model to fit; those that have: {', '.join(POINTS)}.")


def read_measured_tables(
    paths: Sequence[Path], families: Sequence[str] = (), directories: Sequence[Path] = ()
) -> tuple[list[Read], list[str]]:
    """Every table of measured kernels among files and folders, each file once, and a sentence for each file of a folder
    that is none.

    **Arguments:** `families`: only their rows, if any; `directories`: of the user's own devices.
    **Raises:** `InputError` for a path that does not exist, a named file that cannot be used, or where nothing is left.
    """
    reads: dict[str, Read] = {}
    left_out: list[str] = []
    for path in paths:
        files = _files(path)
        for file in files or [path]:
            same = os.path.realpath(file)  # unlike Path.resolve, of a loop of links as well
            if same in reads:
                continue
            try:
                reads[same] = _read_measured(file, directories)
            except InputError as error:
                if not files:
                    raise
                left_out.append(str(error))
    if not reads:
        raise InputError(f"No table of measured kernels in {', '.join(map(str, paths))}: {left_out[0]}")
    return only_families(list(reads.values()), families), left_out


def _files(path: Path) -> list[Path]:
    """The tables of a folder; empty for anything but a folder."""
    if not path.is_dir():
        return []
    found = [file for file in sorted(path.iterdir()) if file.name.lower().endswith(TABLES) and file.name[0] != "."]
    if not found:
        raise InputError(f"{path} holds no table: none of its files ends in {', '.join(TABLES)}.")
    return found


def _read_measured(path: Path, directories: Sequence[Path]) -> Read:
    """A table, or the products of a profile whose operations recorded their shapes."""
    from calibration.datasets import format_of, read_table

    kind = format_of(path)
    read = read_table(path, directories=directories) if kind == "table" else _read_profile(path, kind)
    if not read.tables:
        reason = f": {read.located(read.problems[0])}" if read.problems else "."
        raise InputError(f"{path} has no row that can be used{reason}")
    if all(table.latency is None for table in read.tables):
        raise InputError(f"{path} has no measured times; name the column latency_us (or _s, _ms, _ns).")
    return read


def _read_profile(path: Path, kind: str) -> Read:
    from calibration.datasets import KernelTimes, Read, read_measured

    if kind == "nccl_log":
        raise InputError(f"{path} holds collectives, which are not fitted here.")
    found = read_measured(path)
    if not isinstance(found, KernelTimes) or not found.tables:
        raise InputError(f"{path} ({kind}) names kernels but not their shapes; profile with record_shapes=True.")
    return Read(found.tables, found.problems, sum(map(len, found.tables)), str(path))


def only_families(reads: Sequence[Read], families: Sequence[str]) -> list[Read]:
    """The files with rows of these families, if any are named, and of those only these. Raises `InputError` for one
    that no file has."""
    import dataclasses

    if not families:
        return list(reads)
    there = sorted({table.family for read in reads for table in read.tables})
    for name in families:
        if name not in there:
            raise InputError(f"--family: the data has no row of {name}; it has {', '.join(there)}.")
    kept = [
        dataclasses.replace(read, tables=tuple(table for table in read.tables if table.family in families))
        for read in reads
    ]
    return [read for read in kept if read.tables]


def only_devices(
    reads: Sequence[Read], names: Sequence[str], option: str, directories: Sequence[Path] = ()
) -> list[Read]:
    """The files with rows of these devices, if any are named, and of those only these; errors as of `devices_named`."""
    import dataclasses

    import numpy as np

    if not names:
        return list(reads)
    wanted = devices_named(names, reads, option, directories)
    kept = []
    for read in reads:
        tables = [table.take(np.flatnonzero(np.isin(table.device.astype(str), wanted))) for table in read.tables]
        kept.append(dataclasses.replace(read, tables=tuple(table for table in tables if len(table))))
    return [read for read in kept if read.tables]


def devices_named(
    names: Sequence[str], reads: Sequence[Read], option: str, directories: Sequence[Path] = ()
) -> list[str]:
    """The devices that an option names, as the registry spells them.

    **Raises:** `InputError` for an unknown device, or one that has no row in the data.
    """
    import hwspecs

    registry, there, found = hwspecs.open_registry(directories), sorted(devices_of(reads)), []
    for text in names:
        try:
            name = registry.resolve(text).name
        except InputError:
            hint = registry.did_you_mean(text)
            raise InputError(
                f"{option}: '{text}' is not a known device.{hint} The data has {', '.join(there) or 'none'}."
            ) from None
        if name is None or name not in there:
            raise InputError(
                f"{option}: the data has no row of '{text}'.{did_you_mean(text, there)} "
                f"It has {', '.join(there) or 'no known device'}."
            )
        found.append(name)
    return found


def devices_of(reads: Sequence[Read]) -> set[str]:
    """Names of the known devices that there are rows of."""
    return {name for read in reads for table in read.tables for name in set(table.device.tolist()) if name}


def say_left_out(sentences: Sequence[str]) -> None:
    """What files or families were left out, and why."""
    for sentence in sentences:
        typer.echo(f"left out: {sentence}", err=True)


def problems_record(reads: Sequence[Read]) -> dict[str, Any]:
    """How many rows at most something was wrong with, and the first problems as sentences with file and row."""
    sentences = [read.located(problem) for read in reads for problem in read.problems[:LOCATED]]
    counts = [[problem.count for problem in read.problems] for read in reads]
    # A row may have several; of alike ones only their number is kept.
    rows = sum(min(sum(each), read.rows) for each, read in zip(counts, reads, strict=True))
    return {"rows": rows, "kinds": sum(map(len, counts)), "first": sentences[:LOCATED]}


def print_problems(out: Console, problems: dict[str, Any]) -> None:
    """The first problems, one a line, then how many more there are."""
    for sentence in problems["first"]:
        out.print(f"problem: {sentence}", soft_wrap=True)
    more = problems["kinds"] - len(problems["first"])
    if more:
        out.print(f"problem: and {more:,} more; at most {problems['rows']:,} rows in all have one.")


def parameters_record(parameters: Parameters, path: Path | None) -> dict[str, Any]:
    """Which parameters gave an answer: where they lie, when they were fitted, from how many files and on what devices,
    and the files that they were adapted to since."""
    card = parameters.card
    return {
        "path": "shipped" if path is None else str(path),
        "created": card.get("created"),
        "data": card.get("data", []),
        "adapted_to": card.get("adapted_to", []),
        "devices": card.get("devices", []),
        "families": sorted(parameters.families),
    }


@contextmanager
def step_log(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yields a callback that shows a finished step and the time so far, on a terminal only."""
    from jaxperf.report.text import console

    terminal = console(stderr=True)
    if quiet or not terminal.is_terminal:
        yield lambda text: None
        return
    started = time.monotonic()
    with terminal.status("fitting") as status:

        def report(text: str) -> None:
            terminal.print(f"{time.monotonic() - started:6.0f} s  {text}")
            status.update(f"fitting; last: {text}")

        yield report


def shared_folder() -> Path:
    """The folder of measured data: `JAXPERF_DATA`, else the one beside the project."""
    stated = os.environ.get("JAXPERF_DATA")
    return Path(stated) if stated else Path(__file__).parents[3] / "shared" / "data"


def shared_table(name: str) -> Path:
    """One table of the measured data. Raises `InputError` where it is missing."""
    path = shared_folder() / name
    if not path.is_file():
        raise InputError(f"No measured data at '{path}': give DATA, or set JAXPERF_DATA to a folder with {name}.")
    return path


def counted(reasons: Counter[str]) -> list[dict[str, Any]]:
    """Reasons or notes with their rows, the most frequent first; the empty one is none."""
    return [{"reason": shortened(reason), "rows": count} for reason, count in reasons.most_common() if reason]


def print_reasons(out: Console, record: Mapping[str, Any], quiet: bool) -> None:
    """Why rows have no prediction and, unless `quiet`, what to know of those that have."""
    for entry in record["without_prediction"]:
        out.print(f"no prediction ({entry['rows']:,}): {entry['reason']}", soft_wrap=True)
    for entry in () if quiet else record["notes"]:
        out.print(f"note ({entry['rows']:,}): {entry['reason']}", soft_wrap=True)
