"""Where two tables contradict each other, one value is kept and the other rejected for a stated reason."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import hwspecs
from hwspecs.files import SHIPPED

UNITS = {
    "boost_clock": "MHz",
    "l2": "MiB",
    "link_bw_uni": "GB/s",
    "mem_bw": "GB/s",
    "mem_size": "GB",
    "smem_per_sm": "KiB",
    "sms": "",
    "tdp": "W",
}


def resolutions() -> list[dict[str, str]]:
    with (SHIPPED / "conflicts.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def listed(measured_data: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """The flagged values of the measured data."""
    with (measured_data / "hardware" / "hwspecs_conflicts.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["device"], row["field"], row["value"], row["source"]): row for row in rows}
    assert len(found) == len(rows) == 91
    return found


def key(row: dict[str, str]) -> tuple[str, ...]:
    return row["listed_device"], row["listed_field"], row["listed_value"], row["listed_source"]


@pytest.mark.parametrize("row", resolutions(), ids=lambda row: "-".join(key(row)[:3]))
def test_the_kept_value_is_the_one_of_the_device(row: dict[str, str], devices: dict[str, hwspecs.DeviceSpec]) -> None:
    value = dict(devices[row["device"]].values())[row["field"]]
    kept = hwspecs.parse_quantity(row["kept"], value.unit)
    rejected = hwspecs.parse_quantity(row["rejected"], value.unit)
    assert kept == pytest.approx(value.si, rel=1e-9)
    assert abs(rejected / kept - 1) > 0.01
    assert hwspecs.resolve(row["listed_device"]).name == row["device"]
    assert len(row["reason"].split()) >= 2


def test_every_flagged_value_has_exactly_one_resolution(listed: dict[tuple[str, ...], dict[str, str]]) -> None:
    keys = [key(row) for row in resolutions()]
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(listed)


def test_what_is_rejected_is_the_flagged_value_or_its_reference(
    listed: dict[tuple[str, ...], dict[str, str]], devices: dict[str, hwspecs.DeviceSpec]
) -> None:
    for row in resolutions():
        unit = dict(devices[row["device"]].values())[row["field"]].unit
        scale = hwspecs.parse_quantity(f"1 {UNITS.get(row['listed_field'], 'TFLOP/s')}", unit)
        rejected = hwspecs.parse_quantity(row["rejected"], unit) / scale
        candidates = [float(listed[key(row)][column]) for column in ("value", "reference")]
        assert any(rejected == pytest.approx(candidate, rel=1e-4) for candidate in candidates), row
