"""`jaxperf loopnest` as a user types it: a case, tables, files, and mistakes."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Cli = Callable[..., Result]
Refuse = Callable[..., str]

SHAPE = {
    "dimensions": ["M", "K"],
    "data_spaces": [
        {"name": "A", "projection": [[["M"]], [["K"]]]},
        {"name": "B", "projection": [[["K"]]]},
        {"name": "Z", "projection": [[["M"]]], "read_write": True},
    ],
}
CASE: dict[str, Any] = {
    "problem": {"shape": SHAPE, "instance": {"M": 4, "K": 8}},
    "mapping_outer_to_inner": [
        {"level": "DRAM", "keep": ["A", "B", "Z"], "loops": [["M", 4, "t"]]},
        {"level": "buffer", "keep": ["B", "Z"], "loops": [["K", 8, "t"]]},
    ],
    "ert_pJ_per_action": {
        "DRAM": {"read": 100.0, "write": 100.0, "update": 100.0},
        "buffer": {"read": 1.0, "write": 1.0, "update": 1.0},
        "mac": {"compute": 0.5},
    },
    "levels": {
        "mac": {"specs": {"Instances": 1}},
        "buffer": {"specs": {"Size": 16, "Block size": 1}},
        "DRAM": {"specs": {"Size": "-", "Block size": 1, "Read bandwidth": 0.5}},
    },
}
ROWS = [
    {"case": "square", "type": "gemm", "M": 32, "N": 32, "K": 32, "dataflow": "os", "array": 32, "cycles": 93.0},
    {"case": "unknown", "type": "gemm", "M": 32, "N": 32, "K": 32, "dataflow": "xs", "array": 32, "cycles": 93.0},
]


@pytest.fixture(scope="module", autouse=True)
def quick_folders() -> None:
    """Optimized after all: what is fitted to Gemmini runs for longer than it compiles."""


@pytest.fixture
def case(own_folder: Path) -> Path:
    path = own_folder / "case.json"
    path.write_text(json.dumps(CASE), encoding="utf-8")
    return path


def test_a_case_is_answered(cli: Cli, case: Path, own_folder: Path) -> None:
    result = cli("loopnest", case, "-o", "out.csv")
    assert result.exit_code == 0
    # 32 words of A and 8 of B, which stays, at half a word per cycle.
    assert "cycles 80  utilization 40.00%  limited by DRAM" in result.stdout
    with (own_folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["level"], row["tensor"]) for row in rows] == [
        *(("buffer", "B"), ("buffer", "Z")),
        *(("DRAM", "A"), ("DRAM", "B"), ("DRAM", "Z")),
    ]
    assert [float(row["reads"]) for row in rows] == [32.0, 28.0, 32.0, 8.0, 0.0]


def test_energies_that_are_all_zero_have_no_shares(cli: Cli, own_folder: Path) -> None:
    free = {name: dict.fromkeys(found, 0.0) for name, found in CASE["ert_pJ_per_action"].items()}
    result = cli("loopnest", _text(own_folder / "free.json", json.dumps({**CASE, "ert_pJ_per_action": free})))
    assert result.exit_code == 0 and "energy 0 J" in result.stdout


def test_json_holds_the_counts_of_one_instance(cli: Cli, case: Path) -> None:
    result = cli("loopnest", case, "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert (answer["cycles"], answer["utilization"], answer["limiter"]) == (80.0, 0.4, "DRAM")
    buffer = answer["levels"]["buffer"]["tensors"]["Z"]
    assert (buffer["reads"], buffer["fills"], buffer["updates"]) == (28.0, 0.0, 32.0)
    # 32 operations; 32 + 8 + 28 + 32 words of the buffer; 32 + 8 + 4 of DRAM.
    assert answer["energy_j"] == pytest.approx((32 * 0.5 + 100 + 4400) * 1e-12, rel=1e-12)
    assert answer["edp_j_cycle"] == pytest.approx(answer["energy_j"] * 80.0, rel=1e-12)
    assert sum(level["energy_j"] for level in answer["levels"].values()) == pytest.approx(answer["energy_j"])


def test_what_cannot_run_says_why_and_exits_3(cli: Cli, case: Path) -> None:
    small = json.loads(case.read_text())
    small["levels"]["buffer"]["specs"]["Size"] = 2
    case.write_text(json.dumps(small), encoding="utf-8")
    result = cli("loopnest", case, "-o", "counts.csv", "--plot", "nest.png")
    assert result.exit_code == 3
    assert result.stderr == "jaxperf: 'nest.png' is not written: nothing is feasible.\n"
    assert "infeasible: buffer: 9 words are kept where 2 fit" in result.stdout
    assert "nan" not in result.stdout and "limited by" not in result.stdout
    with Path("counts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(row["feasible"] == "false" and "9 words are kept" in row["reason"] for row in rows)


def test_a_table_comes_back_in_its_order(cli: Cli, own_folder: Path) -> None:
    (own_folder / "rows.json").write_text(json.dumps(ROWS), encoding="utf-8")
    result = cli("loopnest", "rows.json", "-o", "out.csv")
    assert result.exit_code == 0
    assert "1 of 2 rows predicted (systolic arrays)" in result.stdout
    with (own_folder / "out.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["case"], first["predicted_cycles"], first["reason"]) == ("square", "93.0", "")
    assert second["predicted_cycles"] == "" and "dataflow 'xs' is not one of" in second["reason"]
    printed = json.loads(cli("loopnest", "rows.json", "--json").stdout)
    assert printed["errors"][0]["equal"] == 1.0
    assert [row["predicted_cycles"] for row in printed["predictions"]] == [93.0, None]


def test_mappings_of_gemmini_get_the_cycles_of_the_rtl(cli: Cli, own_folder: Path) -> None:
    heads = "arch.pe,arch.meshX,arch.mem1_entries,arch.mem2_entries,prob.C,prob.K,prob.N,prob.P,prob.Q,prob.R,prob.S"
    machine = "256,16,1024,262144"
    rows = [f"{machine},128,64,1,128,1,1,1,{each}" for each in ("L3[WIO] K2 - L2[WI] K16X - L1[O] K2 C8 C16X", "L3[")]
    rows[0] += " - L0[W] P128"
    with gzip.open(own_folder / "rows.csv.gz", "wt") as file:
        file.write("\n".join([f"{heads},mapping.mapping", *rows]) + "\n")
    assert cli("loopnest", "rows.csv.gz", "-o", "out.csv").exit_code == 0
    with (own_folder / "out.csv").open() as file:
        first, second = csv.DictReader(file)
    lower, cycles, upper = (float(first[f"predicted_rtl_cycles{end}"]) for end in ("_lower", "", "_upper"))
    assert lower < cycles < upper and cycles > float(first["predicted_cycles"]) == 4096.0
    assert second["predicted_rtl_cycles"] == "" and "'L3['" in second["reason"]


def test_mistakes_are_one_sentence(refuse: Refuse, case: Path, own_folder: Path) -> None:
    assert "No such file" in refuse("loopnest", "nothing.json")
    assert "No such file" in refuse("loopnest", "nothing.parquet")
    assert "No such file" in refuse("loopnest", "nothing.yaml")
    assert "not valid JSON" in refuse("loopnest", _text(own_folder / "bad.json", "{"))
    assert "it is a folder" in refuse("loopnest", _folder(own_folder / "folder.csv"))
    (own_folder / "latin.csv").write_bytes(b"\xff,b\n1,2\n")
    assert "cannot be read as a table" in refuse("loopnest", "latin.csv")
    assert "a case is an object" in refuse("loopnest", _text(own_folder / "number.json", "3"))
    assert "no table of mapped nests" in refuse("loopnest", _text(own_folder / "other.csv", "m,n\n1,2\n"))
    assert "is not one of head, 2024, dosa" in refuse("loopnest", case, "--timeloop", "2023")
    assert "is the input" in refuse("loopnest", case, "-o", case)
    assert "the ending must be one of" in refuse("loopnest", case, "-o", "out.txt")


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_picture_of_a_case(cli: Cli, refuse: Refuse, case: Path, own_folder: Path) -> None:
    assert cli("loopnest", case, "--plot", "nest.png").exit_code == 0
    assert cli("loopnest", case, "--plot", "NEST.PNG").exit_code == 0
    assert (own_folder / "NEST.PNG").read_bytes().startswith(b"\x89PNG")
    assert (own_folder / "nest.png").read_bytes().startswith(b"\x89PNG")
    (own_folder / "rows.json").write_text(json.dumps(ROWS))
    assert "--plot goes with one case, a .json or .yaml; rows.json is a table" in refuse(
        "loopnest", "rows.json", "--plot", "rows.png"
    )
