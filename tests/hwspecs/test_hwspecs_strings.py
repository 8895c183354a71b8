"""Every device string of the measured data is a device or known not to be one."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

import hwspecs

DEVICE_COLUMNS = frozenset(("gpu", "device", "hardware"))


def csv_strings(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = [c for c in reader.fieldnames or () if c.casefold() in DEVICE_COLUMNS]
        if path.name == "hwspecs_recommended.csv":
            columns = [(reader.fieldnames or [""])[0]]  # its first column has no title
        if columns:
            for row in reader:
                yield from (row[c] for c in columns if row[c])


def parquet_strings(path: Path) -> Iterator[str]:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = parquet.ParquetFile(path)
    columns = [c for c in file.schema_arrow.names if c.casefold() in DEVICE_COLUMNS]
    if path.name.startswith("help_"):
        yield from (c for c in file.schema_arrow.names if c not in ("arch_idx", "arch", "op_idx"))
    for column in columns:
        for item in file.read(columns=[column]).column(0).unique().to_pylist():
            if item:
                yield item


def test_every_device_string_resolves(measured_data: Path) -> None:
    strings: dict[str, Path] = {}
    for path in sorted(measured_data.rglob("*")):
        if path.name.endswith((".csv", ".csv.gz")):
            strings.update((text, path) for text in csv_strings(path))
        elif path.suffix == ".parquet":
            strings.update((text, path) for text in parquet_strings(path))
    assert len(strings) > 150
    unknown = []
    for text, path in strings.items():
        try:
            hwspecs.resolve(text)
        except hwspecs.InputError:
            unknown.append(f"{text} in {path.name}")
    assert unknown == []


def test_kernel_and_end_to_end_devices_have_specifications(measured_data: Path) -> None:
    """The devices that predictions are scored on must have numbers, not just a name."""
    strings = {text for path in (measured_data / "kernels").glob("*.parquet") for text in parquet_strings(path)}
    strings |= set(csv_strings(measured_data / "static_batch" / "e2e_static_batch.csv"))
    strings |= set(csv_strings(measured_data / "neusight" / "e2e_labels.csv"))
    strings |= set(csv_strings(measured_data / "training" / "train_e2e.csv"))
    assert strings
    assert [text for text in sorted(strings) if hwspecs.resolve(text).name is None] == []
