"""Rows out and back, JSON without NaN, and places that cannot be written."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hwspecs.errors import InputError
from jaxperf.io.tables import check_folder_of, check_output, json_text, with_numbers, write_rows

ROWS = [{"name": "a", "time": 0.25, "count": 3}, {"name": 'b, "quoted"', "time": 1e-9, "count": 2**40}]


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet"])
def test_no_rows_is_a_file_too(tmp_path: Path, ending: str) -> None:
    write_rows([], tmp_path / f"rows{ending}", {})
    assert (tmp_path / f"rows{ending}").is_file()


def test_endings_in_capitals_are_the_same_endings(tmp_path: Path) -> None:
    for ending in ("csv", "json", "parquet"):
        check_output(tmp_path / f"ROWS.{ending.upper()}")
        for name in (f"rows.{ending}", f"ROWS.{ending.upper()}"):
            write_rows(ROWS, tmp_path / name, {})
        assert (tmp_path / f"rows.{ending}").read_bytes() == (tmp_path / f"ROWS.{ending.upper()}").read_bytes()


def test_no_rows_have_columns_all_the_same(tmp_path: Path) -> None:
    for ending in (".csv", ".parquet"):
        write_rows([], tmp_path / f"rows{ending}", {}, ["name", "time"])
    assert (tmp_path / "rows.csv").read_text() == "name,time\n"
    assert pq.read_table(tmp_path / "rows.parquet").column_names == ["name", "time"]


def test_round_trip(tmp_path: Path) -> None:
    write_rows(ROWS, tmp_path / "rows.parquet", {"origin": "here"})
    write_rows(ROWS, tmp_path / "rows.json", {"origin": "here"})
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.to_pylist() == ROWS and table.schema.metadata[b"origin"] == b"here"
    assert json.loads((tmp_path / "rows.json").read_text()) == {"metadata": {"origin": "here"}, "rows": ROWS}


def test_json_text_has_no_nan_and_plain_numbers() -> None:
    data = {"a": math.nan, "b": [np.float64("inf"), np.int32(3), np.bool_(True)], "c": (1, "x", None), 4: {}}
    text = json_text(data)
    assert json.loads(text) == {"a": None, "b": [None, 3, True], "c": [1, "x", None], "4": {}}
    assert "NaN" not in text and "Infinity" not in text


def test_cells_that_json_or_a_column_lacks_are_text(tmp_path: Path) -> None:
    rows = [{"at": datetime.datetime(2024, 1, 2, 3), "cost": decimal.Decimal("1.50"), "mixed": 7}]
    assert json.loads(json_text(rows)) == [{"at": "2024-01-02 03:00:00", "cost": "1.50", "mixed": 7}]
    mixed = [*rows, {"at": None, "cost": None, "mixed": "seven"}, {"at": None, "cost": None, "mixed": None}]
    write_rows(mixed, tmp_path / "rows.parquet", {})
    read = pq.read_table(tmp_path / "rows.parquet").to_pydict()
    assert read["mixed"] == ["7", "seven", None] and read["at"][0] == rows[0]["at"]


def test_columns_of_a_csv_that_are_numbers() -> None:
    rows = [
        {"whole": "3", "number": "1e-3", "id": "007", "text": "a", "made": 0.5},
        {"whole": "", "number": "-2.", "id": "008", "text": "1", "made": None},
    ]
    first, second = with_numbers(rows)
    assert first == {"whole": 3, "number": 1e-3, "id": "007", "text": "a", "made": 0.5}
    assert second == {"whole": None, "number": -2.0, "id": "008", "text": "1", "made": None}
    assert with_numbers([]) == []


def test_a_wrong_ending(tmp_path: Path) -> None:
    for refuse in (lambda path: write_rows(ROWS, path, {}), check_output):
        with pytest.raises(InputError, match="the ending must be one of .csv, .json, .parquet"):
            refuse(tmp_path / "rows.xlsx")


def test_writing_over_a_folder_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").mkdir()
    with pytest.raises(InputError, match="Cannot write"):
        write_rows(ROWS, tmp_path / "rows.csv", {})
    with pytest.raises(InputError, match="Cannot write"):
        write_rows(ROWS, tmp_path / "missing" / "rows.csv", {})
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_folders(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "rows.csv"
    with pytest.raises(InputError, match="does not exist"):
        check_folder_of(deep)
    assert not (tmp_path / "a").exists()
    deep.parent.mkdir(parents=True)
    check_output(deep)
    deep.write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        check_folder_of(deep / "rows.csv")


def test_a_disk_without_room_is_told_before_anything_is_computed(tmp_path: Path) -> None:
    """A limit on what the process may write stands for the full disk."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(InputError, match="Cannot write '.*rows.csv': "):
            check_output(tmp_path / "rows.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
    check_output(tmp_path / "rows.csv")
