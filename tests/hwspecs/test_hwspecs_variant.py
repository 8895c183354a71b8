"""A device made from another: its file reads back to it, and states no more than what differs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwspecs
from hwspecs.values import Source
from hwspecs.variant import variant, variant_toml

SOURCE = Source(title='A "study"', publisher="Us", kind="estimate", year=2026)
FIELDS = ("num_cores", "memory_bandwidth", "memory_capacity", "tdp", "peak_flops")
NOTES = dict.fromkeys(FIELDS, "halved, or so")


@given(st.sampled_from(hwspecs.names()), st.floats(0.3, 3.0), st.sets(st.sampled_from(FIELDS), min_size=1))
def test_its_file_reads_back_to_it(name: str, factor: float, fields: set[str]) -> None:
    base = hwspecs.load(name)
    numbers = {
        "num_cores": max(round(base.num_cores.si * factor), 1),
        "memory_bandwidth": base.memory_bandwidth.si * factor,
        "memory_capacity": base.memory_capacity.si * 4.0,
        "tdp": base.tdp.si * factor,
        "peak_flops": {form: value.si * factor for form, value in base.peak_flops.items()},
    }
    changes = {field: numbers[field] for field in FIELDS if field in fields}
    made = variant(base, "my-chip", changes, NOTES, "study", SOURCE)
    read = tomllib.loads(variant_toml(base, made, changes))
    assert set(read) == {"name", "base", "display_name", "sources", *fields}
    merged = base.to_dict() | {key: value for key, value in read.items() if key != "sources"}
    merged |= {"aliases": (), "sources": base.to_dict()["sources"] | read["sources"], "base": made.base}
    merged |= {"usable_memory": None} if "memory_capacity" in fields else {}
    assert type(base).model_validate(merged) == made


def test_a_command_reads_it(tmp_path: Path) -> None:
    base = hwspecs.load("a100-sxm-80gb")
    changes = {"num_cores": 54, "memory_capacity": 160e9}
    made = variant(base, "my-chip", changes, NOTES, "study", SOURCE)
    (tmp_path / "my-chip.toml").write_text(variant_toml(base, made, changes))
    with pytest.warns(hwspecs.InconsistentPeaks):  # half of the cores with all of the peak
        assert hwspecs.load("my-chip", [tmp_path]) == made
    assert made.usable_memory is None
    assert made.base == "a100-sxm-80gb"
