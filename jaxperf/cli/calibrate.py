"""`jaxperf calibrate DATA... -o PARAMS`: parameters from measured kernels, or a few rows to adapt those there are.

With --params and --family, DATA refits those families alone, and the others are carried over. Beside the parameters of
kernels go the rates of composed steps, which estimate, rank and sweep read.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from jaxperf.cli.measured import Families, Params
from jaxperf.cli.options import AsJson, DevicesDirectory, Quiet

if TYPE_CHECKING:
    from calibration.datasets import Read
    from calibration.kernels.adaptation import Adaptation, FileUsed
    from calibration.kernels.fit import Settings
    from calibration.kernels.parameters import Parameters
    from calibration.sustained.own import OwnRates

WIDTH = 110  # of the table: a narrower terminal wraps it, and no figure is cut
ERROR_COLUMNS = ("family", "format", "device", "split", "rows")


def calibrate(
    out: Annotated[
        Path,
        typer.Option("-o", "--out", metavar="PARAMS", help="Writes PARAMS.safetensors, .json and .sustained.json."),
    ],
    data: Annotated[
        list[Path] | None, typer.Argument(metavar="DATA", help="Tables of measured kernels, or folders of them.")
    ] = None,
    adapt: Annotated[
        list[Path] | None,
        typer.Option("--adapt", metavar="TABLE", help="Adapt to a few rows of a device; may be repeated."),
    ] = None,
    adapt_device: Annotated[
        list[str] | None,
        typer.Option("--adapt-device", metavar="NAME", help="Of --adapt, only this device's rows; may be repeated."),
    ] = None,
    params: Params = None,
    exclude_device: Annotated[
        list[str] | None,
        typer.Option("--exclude-device", metavar="NAME", help="Learn nothing from this device; may be repeated."),
    ] = None,
    family: Families = None,
    devices_dir: DevicesDirectory = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of the fit (default: 0).")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit parameters to measured kernels, or adapt them. With --adapt and no DATA those of --params are adapted.

    DATA with --params and --family fits those families anew and carries the others over.
    """
    from jaxperf.cli.calibrate_fit import Kept, beside_gpus, fit, read_tables
    from jaxperf.cli.measured import check_families, start_single_precision
    from jaxperf.cli.processes import on_core, usable_cores

    cores, families = usable_cores(), family or []
    with on_core(cores[0]):  # before JAX begins, so that the parameters are alike on any number of cores
        start_single_precision()
        from calibration.kernels.adaptation import adaptations
        from calibration.kernels.card import few_held_out, stated_errors
        from calibration.kernels.carry import carried, with_command
        from calibration.kernels.parameters import load_parameters, save_parameters
        from jaxperf.cli.calibrate_rates import base_rates, save_rates

        check_families(families)
        check_place(out)
        _check_question(data, adapt, adapt_device, params, exclude_device, families, seed)
        _check_directories(devices_dir or [], data)
        rates = base_rates(params)
        read, few, excluded, notes = [], [], exclude_device or [], []
        kept = Kept(out)
        command = _command(data or [], adapt or [], adapt_device or [], exclude_device or [], families, seed)
        if data:
            old = None if params is None else load_parameters(params, refitted=families)
            stated_errors(old.card if old else {})  # carried over after the fit; refused before it
            finished = lambda new: carried(old, with_command(new, command)) if old else with_command(new, command)  # noqa: E731
            read = read_tables(data, families, excluded, quiet)
            excluded = [*excluded, *beside_gpus(read, excluded, quiet)]
            with kept.said():
                save = lambda new, left: kept.save(finished(new), left)  # noqa: E731
                new = fit(read, excluded, settings(seed), save, quiet, cores)
                parameters, notes = finished(new), few_held_out(new.card, new.families)
        else:
            parameters = with_command(load_parameters(params), command)
        with kept.said():
            base = parameters
            if adapt:
                parameters, few = _adapt(parameters, adapt, adapt_device or [], families, devices_dir or [], quiet)
            save_parameters(parameters, out)
            own = save_rates(parameters, [*read, *few], rates, out, excluded, devices_dir or [])
        kept.remove()
        adapted = adaptations(base, parameters, few, [str(folder) for folder in devices_dir or []])
        errors = stated_errors(parameters.card) if data else []
        _report(parameters, _Found(errors, notes, adapted, own), [*read, *few], out, as_json, quiet)


def settings(seed: int | None) -> Settings:
    """How the fit is run."""
    from calibration.kernels.fit import Settings

    return Settings() if seed is None else Settings(seed=seed)


def check_place(out: Path) -> None:
    """Raises `InputError` unless all files of the parameters can be written."""
    from jaxperf.io.tables import check_card, check_output

    if out.name in ("", ".."):
        raise InputError(f"Cannot write '{out}': it is a folder; give a name in it, such as {out / 'mine'}.")
    for path in written(out):
        check_output(path, [path.suffix.lower()])
        if path.suffix.lower() == ".json":
            check_card(path, "table", False, "a measured table")


def written(out: Path) -> list[Path]:
    """The files that the command writes."""
    from jaxperf.core.parameter_files import paths
    from jaxperf.core.sustained_file import place_of

    return [*paths(out), place_of(out)]


