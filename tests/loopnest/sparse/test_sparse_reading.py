"""Densities, formats and directives as files state them: beside a case, in it, in an architecture; and mistakes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hwspecs.errors import InputError
from jaxperf.cli.main import app
from jaxperf.io.timeloop.case import evaluate
from jaxperf.io.timeloop.json_case import load_case
from jaxperf.io.timeloop.sparse_case import load_sparse_case, read_sparse_case
from jaxperf.io.timeloop.sparse_designs import design_of
from jaxperf.io.timeloop.write import mapping_yaml
from jaxperf.loopnest.sparse.formats import Format, Rank
from jaxperf.loopnest.sparse.optimization import GATING, SKIPPING, Directive, Option

SHAPE = {
    "name": "dot",
    "dimensions": ["K", "M"],
    "coefficients": [],
    "data_spaces": [
        {"name": "A", "projection": [[["K"]]]},
        {"name": "B", "projection": [[["K"]]]},
        {"name": "Z", "projection": [[["M"]]], "read_write": True},
    ],
}
TABLE = {"read": 2.0, "write": 3.0, "metadata_read": 0.25, "gated_read": 0.5}
CASE: dict[str, Any] = {
    "problem": {"shape": SHAPE, "instance": {"K": 16, "M": 1, "densities": {"A": {"density": "0.25"}}}},
    "mapping_outer_to_inner": [{"level": "Buffer", "keep": ["A", "B", "Z"], "loops": [["K", 16, "t"]]}],
    "ert_pJ_per_action": {"Buffer": TABLE, "mac": {"compute": 1.0}},
    "levels": {"mac": {"specs": {}}, "Buffer": {"specs": {"Block size": 1, "Word bits": 8, "Read bandwidth": 3.0}}},
}


def acting(kind: str, target: str, *leaders: str) -> dict[str, Any]:
    return {"type": kind, "options": [{"target": target, "condition_on": list(leaders)}]}


GATES = {"targets": [{"name": "Buffer", "action_optimization": [acting(GATING, "B", "A"), acting(GATING, "Z", "A")]}]}
STORED = {"data_spaces": [{"name": "A", "ranks": [{"format": "cp"}]}]}
SKIPS = {
    "targets": [
        {
            "name": "Buffer",
            "representation_format": STORED,
            "action_optimization": [acting(SKIPPING, "B", "A"), acting(SKIPPING, "Z", "A")],
        },
        {"name": "mac", "compute_optimization": {"gate_on_zero_operand": True}},
    ]
}


def write(path: Path, data: Any) -> Path:
    path.write_text(yaml.safe_dump(data) if path.suffix == ".yaml" else json.dumps(data), encoding="utf-8")
    return path


def test_gating_of_a_dot_product() -> None:
    """A quarter of A: B is read 4 times at 2 pJ and gated 12 times at 1/2; 47 reads pass at 3 a cycle."""
    answer = evaluate(read_sparse_case({**CASE, "sparse_optimizations": GATES}, "case.json"))
    b, z = (answer["levels"]["Buffer"]["tensors"][name] for name in "BZ")
    assert (b["actual_reads"], b["gated_reads"], b["reads"]) == (4.0, 12.0, 16.0)
    assert b["energy_j"] == pytest.approx((4 * 2.0 + 12 * 0.5) * 1e-12)
    assert (z["actual_updates"], z["gated_updates"], z["actual_reductions"]) == (4.0, 12.0, 4.0)
    assert answer["operations"] == {"actual": 4.0, "gated": 0.0, "skipped": 0.0}
    assert answer["cycles"] == 16.0 and answer["macs"] == 16.0


def test_directives_beside_a_case_and_in_it_are_the_same(tmp_path: Path) -> None:
    case = write(tmp_path / "case.json", CASE)
    hyphens = json.loads(json.dumps(SKIPS).replace("_optimization", "-optimization").replace("_format", "-format"))
    inside = evaluate(read_sparse_case({**CASE, "sparse_optimizations": SKIPS}, "case.json"))
    for name, data in (("a.yaml", {"sparse_optimizations": SKIPS}), ("b.yaml", hyphens), ("c.json", SKIPS)):
        found = load_sparse_case(case, write(tmp_path / name, data))
        assert found.notes[0] == f"directives of {tmp_path / name}"
        assert evaluate(found)["levels"] == inside["levels"]
    assert "no width of the metadata's storage is given" in inside["notes"][-1]
    assert inside["cycles"] == 4.0  # 4 + 4 + 3 words are read at 3 a cycle, no slower than the four operations


NODES = """
architecture:
  version: 0.4
  nodes:
  - !Component
    name: Buffer
    class: SRAM
    attributes: {depth: 64, width: 8, datawidth: 8, metadata_storage_width: 4, metadata_datawidth: 4, read_bandwidth: 3}
    sparse_optimizations:
      representation_format: {data_spaces: [{name: A, ranks: [{format: CP}]}]}
      action_optimization:
      - {type: skipping, options: [{target: B, condition_on: [A]}]}
      - {type: skipping, options: [{target: Z, condition_on: [A]}]}
  - !Component
    name: mac
    class: intmac
    sparse_optimizations:
      compute_optimization: [{gate_on_zero_operand: true}]
