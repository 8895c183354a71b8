"""Outputs of Timeloop and SCALE-Sim beside the project: every case given, to the last access. Skipped without them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jaxperf.io.timeloop.case import evaluate
from jaxperf.io.timeloop.json_case import load_json, read_case
from jaxperf.io.timeloop.tables import predict_rows, read_rows, summary
from tests.loopnest.nests import stripped

READ = ("problem", "ert_pJ_per_action")
ROUNDED = 0.005  # energies are printed with two decimals
COUNTS = {
    "reads": "Scalar reads (per-instance)",
    "fills": "Scalar fills (per-instance)",
    "updates": "Scalar updates (per-instance)",
    "reductions": "Temporal reductions (per-instance)",
    "tile": "Utilized capacity",
}
SOME_ROWS = 2_000


@pytest.fixture(scope="module")
def references(data_directory: Path) -> Path:
    folder = data_directory / "accelerator"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    return folder


def dense_cases(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The cases without densities; of the others the files do not say how they are stored and skipped."""
    files = sorted(folder.glob("tl_*.json"))
    cases = [(file.name, load_json(file)) for file in files]
    return [(name, case) for name, case in cases if not case["problem"]["instance"].get("densities")]


def test_every_dense_case(references: Path) -> None:
    cases = dense_cases(references)
    assert len(cases) >= 13
    for name, case in cases:
        answer = evaluate(read_case(stripped(case, READ), name))
        assert answer["feasible"], name
        assert abs(answer["cycles"] - case["summary"]["Cycles"]) <= 1.0, name
        assert abs(100.0 * answer["utilization"] - case["summary"]["Utilization"]) <= ROUNDED, name
        for level, found in answer["levels"].items():
            printed = case["fJ"]["fJ/Compute"][level]
            share = found["energy_j"] * 1e15 / answer["macs"]
            assert abs(share - printed) <= max(ROUNDED, 1e-4 * printed), (name, level)
            for tensor, counts in found["tensors"].items():
                stats = case["levels"][level]["tensors"][tensor]
                assert {key: counts[key] for key in COUNTS} == {key: stats[own] for key, own in COUNTS.items()}, name


def test_head_keeps_a_window_over_reuse(references: Path) -> None:
    """Of the exercises three have a window that slides over reused tiles; the newest Timeloop fetches less of them."""
    fewer = []
    for name, case in dense_cases(references):
        head, older = (evaluate(read_case(case, name), version) for version in ("head", "2024"))
        if head["energy_j"] < older["energy_j"]:
            fewer.append(name)
    assert fewer == ["tl_eyeriss_like.json", "tl_ispass_TLA_intmac.json", "tl_simple_output_stationary.json"]


def test_random_mappings(references: Path) -> None:
    rows = load_json(references / "timeloop_HEAD_eyeriss_random_golden.json")
    given = [{key: row[key] for key in row if key in ("dims", "stride", "factors") or "perm" in key} for row in rows]
    for row, own in zip(rows, predict_rows(given, "golden"), strict=True):
        assert own["predicted_cycles"] == row["cycles"]
        assert own["predicted_energy_j"] * 1e6 == pytest.approx(row["energy_uJ"], abs=ROUNDED, rel=1e-6)
        for level, tensors in row["counts"].items():
            found = own["predicted_levels"][level]
            for tensor, counts in tensors.items():
                each = found["tensors"][tensor]
                assert [each["reads"], each["fills"], each["updates"], found["instances"]] == counts


def test_mappings_of_gemmini(references: Path) -> None:
    every = read_rows(references / "timeloop_gemmini_mappings.parquet")
    rows = every[:: len(every) // SOME_ROWS]
    found = summary(rows, predict_rows([{k: v for k, v in row.items() if "target" not in k} for row in rows], "g"), "g")
    cycles, energy, _ = found["errors"]
    assert found["predicted"] == len(rows)
    assert cycles["equal"] >= 0.99 and cycles["within_1_percent"] >= 0.999
    assert energy["p90"] <= 0.005


def test_systolic_arrays(references: Path) -> None:
    rows = load_json(references / "scalesim_v2_reference.json")
    for row, own in zip(rows, predict_rows(rows, "scale-sim"), strict=True):
        assert own["predicted_cycles"] == row["cycles"]
        assert own["predicted_utilization"] * 100.0 == pytest.approx(row["overall_util"], rel=1e-12)
        assert own["predicted_mapping_efficiency"] * 100.0 == pytest.approx(row["mapping_eff"], rel=1e-12)


def test_the_mapper_s_mapping_of_resnet50(references: Path) -> None:
    """What timeloop-mapper found for ResNet-50 conv1 on the Eyeriss-like machine, its map as a case."""
    text = (references / "rn50conv1_eyeriss_mapper20k.map.txt").read_text(encoding="utf-8")
    stats = (references / "rn50conv1_eyeriss_mapper20k.stats.txt").read_text(encoding="utf-8")
    blocks: list[dict[str, Any]] = []
    for line in text.splitlines():
        if header := re.match(r"(\w+) \[ (.*)\]", line):
            blocks.append({"level": header[1], "keep": re.findall(r"(\w+):", header[2]), "loops": []})
        elif loop := re.search(r"for (\w) in \[0:(\d+)\)(?: \(Spatial-([XY])\))?", line):
            blocks[-1]["loops"].append([loop[1], int(loop[2]), (loop[3] or "t").lower()])
    case = load_json(references / "tl_eyeriss_like.json")
    case["mapping_outer_to_inner"] = blocks
    case["problem"]["instance"] |= {"M": 64, "R": 7, "S": 7}
    answer = evaluate(read_case(case, "mapper"), "head")
    assert answer["macs"] == 118_013_952 and answer["cycles"] == 702_464.0 and answer["utilization"] == 1.0
    printed = iter(re.findall(r"Scalar (reads|fills|updates) \(per-instance\) +: (\d+)", stats))
    for level in answer["levels"].values():
        for counts in level["tensors"].values():
            for _ in range(3):
                kind, value = next(printed)
                assert counts[kind] == float(value)
    assert next(printed, None) is None
    assert answer["energy_j"] == pytest.approx(348.48e-6, abs=0.005e-6)