def _check_question(
    data: list[Path] | None,
    adapt: list[Path] | None,
    adapted: list[str] | None,
    params: Path | None,
    excluded: list[str] | None,
    families: list[str],
    seed: int | None,
) -> None:
    """Options that contradict each other."""
    if data and params is not None and not families:
        raise InputError(
            "DATA makes new parameters and --params names old ones; give one of them, or name with --family the "
            "families to fit anew, the others to be carried over."
        )
    if not data and not adapt:
        raise InputError("Nothing to learn from: give DATA to fit, or --adapt TABLE to adapt the parameters there are.")
    if adapted and not adapt:
        raise InputError("--adapt-device names devices of --adapt's tables; give one with --adapt TABLE.")
    if not data and (excluded or seed is not None):
        raise InputError("--exclude-device and --seed belong to a fit; without DATA there is none.")
    if seed is not None and not 0 <= seed < 2**31:
        raise InputError(f"--seed is {seed}; it must be a whole number from 0 to {2**31 - 1}.")


def _check_directories(directories: Sequence[Path], data: list[Path] | None) -> None:
    import hwspecs

    if data and directories:
        raise InputError(
            "--devices-dir: a fit reads only the devices that ship with jaxperf; "
            "give the table of your own device to --adapt, without DATA."
        )
    hwspecs.open_registry(directories)


def _adapt(
    parameters: Parameters,
    paths: list[Path],
    devices: list[str],
    families: list[str],
    directories: list[Path],
    quiet: bool,
) -> tuple[Parameters, list[Read]]:
    """The parameters with the tables' devices; refused where no row could be learned from."""
    from calibration.kernels.adapt import adapt
    from jaxperf.cli.measured import only_devices, read_measured_tables, say_left_out

    reads, left_out = read_measured_tables(paths, families, directories)
    reads = only_devices(reads, devices, "--adapt-device", directories)
    if not quiet:
        say_left_out(left_out)
    adapted = adapt(parameters, reads, [str(folder) for folder in directories])
    changed = [name for name, each in adapted.families.items() if each is not parameters.families.get(name)]
    if not changed:
        raise InputError(_nothing_learned(parameters, paths, reads))
    return adapted, reads


def _nothing_learned(parameters: Parameters, paths: Sequence[Path], reads: Sequence[Read]) -> str:
    """Why nothing could be adapted: what rows must have, and what is wrong with the first."""
    from jaxperf.cli.measured import devices_of, problems_record

    there = sorted({table.family for read in reads for table in read.tables})
    other = [family for family in there if family not in parameters.families]
    known = f" ({', '.join(sorted(parameters.families))})" if other else ""
    own = "" if devices_of(reads) else " A device of your own needs a TOML file, found by --devices-dir."
    wrong = "".join(f" {sentence}" for sentence in problems_record(reads)["first"][:1])
    return (
        f"Nothing to adapt with in {', '.join(map(str, paths))} ({', '.join(there)}): it takes rows with a known "
        f"device and a time, of a family that the parameters have{known}.{wrong}{own}"
    )


def _command(
    data: Sequence[Path],
    adapt: Sequence[Path],
    adapted: Sequence[str],
    excluded: Sequence[str],
    families: Sequence[str],
    seed: int | None,
) -> str:
    """The command as the card states it, with the names of the files but not where they lay."""
    words = ["jaxperf", "calibrate", *(path.name for path in data)]
    repeated = {
        "--adapt": [path.name for path in adapt],
        "--adapt-device": adapted,
        "--exclude-device": excluded,
        "--family": families,
    }
    words += [word for option, values in repeated.items() for value in values for word in (option, value)]
    return shlex.join(words + ([] if seed is None else ["--seed", str(seed)]))


@dataclasses.dataclass(frozen=True)
class _Found:
    """What the command tells beside the card: `errors` of the fit, if there was one, and notes on it; `adapted`: see
    `adaptations`; the rates of composed steps."""

    errors: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    adapted: tuple[list[Adaptation], list[FileUsed]]
    rates: OwnRates


def _report(
    parameters: Parameters, found: _Found, reads: Sequence[Read], out: Path, as_json: bool, quiet: bool
) -> None:
    from jaxperf.cli.calibrate_adapted import adapted_record, adapted_table, unused_sentences
    from jaxperf.cli.calibrate_rates import rates_record, rates_sentences
    from jaxperf.cli.measured import print_problems, problems_record
    from jaxperf.io.tables import json_text
    from jaxperf.report.text import console

    problems, files = problems_record(reads), list(map(str, written(out)))
    adapted, used = found.adapted
    if as_json:
        record = {"written": files, "problems": problems, "notes": found.notes, "sustained": rates_record(found.rates)}
        typer.echo(json_text(record | {"adapted": adapted_record(adapted, used), "card": parameters.card}))
        return
    screen = console()
    screen.width = max(screen.width, WIDTH)
    if found.errors:
        screen.print(error_table(found.errors))
    if adapted:
        screen.print(adapted_table(adapted))
    if not quiet:
        print_problems(screen, problems)
        for sentence in (*found.notes, *unused_sentences(used), *rates_sentences(found.rates)):
            screen.print(f"note: {sentence}", soft_wrap=True)
    screen.print(f"written: {', '.join(files[:-1])} and {files[-1]}", soft_wrap=True)


def error_table(errors: Sequence[Mapping[str, Any]]) -> Any:
    """The error table of a card: medians of |predicted / measured - 1| in percent, the roofline's beside it."""
    from jaxperf.report.text import table

    columns = (*ERROR_COLUMNS, "median", "mean", "p90", "roofline's median")
    keys = ("median", "mean", "p90", "roofline_median")
    ordered = sorted(errors, key=lambda row: tuple(str(row[name]) for name in ("split", "family", "device", "format")))
    cells = [
        (*(str(row[name]) for name in ERROR_COLUMNS[:-1]), f"{row['rows']:,}", *(f"{row[key]:.1f}" for key in keys))
        for row in ordered
    ]
    return table("Errors on what the fit did not see, in percent of the measured time", columns, cells)
