"""Measured fixed batches on a real engine: all prompts prefilled together, then decoded step by step (PipeWeave)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hwspecs.errors import InputError

COLUMNS = ("gpu", "tp", "model", "dtype", "framework", "output_len", "prompt_lengths", "prefill_s", "decode_step_s")


@dataclass(frozen=True)
class StaticBatch:
    """One measured batch: `prompts` tokens of each prompt, `prefill` and median `decode_step` time [s]."""

    gpu: str
    model: str
    dtype: str
    framework: str
    tensor_parallel: int
    prompts: tuple[int, ...]
    output: int
    prefill: float
    decode_step: float


def read_static_batches(path: str | Path) -> list[StaticBatch]:
    """All rows of a CSV with the columns `COLUMNS`.

    **Raises:** `InputError` naming file, line and field for a missing file or column, or a value that is not valid.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(_rows(path, csv.DictReader(file)))
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror}.") from None


def _rows(path: Path, reader: csv.DictReader[str]) -> Iterator[StaticBatch]:
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError(f"{path}: the column '{missing[0]}' is missing; needed: {', '.join(COLUMNS)}.")
    for row in reader:
        try:
            yield StaticBatch(
                gpu=row["gpu"],
                model=row["model"],
                dtype=row["dtype"],
                framework=row["framework"],
                tensor_parallel=int(row["tp"]),
                prompts=tuple(int(length) for length in json.loads(row["prompt_lengths"])),
                output=int(row["output_len"]),
                prefill=float(row["prefill_s"]),
                decode_step=float(row["decode_step_s"]),
            )
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}, line {reader.line_num}: {error}.") from None
