"""Pictures are written whole; without matplotlib one sentence says what to install, before anything is computed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ESTIMATE = ("estimate", "gpt2", "--device", "h100-sxm", "--prompt", "64", "--output", "8")
RANK = ("rank", "gpt2", "--devices", "h100-sxm,l4", "--prompt", "64", "--output", "8")
SMALL = ("--max-devices", "2", "--max-batch", "4")


@pytest.mark.parametrize("command", [ESTIMATE, (*RANK, *SMALL), ("sweep", "sweep.yaml", "-o", "rows.parquet")])
def test_a_png_is_written(cli, refuse, own_folder: Path, sweep_file, command: tuple[str, ...]) -> None:
    sweep_file()
    assert "the folder '" in refuse(*command, "--plot", "new/picture.png")
    assert {path.name for path in own_folder.iterdir()} == {"sweep.yaml"}  # refused before anything is computed
    (own_folder / "new").mkdir()
    assert cli(*command, "--plot", "new/picture.png").exit_code == 0
    content = (own_folder / "new" / "picture.png").read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 5000
    assert [path.name for path in (own_folder / "new").iterdir()] == ["picture.png"]


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_other_kinds(cli, own_folder: Path, ending: str, start: bytes) -> None:
    assert cli(*ESTIMATE, "--plot", f"roofline.{ending}").exit_code == 0
    assert (own_folder / f"roofline.{ending}").read_bytes().startswith(start)


@pytest.mark.parametrize("command", [ESTIMATE, (*RANK, *SMALL), ("sweep", "sweep.yaml", "-o", "rows.parquet")])
def test_without_matplotlib(
    refuse, own_folder: Path, sweep_file, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    sweep_file()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = refuse(*command, "--plot", "picture.png")
    assert found == "jaxperf: Pictures need matplotlib: pip install 'jaxperf[plot]'.\n"
    assert [path.name for path in own_folder.iterdir()] == ["sweep.yaml"]


def test_a_front_needs_two_metrics(refuse, own_folder: Path, sweep_file) -> None:
    sweep_file(metrics=["tpot", "memory"])
    assert "A Pareto picture needs" in refuse("sweep", "sweep.yaml", "-o", "rows.parquet", "--plot", "front.png")
    assert not (own_folder / "rows.parquet").exists()
