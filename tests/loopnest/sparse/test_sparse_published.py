"""A processing element of Eyeriss v2, as the authors of Sparseloop publish it: drawn words, seven ranks, skipping.

Artifact of Wu et al., MICRO 2022 (Accelergy-Project/micro22-sparseloop-artifact, evaluation_setups/
fig12_eyerissv2_pe_setup): layer L09 of MobileNet 0.5, a pointwise convolution, its architecture, energies, mapping,
directives (configurations/SI-SW.yaml) and output (ref_outputs/uniform_only/L09). No part of the model was made with it.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from jaxperf.io.timeloop.case import evaluate
from jaxperf.io.timeloop.sparse_case import read_sparse_case

PICO = 1e-12


def rank(kind: str, flattened: list[str] | None = None, **bits: int) -> dict[str, Any]:
    return {"format": kind, **({"flattened_rankIDs": [flattened]} if flattened else {}), **bits}


def axes(*names: str) -> list[Any]:
    return [[[name]] for name in names]


def skipping(target: str, *leaders: str) -> list[dict[str, Any]]:
    return [{"type": "skipping", "options": [{"target": target, "condition_on": list(leaders)}]}]


def spaces(**ranks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"data_spaces": [{"name": name, "ranks": each} for name, each in ranks.items()]}


def specs(size: Any, bits: int, width: int, depth: Any = "-", block: int = 1) -> dict[str, Any]:
    metadata = {"Metadata word bits": 0, "Metadata storage width": width, "Metadata storage depth": depth}
    return {"specs": {"Size": size, "Word bits": bits, "Block size": block, **metadata}}


def energies(read: float, write: float, metadata: float, gated: float) -> dict[str, float]:
    found = {"read": read, "write": write, "metadata_read": metadata, "metadata_write": metadata}
    return {**found, "gated_metadata_read": gated}


INPUTS = [rank("UOP", ["R"], payload_word_bits=4), rank("RLE", ["C"], metadata_word_bits=4)]
WEIGHTS = [rank("UOP", ["C", "R"], payload_word_bits=7), rank("RLE", ["M"], metadata_word_bits=4)]
FREE = rank("UOP", payload_word_bits=0)
OUTER = [FREE, FREE, FREE, rank("UOP", ["S", "F"], payload_word_bits=0), rank("UOP", ["E", "N"], payload_word_bits=0)]
SHAPE = {
    "name": "grouped-CONV",
    "dimensions": ["R", "S", "E", "F", "C", "M", "N", "G"],
    "coefficients": [{"name": name, "default": 1} for name in ("Wstride", "Hstride", "Wdilation", "Hdilation")],
    "data_spaces": [
        {"name": "Weights", "projection": axes("C", "M", "G", "R", "S")},
        {
            "name": "Inputs",
            "projection": [
                *axes("N", "C", "G"),
                *([["R", "Wdilation"], ["E", "Wstride"]], [["S", "Hdilation"], ["F", "Hstride"]]),
            ],
        },
        {"name": "Outputs", "projection": axes("N", "G", "M", "F", "E"), "read_write": True},
    ],
}
DENSITIES = {
    "Inputs": {"distribution": "hypergeometric", "density": 0.86},
    "Weights": {"distribution": "hypergeometric", "density": 0.82},
}
CASE: dict[str, Any] = {
    "problem": {
        "shape": SHAPE,
        "instance": {**dict.fromkeys("RSNG", 1), "M": 128, "E": 16, "F": 16, "C": 64, "densities": DENSITIES},
    },
    "mapping_outer_to_inner": [
        {
            "level": "BackingStorage",
            "keep": ["Weights", "Inputs", "Outputs"],
            "loops": [["M", 8, "t"], ["C", 8, "t"], ["F", 16, "t"], ["E", 16, "t"]],
        },
        {"level": "iact_spad", "keep": ["Inputs"], "loops": []},
        {"level": "weight_spad", "keep": ["Weights"], "loops": []},
        {"level": "psum_spad", "keep": ["Outputs"], "loops": [["C", 8, "t"], ["M", 16, "t"]]},
        {"level": "reg", "keep": ["Inputs"], "loops": []},
    ],
    "ert_pJ_per_action": {
        "BackingStorage": {"read": 0.0, "write": 0.0},
        "iact_spad": energies(0.13003, 0.13003, 0.14934, 0.00195),
        "weight_spad": energies(0.47678, 0.51919, 0.88442, 0.00635),
        "psum_spad": {"read": 0.32508, "write": 0.32508},
        "reg": energies(0.072, 0.072, 0.036, 0.00148),
        "MAC": {"compute": 0.5608, "mac_gated": 0.01798, "mac_skipped": 0.01798},
    },
    "levels": {
        "MAC": {"specs": {}},
        "reg": specs(1, 8, 4, 1),
        "psum_spad": specs(32, 20, 0),
        "weight_spad": specs(192, 8, 8, 128),
        "iact_spad": specs(16, 8, 4, 25),
        "BackingStorage": specs("-", 8, 8, block=8),
    },
    "sparse_optimizations": {
        "targets": [
            {
                "name": "BackingStorage",
                "representation_format": spaces(Inputs=OUTER + INPUTS, Weights=[FREE] * 4 + WEIGHTS),
            },
            {"name": "iact_spad", "representation_format": spaces(Inputs=INPUTS)},
            {
                "name": "weight_spad",
                "representation_format": spaces(Weights=WEIGHTS),
                "action_optimization": skipping("Weights", "Inputs"),
            },
            {"name": "psum_spad", "action_optimization": skipping("Outputs", "Inputs", "Weights")},
            {"name": "reg", "representation_format": spaces(Inputs=[rank("RLE", metadata_word_bits=4)])},
            {"name": "MAC", "compute_optimization": {"skip_on_not_aligned_operands": True}},
        ]
    },
}


@functools.cache
def layer() -> dict[str, Any]:
    return evaluate(read_sparse_case(CASE, "L09"))


def test_a_processing_element_of_eyeriss_v2() -> None:
    answer = layer()
    levels = {name: level["tensors"] for name, level in answer["levels"].items()}
    assert answer["feasible"] and answer["notes"] == []
    weights, outputs = levels["weight_spad"]["Weights"], levels["psum_spad"]["Outputs"]
    assert (weights["actual_reads"], weights["skipped_reads"], weights["actual_fills"]) == (1479115, 240693, 6718)
    assert weights["metadata_reads"] == 126819 + 1479115 and weights["metadata_fills"] == 576 + 6718
    assert (outputs["actual_reads"], outputs["skipped_reads"]) == (1456003, 608381)
    assert (outputs["actual_updates"], outputs["skipped_updates"]) == (1479115, 618037)
    store = levels["BackingStorage"]
    assert (store["Weights"]["actual_reads"], store["Inputs"]["actual_reads"]) == (6718, 112728)
    assert store["Weights"]["metadata_reads"] == 9 + 72 + 576 + 6718
    assert store["Inputs"]["metadata_reads"] == 72 + 1088 + 17408 + 112728
    assert (store["Weights"]["tile"], store["Inputs"]["tile"]) == (6718, 14091)


def test_its_operations_and_energies_to_the_rounding_of_sparseloop() -> None:
    """Sparseloop rounds probabilities to six places before it multiplies them with 2,097,152 operations."""
    answer = layer()
    rounding = 2_097_152 * 1e-6
    assert answer["operations"]["actual"] == pytest.approx(1479114, abs=rounding)
    assert answer["operations"]["skipped"] == pytest.approx(324534, abs=rounding)
    assert answer["cycles"] == pytest.approx(1479114, abs=rounding)
    published = {"MAC": 835322.25, "reg": 206968.61, "iact_spad": 62986.19}
    for level, energy in published.items():
        assert answer["levels"][level]["energy_j"] == pytest.approx(energy * PICO, rel=1e-5), level
