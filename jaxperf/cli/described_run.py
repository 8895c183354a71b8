"""A run described by another tool's files, as a table of one row: Megatron's arguments, a folder of Calculon's JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from hwspecs.errors import InputError, did_you_mean


@contextmanager
def as_table(
    path: Path, device: str | None, devices: int | None, directories: Sequence[str], quiet: bool
) -> Iterator[Path]:
    """`path` itself, or a table of the one run that it describes, for as long as it is needed; what the description
    leaves open or says in vain goes to the terminal unless `quiet`.

    **Arguments:** `directories`: folders of the user's own devices.
    **Raises:** `InputError` as the readers do; for a device that is not stated or not known, and for a device or a
    count beside a table, whose rows have their own.
    """
    import hwspecs
    from jaxperf.io.tables import write_rows
    from jaxperf.io.training_rows import ENDINGS, read_configuration

    if not path.is_dir() and (path.suffix.lower() not in ENDINGS or _is_json_table(path)):
        if device is not None or devices is not None:
            raise InputError(f"{path} is a table, whose columns gpu and n_gpus say these; leave out --device and --n.")
        yield path
        return
    run = read_configuration(path, devices=devices, device=device)
    if run.device is None:
        raise InputError(f"{path} does not say which device; give --device NAME.")
    registry = hwspecs.open_registry(directories)
    try:
        registry.resolve(run.device)
    except InputError:
        if device is not None:
            raise
        raise InputError(
            f"{path}: its system file '{run.device}' has not the name of a known device, and its numbers are not used; "
            f"give --device NAME.{did_you_mean(run.device, registry.names)}"
        ) from None
    for note in () if quiet else run.notes:
        typer.echo(f"note: {note}", err=True)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / f"{path.stem}.csv"
        write_rows([{**run.row(), "source": run.software}], table, {})
        yield table


def _is_json_table(path: Path) -> bool:
    """Whether a file is JSON with a list of rows; Calculon's files are objects. Raises `InputError` where it cannot be
    read."""
    from calibration.datasets.files import read_text

    return path.suffix.lower() == ".json" and read_text(path).lstrip().startswith("[")
