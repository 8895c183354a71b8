"""Rows of a table of training steps from the files people describe runs with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hwspecs.errors import InputError
from jaxperf.io.calculon.files import read_calculon
from jaxperf.io.megatron.arguments import read_megatron
from jaxperf.io.training_configuration import TrainingConfiguration

ENDINGS = (".args", ".txt", ".sh", ".yaml", ".yml", ".json")


def read_configuration(
    *paths: str | Path, devices: int | None = None, device: str | None = None
) -> TrainingConfiguration:
    """Of one file of Megatron's arguments (.args, .txt, .sh, .yaml), or of Calculon's JSON files, named or in a folder.

    **Raises:** `InputError` as `read_megatron` and `read_calculon` do, for another ending, and for Calculon's files of
    another number of devices.
    """
    files = [file for path in map(Path, paths) for file in (_json_files(path) if path.is_dir() else [path])]
    if files and all(file.suffix.lower() == ".json" for file in files):
        run = read_calculon(files, device)
        if devices not in (None, run.devices):
            raise InputError(f"{run.source}: num_procs is {run.devices:,}, but {devices:,} devices are asked for.")
        return run
    if len(files) == 1 and files[0].suffix.lower() in ENDINGS:
        return read_megatron(files[0], devices, device)
    shown = ", ".join(map(str, paths)) or "nothing"
    raise InputError(f"{shown}: give one file of Megatron's arguments ({', '.join(ENDINGS[:-1])}) or Calculon's .json.")


def _json_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == ".json")


def rows_from(*paths: str | Path, devices: int | None = None, device: str | None = None) -> list[dict[str, Any]]:
    """One row, with the columns of a table of training steps, of the configuration that the files describe."""
    return [read_configuration(*paths, devices=devices, device=device).row()]
