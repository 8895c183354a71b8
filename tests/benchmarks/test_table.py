"""Rows, their targets, and the printed table."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import hwspecs
from benchmarks.__main__ import BENCHMARKS, ROOT
from benchmarks.table import Row, from_dict, number, table
from benchmarks.timing import medians
from jaxperf.io.sweep_file import read_sweep_file


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (9.0, ">= 8", True),
        (8.0, ">= 8", True),
        (7.9, ">= 8", False),
        (0.2, "<= 0.3", True),
        (0.4, "<= 0.3", False),
        (1, "== 1", True),
        (2, "== 1", False),
        (5.0, "", None),
        (math.nan, ">= 8", False),
        (math.nan, "<= 8", False),
        (np.float64(9.0), ">= 8", True),
    ],
)
def test_a_target_is_met_or_not(value: float, target: str, met: bool | None) -> None:
    assert Row("name", "what", value, "x", target).met is met


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.1234, "8.12"), (1474560, "1,474,560"), (0.0632, "0.0632"), (1, "1"), (0, "0"), (math.nan, "-")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_the_table_is_plain_and_aligned() -> None:
    rows = [
        Row("vs_numpy", "whole", 9.5, "x", ">= 8"),
        Row("cold_start", "help", 0.412, "s", "<= 0.3"),
        Row("compile_time", "decode", 12.0, "s", note="informational"),
    ]
    assert table(rows).splitlines() == [
        "benchmark       value  target          what",
        "------------  -------  ------  ------  ----",
        "vs_numpy        9.5 x    >= 8  met     whole",
        "cold_start    0.412 s  <= 0.3  MISSED  help",
        "compile_time     12 s                  decode (informational)",
    ]


@pytest.mark.parametrize("value", [3.25, math.nan])
def test_rows_survive_json(value: float) -> None:
    row = Row("name", "what", value, "x", ">= 1", "note")
    again = from_dict(json.loads(json.dumps(row.to_dict(), allow_nan=False)))
    assert repr(again) == repr(row)


def test_contenders_take_turns() -> None:
    turns: list[str] = []
    seconds = medians({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, rounds=3)
    assert turns == ["a", "a", "b", "b"] * 3  # once to warm up, once timed
    assert set(seconds) == {"a", "b"} and all(each >= 0 for each in seconds.values())


def test_every_benchmark_is_a_file_with_run() -> None:
    for name in BENCHMARKS:
        assert "def run() -> list[Row]:" in (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")


def test_an_unknown_benchmark_is_refused_with_the_names() -> None:
    command = [sys.executable, "-m", "benchmarks", "vs_nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown benchmark 'vs_nothing'" in done.stderr and "vs_numpy" in done.stderr


def test_the_million_sweep_has_a_million_points() -> None:
    axes = read_sweep_file(ROOT / "benchmarks" / "million.yaml").axes
    points = math.prod(len(values) for name, values in axes.items() if name != "device")
    assert points * 40 >= 1_000_000 and len(hwspecs.names()) >= 40
