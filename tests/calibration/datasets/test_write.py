"""Writing predictions back: same rows, same order, whole or not at all."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibration.datasets import data_hash, read_table, scatter, write, write_with
from hwspecs.errors import InputError

TEXT = 'name,version,m,n,k,latency_us\n"a, b",2.30,8,16,32,1.50\nc,0.10,9,,32,\nd,1,10,16,32,007\n'
PREDICTED = {"predicted_us": np.array([1.25, np.nan, 3.0]), "limiter": np.array(["memory", None, "compute"], object)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text(TEXT)
    return path


def test_csv_cells_keep_their_spelling(source: Path, tmp_path: Path) -> None:
    write_with(source, tmp_path / "out.csv", PREDICTED)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines == [
        "name,version,m,n,k,latency_us,predicted_us,limiter",
        '"a, b",2.30,8,16,32,1.50,1.25,memory',
        "c,0.10,9,,32,,,",
        "d,1,10,16,32,007,3,compute",
    ]


def test_a_cell_that_needs_quotes_changes_the_spelling_of_no_other(source: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    plain.write_text(TEXT.replace('"a, b"', "a b"))
    columns = {
        "feasible": np.array([True, False, True]),
        "time": np.array([1e-7, np.nan, 0.1 + 0.2]),
        "count": np.array([1, 2, 10**15]),
        "single": np.array([0.1, 2.0, np.nan], np.float32),
    }
    for path in (source, plain):
        write_with(path, tmp_path / f"out_{path.name}", columns)
    quoted, unquoted = ((tmp_path / f"out_{name}").read_text() for name in ("in.csv", "plain.csv"))
    assert quoted.replace('"a, b"', "a b") == unquoted
    assert ",true,1e-7,1," in quoted


def test_lines_of_white_space_are_no_rows(source: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank.csv"
    blank.write_text(TEXT.replace("\n", "\n  \n"))
    for path in (source, blank):
        write_with(path, tmp_path / f"out_{path.name}", PREDICTED)
    assert (tmp_path / "out_blank.csv").read_text() == (tmp_path / "out_in.csv").read_text()


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.csv.gz", "o.tsv", "o.json", "o.jsonl"])
def test_every_format_reads_back_as_the_same_rows(source: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    write_with(source, target, PREDICTED)
    before, after = read_table(source), read_table(target)
    assert after.rows == 3
    assert before.tables[0].row.tolist() == after.tables[0].row.tolist() == [0, 2]
    assert after.tables[0].version.tolist() == ["2.30", "1"]
    assert before.tables[0].latency is not None and after.tables[0].latency is not None
    np.testing.assert_array_equal(before.tables[0].latency, after.tables[0].latency)


def test_numbers_of_a_csv_are_numbers_in_parquet(source: Path, tmp_path: Path) -> None:
    write_with(source, tmp_path / "o.parquet", PREDICTED)
    table = pq.read_table(tmp_path / "o.parquet")
    kinds = dict(zip(table.column_names, map(str, table.schema.types), strict=True))
    assert (kinds["m"], kinds["n"], kinds["latency_us"], kinds["version"]) == ("int64", "int64", "double", "string")
    assert table["n"].to_pylist() == [16, None, 16]
    assert table["predicted_us"].to_pylist() == [1.25, None, 3.0]


def test_parquet_keeps_where_its_numbers_come_from_beside_what_it_had(source: Path, tmp_path: Path) -> None:
    for read, written, told in ((source, "one", "shipped"), (tmp_path / "one.parquet", "two", "mine")):
        added = PREDICTED if written == "one" else {"more": PREDICTED["limiter"]}
        write_with(read, tmp_path / f"{written}.parquet", added, {written: told})
    assert pq.read_schema(tmp_path / "two.parquet").metadata == {b"one": b"shipped", b"two": b"mine"}


def test_json_has_null_for_what_is_not_a_number(source: Path, tmp_path: Path) -> None:
    write_with(source, tmp_path / "o.json", PREDICTED)
    records = json.loads((tmp_path / "o.json").read_text())
    assert [record["predicted_us"] for record in records] == [1.25, None, 3.0]


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet", ".json"])
def test_a_table_larger_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(write, "CHUNK", 7)
    gpus = pa.array(["h100", "a100", "l4", "h100", "t4"] * 10).dictionary_encode()
    pq.write_table(pa.table({"m": list(range(50)), "gpu": gpus}), tmp_path / "in.parquet", row_group_size=13)
    write_with(tmp_path / "in.parquet", tmp_path / f"o{suffix}", {"x": np.arange(50) * 0.5})
    if suffix == ".parquet":
        records = pq.read_table(tmp_path / "o.parquet").to_pylist()
    elif suffix == ".json":
        records = json.loads((tmp_path / "o.json").read_text())
    else:
        lines = gzip.decompress((tmp_path / "o.csv.gz").read_bytes()).decode().splitlines()
        records = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    assert [(int(r["m"]), r["gpu"], float(r["x"])) for r in records] == [
        (i, ["h100", "a100", "l4", "h100", "t4"][i % 5], 0.5 * i) for i in range(50)
    ]


def test_the_same_table_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        write_with(source, tmp_path / name, PREDICTED)
    assert data_hash(tmp_path / "a.csv.gz") == data_hash(tmp_path / "b.csv.gz")


def test_the_hash_is_that_of_the_bytes(source: Path) -> None:
    assert data_hash(source) == hashlib.sha256(TEXT.encode()).hexdigest()


def test_predictions_go_back_to_their_rows() -> None:
    column = scatter(4, np.array([3, 1]), np.array([30.0, 10.0]))
    np.testing.assert_array_equal(column, [np.nan, 10.0, np.nan, 30.0])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": np.zeros(2)}, "has 2 values, but .* has 3 rows"),
        ({"x": np.zeros(9)}, "has 9 values, but .* has 3 rows"),
        ({"m": np.zeros(3)}, "already has a column 'm'"),
        ({"x": np.zeros((3, 1))}, "one-dimensional"),
    ],
)
def test_a_refused_write_leaves_what_was_there(
    source: Path, tmp_path: Path, columns: dict[str, np.ndarray], said: str
) -> None:
    target = tmp_path / "out.csv"
    target.write_text("precious")
    with pytest.raises(InputError, match=said):
        write_with(source, target, columns)
    assert target.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]


def test_cells_that_only_parquet_has_are_text_elsewhere(tmp_path: Path) -> None:
    day, bytes_of = {"day": datetime.date(2026, 1, 1)}, tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": pa.array([day]), "b": pa.array([b"ok"]), "c": pa.array([[float("nan")]])}), bytes_of)
    write_with(bytes_of, tmp_path / "o.jsonl", {"x": np.zeros(1)})
    said = '{"a": {"day": "2026-01-01"}, "b": "ok", "c": [null], "x": 0.0}'
    assert (tmp_path / "o.jsonl").read_text().strip() == said
    write_with(bytes_of, tmp_path / "o.csv", {"x": np.zeros(1)})
    assert (tmp_path / "o.csv").read_text().split()[1:] == ['"{""day"":', '""2026-01-01""}",ok,[null],0']
    pq.write_table(pa.table({"b": pa.array([b"\xff"])}), bytes_of)
    with pytest.raises(InputError, match=r"the column 'b' holds bytes that are not UTF-8; write to a \.parquet file"):
        write_with(bytes_of, tmp_path / "o.csv", {"x": np.zeros(1)})


def test_an_interrupted_write_leaves_what_was_there(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, *_: object) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "_write_parquet", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_with(source, tmp_path / "o.parquet", PREDICTED)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_the_input_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(source)
    for target in (source, tmp_path / "link.csv"):
        with pytest.raises(InputError, match="is the input"):
            write_with(source, target, PREDICTED)
    assert source.read_text() == TEXT


def test_a_target_that_cannot_be(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must end in"):
        write_with(source, tmp_path / "out.xlsx", PREDICTED)
    with pytest.raises(InputError, match="Cannot write"):
        write_with(source, tmp_path / "nowhere" / "out.csv", PREDICTED)
