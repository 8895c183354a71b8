"""Files out: written whole or not at all, refused in one sentence where they cannot be."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ESTIMATE = ("estimate", "gpt2", "--device", "h100-sxm", "--prompt", "64", "--output", "8")
RANK = ("rank", "gpt2", "--devices", "h100-sxm,l4", "--prompt", "64", "--output", "8", "--max-devices", "2")
COMMANDS = {"estimate": ESTIMATE, "rank": (*RANK, "--max-batch", "4")}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_mistake_that_cannot_be_printed_is_still_one(unbuffered: str) -> None:
    """A buffered standard error keeps what it could not write, and Python tries it once more at its end."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "jaxperf", "devices", "nosuch"]
        done = subprocess.run(command, stderr=full, env=environment, timeout=60)
    assert done.returncode == 2


@pytest.mark.parametrize("given", ["config.json", "."])
def test_no_command_writes_over_what_it_reads(given: str, tmp_path: Path, refuse: Any) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(resources.files("jaxperf.models").joinpath("configs/gpt2.json").read_bytes())
    before = config.read_bytes()
    words = ("estimate", str(tmp_path / given), "--device", "h100-sxm", "-o", str(config))
    assert "is the input; write to another file" in refuse(*words)
    assert config.read_bytes() == before


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("-o", "rows.txt", "the ending must be one of .csv, .json, .parquet"),
        ("-o", "rows", "the ending must be one of"),
        ("-o", "missing/rows.csv", "does not exist"),
        ("-o", "folder.csv", "it is a folder"),
        ("-o", "file/rows.csv", "is not a folder"),
        ("-o", "a" * 300 + ".csv", "File name too long"),
        ("--plot", "picture.bmp", "the ending must be one of .png, .svg, .pdf"),
        ("--plot", "folder.png", "it is a folder"),
        ("--plot", "missing/picture.png", "does not exist"),
        ("--plot", "file/picture.png", "is not a folder"),
        ("--plot", "a" * 300 + ".png", "File name too long"),
    ],
)
def test_places_that_cannot_be_written(
    refuse, own_folder: Path, command: str, option: str, path: str, said: str
) -> None:
    (own_folder / "folder.csv").mkdir()
    (own_folder / "folder.png").mkdir()
    (own_folder / "file").write_text("")
    found = refuse(*COMMANDS[command], option, path)
    assert said in found and found.count("\n") == 1
    assert left(own_folder) == ["file", "folder.csv", "folder.png"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("rows.csv", "go to a .parquet file or to a folder"),
        ("rows.nc", "jaxperf.sweep(...).to_netcdf"),
        ("file", "'file' is a file where a folder is needed"),
        ("missing/rows.parquet", "does not exist"),
        ("missing/folder", "does not exist"),
        ("file/rows.parquet", "is not a folder"),
        ("folder.parquet", "it is a folder"),
        ("a" * 300 + ".parquet", "File name too long"),
    ],
)
def test_places_a_sweep_cannot_write(refuse, own_folder: Path, sweep_file, path: str, said: str) -> None:
    sweep_file()
    (own_folder / "file").write_text("kept")
    (own_folder / "folder.parquet").mkdir()
    assert said in refuse("sweep", "sweep.yaml", "-o", path)
    assert left(own_folder) == ["file", "folder.parquet", "sweep.yaml"]
    assert (own_folder / "file").read_text() == "kept"


def test_a_folder_that_is_not_writable(refuse, own_folder: Path, sweep_file, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_file()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode))
    for command in (*COMMANDS.values(), ("sweep", "sweep.yaml")):
        assert "is not writable" in refuse(*command, "-o", "rows.parquet")
    assert left(own_folder) == ["sweep.yaml"]


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_full_disk_leaves_nothing(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    def half(path: Any, *_: Any, **__: Any) -> None:
        Path(path).write_bytes(b"half")
        no_space()

    monkeypatch.setattr(pq, "write_table", lambda table, path: half(path))
    monkeypatch.setattr(csv, "DictWriter", no_space)
    monkeypatch.setattr(Path, "write_text", half)
    result = cli(*ESTIMATE, "-o", f"rows.{ending}")
    assert result.exit_code == 2
    assert result.stderr == f"jaxperf: Cannot write 'rows.{ending}': No space left on device.\n"
    assert left(own_folder) == []


def test_a_full_disk_leaves_the_earlier_file(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_folder / "rows.csv").write_text("earlier")
    monkeypatch.setattr(os, "replace", no_space)
    assert cli(*ESTIMATE, "-o", "rows.csv").exit_code == 2
    assert left(own_folder) == ["rows.csv"]
    assert (own_folder / "rows.csv").read_text() == "earlier"


def test_a_picture_on_a_full_disk(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", no_space)
    result = cli(*ESTIMATE, "--plot", "roofline.png")
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert left(own_folder) == []


@pytest.mark.parametrize("keep", ["all", pytest.param("top(2, tpot)", marks=pytest.mark.long)])
def test_a_sweep_on_a_full_disk(cli, own_folder: Path, sweep_file, monkeypatch: pytest.MonkeyPatch, keep: str) -> None:
    sweep_file(keep=keep)
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", no_space)
        result = cli("sweep", "sweep.yaml", "-o", "rows.parquet")
    assert result.exit_code == 2 and "No space left on device" in result.stderr
    assert not (own_folder / "rows.parquet").exists()
    assert not [path for path in own_folder.rglob("*.parquet") if path.is_file()]
    assert cli("sweep", "sweep.yaml", "-o", "rows.parquet").exit_code == 0
    assert left(own_folder) == ["rows.parquet", "sweep.yaml"]


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_are_the_same_in_every_format(cli, own_folder: Path, parse_json, command: str) -> None:
    for ending in ("csv", "json", "parquet"):
        assert cli(*COMMANDS[command], "-o", f"rows.{ending}").exit_code == 0
    table = pq.read_table(own_folder / "rows.parquet")
    document = parse_json((own_folder / "rows.json").read_text())
    with (own_folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        texts = list(csv.DictReader(file))
    assert table.to_pylist() == document["rows"]
    assert [{name: str(value) for name, value in row.items()} for row in document["rows"]] == texts
    assert document["rows"]
    for provenance in (document["metadata"]["jaxperf"], table.schema.metadata[b"jaxperf"].decode()):
        assert "calibrated: " in json.dumps(parse_json(provenance))


@pytest.mark.parametrize(
    "command",
    ["kernels", "graphs", "batches", "serve", "edge", "train", "collectives", "collectives --backend astra"],
)
def test_a_column_that_is_to_be_added_is_refused_before_anything_else(refuse, own_folder: Path, command: str) -> None:
    """Not after minutes of computing, whichever of them it is."""
    (own_folder / "t.csv").write_text("nothing,reason\n1,mine\n")
    told = "t.csv already has a column 'reason', which is to be added; rename or remove it."
    assert told in refuse(*command.split(), "t.csv", "-o", "out.csv")