"""


@pytest.fixture
def in_yaml(tmp_path: Path) -> Path:
    """The case of `CASE` and `NODES`."""
    tables = [
        {"name": name, "actions": [{"name": action, "energy": energy} for action, energy in table.items()]}
        for name, table in CASE["ert_pJ_per_action"].items()
    ]
    path = tmp_path / "case.yaml"
    parts = yaml.safe_dump({"problem": CASE["problem"], "ERT": {"tables": tables}})
    path.write_text(NODES + parts + mapping_yaml(read_sparse_case(CASE, "case.json")), encoding="utf-8")
    return path


def test_nodes_of_an_architecture_hold_their_own(in_yaml: Path) -> None:
    dense = read_sparse_case({**CASE, "sparse_optimizations": SKIPS}, "case.json")
    case = load_sparse_case(in_yaml)
    assert case.sparsity is not None and dense.sparsity is not None
    assert case.sparsity.formats == dense.sparsity.formats == ((Format((Rank("CP"),)), None, None),)
    assert case.sparsity.directives == (
        Directive(SKIPPING, 0, (Option(1, (0,)),)),
        Directive(SKIPPING, 0, (Option(2, (0,)),)),
    )
    assert case.sparsity.gates_zeros and not case.sparsity.skips_unaligned
    assert (float(case.sparsity.levels[0].word_bits), float(case.sparsity.levels[0].metadata_width)) == (8.0, 4.0)
    answer = evaluate(case)
    # Four coordinates of four bits: as many accesses of the metadata's storage, and two words of bandwidth.
    assert answer["levels"]["Buffer"]["tensors"]["A"]["energy_j"] == pytest.approx((4 * 2.0 + 4 * 0.25) * 1e-12)
    assert load_case(in_yaml).sparsity is None
    assert "the search is dense" in load_case(in_yaml).notes[0]


def test_attributes_beside_a_case_fill_what_it_leaves_open(in_yaml: Path, tmp_path: Path) -> None:
    beside = {"targets": [], "attributes": {"Buffer": {"datawidth": 16, "metadata_storage_depth": 5}}}
    case = load_sparse_case(in_yaml, write(tmp_path / "sparse.yaml", beside))
    assert case.sparsity is not None
    level = case.sparsity.levels[0]
    assert (float(level.word_bits), float(level.metadata_size)) == (8.0, 5 * 4.0)  # the node states its own width
    assert float(case.architecture.levels[0].size) == 64.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds null; directives are an object with sparse_optimizations"),
        ("[1]", "directives are an object with sparse_optimizations"),
        ("targets: []\nattributes: {Bufer: {datawidth: 8}}", "Bufer is no level; there are Buffer, mac. Did you mean"),
        ("targets: []\nattributes: {3: {}}", "3 is no level"),
        ("targets: []\natributes: {Buffer: {}}", "'atributes' is not a field. Did you mean attributes?"),
        ("targets: []\nattributes: {Buffer: 8}", "Buffer is 8; it must be an object"),
    ],
)
def test_mistakes_in_a_file_of_directives(in_yaml: Path, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "sparse.yaml"
    path.write_text(text, encoding="utf-8")
    for case in (in_yaml, write(tmp_path / "case.json", {**CASE, "levels": dict(reversed(CASE["levels"].items()))})):
        with pytest.raises(InputError) as caught:
            load_sparse_case(case, path)
        assert said in str(caught.value) and "sparse.yaml" in str(caught.value)


def test_ranks_are_read_from_the_outermost() -> None:
    given = [{"format": "UOP", "flattened_rankIDs": [["K", "M"]]}, {"format": "B", "metadata_word_bits": 2}]
    space = {"data_spaces": [{"name": "A", "ranks": given}, {"name": "B", "ranks": [{"format": "CSR"}]}]}
    case = read_sparse_case(with_target({"representation_format": space}), "case.json")
    assert case.sparsity is not None
    a, b, _ = case.sparsity.formats[0]
    assert a is not None and b is not None
    assert a.ranks == (Rank("B", None, 2.0, None), Rank("UOP", frozenset({0, 1})))
    assert [rank.kind for rank in b.ranks] == ["CP", "UOP"]


def test_designs_are_found_by_the_names_of_exercises() -> None:
    for name in ("sparseloop/04.2.1-eyeriss-like-gating", "tl_sparseloop_04_2_1-eyeriss-like-gating.json"):
        design = design_of(name)
        assert design is not None and design.name == "04.2.1-eyeriss-like-gating"
    assert design_of("sparse_tensor_core_like") is None and design_of("") is None


def test_a_design_fits_only_a_case_with_its_levels() -> None:
    other = {**CASE, "name": "sparseloop/02.2.1-spMspM"}
    assert read_sparse_case(other, "case.json").sparsity is None
    own = read_sparse_case({**CASE, "name": "sparseloop/01.2.2-SUDU-dot-product"}, "case.json")
    assert own.sparsity is not None and own.notes == (
        "directives and widths of the public exercise 01.2.2-SUDU-dot-product; they are not in the file",
    )
    assert float(own.architecture.levels[0].size) == 64.0  # of the exercise; the case does not state it


# --- mistakes ---------------------------------------------------------------------------------------------------------


def with_target(target: Any, name: Any = "Buffer") -> dict[str, Any]:
    return {**CASE, "sparse_optimizations": {"targets": [{"name": name, **target}]}}


def with_density(density: Any, name: str = "A") -> dict[str, Any]:
    case = copy.deepcopy({**CASE, "sparse_optimizations": GATES})
    case["problem"]["instance"]["densities"] = {name: density}
    return case


def with_option(kind: str = SKIPPING, **option: Any) -> dict[str, Any]:
    return with_target({"action_optimization": [{"type": kind, "options": [option]}]})


def with_ranks(*ranks: Any, **more: Any) -> dict[str, Any]:
    return with_target({"representation_format": {"data_spaces": [{"name": "A", "ranks": list(ranks), **more}]}})


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (with_target({}, "Bufer"), "Bufer is no storage level; there are Buffer. Did you mean Buffer?"),
        ({**CASE, "sparse_optimizations": {"target": []}}, "targets is missing. Did you mean target?"),
        (with_target({"action_optimisation": []}), "Did you mean action_optimization"),
        (with_target({"action_optimization": [{"type": GATING, "options": []}]}), "options is empty"),
        (with_option(target="B", condition_on=["C"]), "condition_on: C is no data space"),
        (with_option(target="B"), "target B has no condition_on"),
        (with_option(target="B", condition_on="B"), "B cannot be conditioned on itself"),
        (with_option("spatial_skipping", target="B", condition_on="A"), "it must be gating or skipping"),
        (
            with_option(target="B", condition_on="A", conditon="Z"),
            "conditon is not one of target, condition_on. Did you",
        ),
        (
            with_target({"action_optimization": [{"type": GATING, "optoins": []}]}),
            "action_optimization: optoins is not one of type, options. Did you mean options?",
        ),
        (
            with_target({"representation_format": {"data_space": []}}),
            "Buffer: representation_format: data_space is not one of data_spaces. Did you mean data_spaces?",
        ),
        (with_ranks({"format": "CP"}, rank_order="x"), "Buffer: A: rank_order is not one of name, ranks, rank_app"),
        (with_ranks({"format": "CP", "flattened_rankID": []}), "Did you mean flattened_rankIDs?"),
        ({**CASE, "sparse_optimization": SKIPS}, "is not a field. Did you mean sparse_optimizations?"),
        (with_ranks({"format": "COO"}), "format COO is not one of"),
        (with_ranks(), "ranks is empty"),
        (with_ranks({"format": "CP", "flattened_rankIDs": [["K"], ["M"]]}), "has 2 lists; one is supported"),
        (with_ranks({"format": "CP", "flattened_rankIDs": [["R"]]}), "R is no dimension"),
        (with_ranks({"format": "CP", "flattened_rankIDs": [4]}), "flattened_rankIDs is 4; it must be a list"),
        (with_ranks({"format": "CP"}, rank_application_order="inner_to_outer"), "only outer_to_inner is supported"),
        (with_ranks({"format": "CP", "metadata_word_bits": "four"}), "it must be a number from 0"),
        (with_ranks({"format": "CP", "payload_word_bits": 1e308}), "it must be a number from 0 to 1e+30"),
        (with_target({"compute_optimization": {"gate_on_zero": True}}, "mac"), "Did you mean gate_on_zero_operand?"),
        (with_target({"compute_optimization": [3]}, "mac"), "it must be an object"),
        (with_density({"density": 1.5}), "density of A is 1.5; it must be a number from 0 to 1"),
        (with_density({"densty": 0.5}), "density is missing. Did you mean densty?"),
        (with_density({"density": 0.5, "bandwidth": 3}), "'bandwidth' is not a field. Did you mean band_width?"),
        (with_density({"density": "half"}), 'density of A is "half"'),
        (with_density({"density": 0.5, "distribution": "unifrom"}), "Did you mean uniform?"),
        (with_density(0.5, "C"), "densities: C is no data space"),
        (with_density({"distribution": "banded", "band_width": 1}), "banded needs a square matrix"),
        (with_density({"distribution": "banded", "density": 0.5}), "density of A: band_width is missing"),
    ],
)
def test_mistakes_name_the_place_and_what_is_allowed(case: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_sparse_case(case, "case.json")
    assert said in str(caught.value) and "case.json" in str(caught.value)


def test_a_format_of_too_few_ranks_is_named() -> None:
    """No rank may hold the loop K of A."""
    only = {"flattened_rankIDs": [["M"]]}
    answer = evaluate(read_sparse_case(with_ranks({"format": "UOP", **only}, {"format": "CP", **only}), "case.json"))
    assert not answer["feasible"] and answer["reasons"][1:] == ["Buffer: A has the ranks UOP CP"]


JUNK = [None, -1, 1.5, "x", [], {}, [1], {"a": 1}, True, 10**400]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [own for key, each in items for own in ((*path, key), *places(each, (*path, key)))]


@pytest.mark.parametrize("path", places(SKIPS), ids=lambda path: "/".join(map(str, path)))
def test_junk_in_directives_is_refused_or_harmless(path: tuple[Any, ...]) -> None:
    for junk in JUNK:
        case = copy.deepcopy({**CASE, "sparse_optimizations": SKIPS})
        at: Any = case["sparse_optimizations"]
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = junk
        try:
            read_sparse_case(case, "case.json")
        except InputError as error:
            assert "case.json" in str(error)


def test_the_command_takes_directives_and_says_what_became_of_the_words(tmp_path: Path) -> None:
    case, directives = write(tmp_path / "case.json", CASE), write(tmp_path / "sparse.yaml", GATES)
    result = CliRunner().invoke(app, ["loopnest", str(case), "--sparse", str(directives)])
    assert result.exit_code == 0
    assert "operations 16: actual 4  gated 0  skipped 0  never met 12" in result.stdout
    assert "gated reads" in result.stdout
    assert f"note: directives of {directives}" in result.stdout.replace("\n", "")
    rows = [{"case": "c", "type": "gemm", "M": 8, "N": 8, "K": 8, "dataflow": "os", "array": 8}]
    table = write(tmp_path / "rows.json", rows)
    for path, beside, said in ((case, tmp_path / "no.yaml", "No such file"), (table, directives, "is a table")):
        refused = CliRunner().invoke(app, ["loopnest", str(path), "--sparse", str(beside)])
        assert refused.exit_code == 2 and said in refused.stderr
