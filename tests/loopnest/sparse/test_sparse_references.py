"""Outputs of Sparseloop beside the project: every case given, to the last access. Skipped without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jaxperf.io.timeloop.case import evaluate
from jaxperf.io.timeloop.json_case import load_json
from jaxperf.io.timeloop.sparse_case import read_sparse_case
from tests.loopnest.nests import stripped

READ = ("name", "problem", "ert_pJ_per_action")
ROUNDED = 0.005  # energies are printed with two decimals
ACTIONS = ("reads", "fills", "updates")
FATES = {"actual": "Actual", "gated": "Gated", "skipped": "Skipped"}


@pytest.fixture(scope="module")
def references(data_directory: Path) -> dict[str, dict[str, Any]]:
    """The cases with densities, by name of file."""
    files = sorted((data_directory / "accelerator").glob("tl_*.json"))
    cases = {file.name: load_json(file) for file in files}
    found = {name: case for name, case in cases.items() if case["problem"]["instance"].get("densities")}
    if not found:
        pytest.skip("no outputs of Sparseloop are there")
    return found


@pytest.mark.long
def test_every_case_with_densities(references: dict[str, dict[str, Any]]) -> None:
    assert len(references) >= 9
    for file, case in references.items():
        answer = evaluate(read_sparse_case(stripped(case, READ), file))
        summary = case["summary"]
        assert answer["feasible"], file
        assert answer["cycles"] == summary["Cycles"], file
        assert abs(100.0 * answer["utilization"] - summary["Utilization"]) <= ROUNDED, file
        made = answer.get("operations", {"actual": answer["macs"]})["actual"]
        assert made == summary.get("Actual Computes", summary.get("Computes")), file
        for level, found in answer["levels"].items():
            printed = case["fJ"]["fJ/Compute"][level]
            assert abs(found["energy_j"] * 1e15 / made - printed) <= max(ROUNDED, 1e-4 * printed), (file, level)
            for tensor, counts in found["tensors"].items():
                _check_counts(counts, case["levels"][level]["tensors"][tensor], (file, level, tensor))


def _check_counts(counts: dict[str, float], stats: dict[str, Any], where: tuple[str, ...]) -> None:
    if "actual_reads" not in counts:  # priced as dense
        assert [counts[name] for name in ACTIONS] == [stats[f"Scalar {name} (per-instance)"] for name in ACTIONS], where
        return
    for name in ACTIONS:
        assert counts[name] == stats[f"Algorithmic scalar {name} (per-instance)"], where
        for fate, spelled in FATES.items():
            assert counts[f"{fate}_{name}"] == stats[f"{spelled} scalar {name} (per-instance)"], (*where, fate, name)
    assert counts["actual_reductions"] == stats["Temporal reductions (per-instance)"], where
    # The most words of a tile come out one too many there where density times size is whole but for its last bits.
    assert 0.0 <= stats["Max utilized data storage capacity"] - counts["tile"] <= 1.0, where


def test_what_is_not_in_a_case_is_said(references: dict[str, dict[str, Any]]) -> None:
    gating = references["tl_sparseloop_04_2_1-eyeriss-like-gating.json"]
    notes = read_sparse_case(stripped(gating, READ), "case.json").notes
    assert any("public exercise 04.2.1-eyeriss-like-gating; they are not in the file" in note for note in notes)
    unnamed = read_sparse_case({**stripped(gating, READ), "name": "mine"}, "case.json")
    assert unnamed.sparsity is None and any("computed as dense" in note for note in unnamed.notes)
