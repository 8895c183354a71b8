"""Cases of Timeloop in JSON and YAML, tables of mappings: what is read, and what is refused in words."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hwspecs.errors import InputError
from jaxperf.io.tables import json_text
from jaxperf.io.timeloop.case import evaluate
from jaxperf.io.timeloop.gemmini import parse_gemmini
from jaxperf.io.timeloop.json_case import load_case, read_case
from jaxperf.io.timeloop.random import parse_random
from jaxperf.io.timeloop.tables import predict_rows, summary
from jaxperf.io.timeloop.write import mapping_yaml

SHAPE = {
    "name": "window",
    "dimensions": ["K", "R", "P"],
    "coefficients": [{"name": "stride", "default": "1"}],
    "data_spaces": [
        {"name": "Weights", "projection": [[["K"]], [["R"]]], "read_write": "false"},
        {"name": "Inputs", "projection": [[["R"], ["P", "stride"]]], "read_write": "false"},
        {"name": "Outputs", "projection": [[["K"]], [["P"]]], "read_write": "true"},
    ],
}
CASE: dict[str, Any] = {
    "problem": {"version": "0.4", "shape": SHAPE, "instance": {"K": "8", "R": "3", "P": "16", "stride": "2"}},
    "mapping_outer_to_inner": [
        {"level": "DRAM", "keep": {"Weights": 0, "Inputs": 0, "Outputs": 0}, "loops": [["P", 4, "t"], ["K", 2, "t"]]},
        {"level": "columns", "keep": {}, "loops": [["K", 4, "x"]]},
        {"level": "buffer", "keep": {"Inputs": 0, "Outputs": 0}, "loops": [["P", 4, "t"], ["R", 3, "t"]]},
    ],
    "ert_pJ_per_action": {
        "DRAM": {"read": 64.0, "write": 64.0, "update": 64.0, "leak": 0.0},
        "buffer": {"read": 1.0, "write": 1.5, "leak": 0.01},
        "mac": {"compute": 0.5},
    },
    "levels": {
        "mac": {"specs": {"Instances": 4.0}},
        "buffer": {"specs": {"Size": 32.0, "Block size": 2.0, "Instances": 4.0, "Read bandwidth": 2.0}},
        "DRAM": {"specs": {"Size": "-", "Block size": 8.0, "Instances": 1.0, "Read bandwidth": "-"}},
    },
}
ARCHITECTURE = """
architecture:
  version: 0.4
  nodes:
  - !Container {name: system}
  - !Component {name: DRAM, class: DRAM, attributes: {width: 64, datawidth: 8}}
  - !Container {name: columns, spatial: {meshX: 4}}
  - !Component {name: buffer, class: SRAM, attributes: {depth: 16, width: 16, datawidth: 8, read_bandwidth: 2}}
  - !Component {name: mac, class: intmac}
"""
ERT = {
    "version": "0.4",
    "tables": [
        {
            "name": f"system.columns[0..3].{level}[1..4]",
            "actions": [{"name": action, "arguments": {}, "energy": energy} for action, energy in actions.items()],
        }
        for level, actions in CASE["ert_pJ_per_action"].items()
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The case with the field at a dotted path replaced, or removed by `...`."""
    case = copy.deepcopy(CASE)
    *steps, last = (int(step) if step.isdecimal() else step for step in path.split("/"))
    at: Any = case
    for step in steps:
        at = at[step]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return case


def yaml_text(mapping: str) -> str:
    parts = {"problem": CASE["problem"], "ERT": ERT}
    return ARCHITECTURE + yaml.safe_dump(parts) + mapping


def test_a_case_by_hand() -> None:
    answer = evaluate(read_case(CASE, "case.json"))
    buffer, backing = answer["levels"]["buffer"], answer["levels"]["DRAM"]
    assert list(answer["levels"]) == ["mac", "buffer", "DRAM"]
    assert answer["macs"] == 8 * 3 * 16 and answer["cycles"] == 96.0 and answer["utilization"] == 1.0
    assert buffer["instances"] == 4.0
    # A tile of four outputs lies under 2 (4 - 1) + 3 inputs; K outside of it reuses them, P brings all but one anew.
    assert buffer["tensors"]["Inputs"] == {
        **{"tile": 9.0, "reads": 96.0, "fills": 36.0, "updates": 0.0, "reductions": 0.0, "multicast": 1.0},
        "energy_j": pytest.approx(4 * (48 * 1.0 + 18 * 1.5) * 1e-12),
    }
    assert backing["tensors"]["Inputs"]["reads"] == 36.0  # one read serves four columns
    assert backing["tensors"]["Inputs"]["multicast"] == 4.0
    assert evaluate(read_case(CASE, "case.json"), "head")["levels"]["DRAM"]["tensors"]["Inputs"]["reads"] == 33.0
    parts = sum(level["energy_j"] for level in answer["levels"].values())
    assert answer["energy_j"] == pytest.approx(parts, rel=1e-12)
    assert answer["edp_j_cycle"] == pytest.approx(parts * 96.0, rel=1e-12)


@pytest.mark.parametrize("version", ["head", "2024"])
def test_yaml_says_the_same_as_json(tmp_path: Path, version: str) -> None:
    own = read_case(CASE, "case.json")
    path = tmp_path / "case.yaml"
    path.write_text(yaml_text(mapping_yaml(own)), encoding="utf-8")
    read = load_case(path)
    assert read.levels == own.levels and read.names == own.names
    assert json_text(evaluate(read, version)) == json_text(evaluate(own, version))  # areas, unknown, are NaN


@pytest.mark.parametrize("name", ["case.YAML", "case.Yml", "case.JSON"])
def test_endings_in_capitals_are_the_same_endings(tmp_path: Path, name: str) -> None:
    own = read_case(CASE, "case.json")
    path = tmp_path / name
    path.write_text(json.dumps(CASE) if name.endswith("JSON") else yaml_text(mapping_yaml(own)), encoding="utf-8")
    assert load_case(path).levels == own.levels


def test_a_mapping_that_targets_containers(tmp_path: Path) -> None:
    mapping = """
mapping:
- {target: DRAM, type: temporal, factors: [P=4, K=2], permutation: [K, P]}
- {target: columns, type: spatial, factors: K=4, permutation: K, split: 1}
- {target: buffer, type: dataspace, bypass: [Weights]}
- {target: buffer, type: temporal, factors: "R=3, P=4", permutation: R P}
"""
    path = tmp_path / "case.yaml"
    path.write_text(yaml_text(mapping), encoding="utf-8")
    assert json_text(evaluate(load_case(path), "2024")) == json_text(evaluate(read_case(CASE, "case.json")))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("problem/instance/P", ..., "problem.instance has no bound of P"),
        ("problem/instance/P", "sixteen", 'problem.instance.P is "sixteen"; it must be an integer from 1'),
        ("problem/instance/stride", 0, "problem.instance.stride is 0"),
        ("problem/shape/data_spaces/1/projection", [[["T"]]], "'T' is not a dimension"),
        ("problem/shape/data_spaces/1/projection", [[["R", "strode"]]], "'strode' is not a coefficient. Did you mean"),
        ("problem/shape/data_spaces/1/projection", ["R+P"], "'R+P' is not a dimension"),
        ("problem/shape/data_spaces/1/projection", [[]], "is no sum of dimensions"),
        ("problem/instance/densities", 3, "problem.instance: densities is 3"),
        ("problem/shape/data_spaces/2/read_write", "maybe", "it must be true or false"),
        ("mapping_outer_to_inner", [], "the mapping has no storage level"),
        ("mapping_outer_to_inner/0", {"level": "grid", "loops": [["P", 4, "x"]]}, "outside of the outermost storage"),
        ("mapping_outer_to_inner/2/level", "bufer", "level bufer has no specs. Did you mean buffer?"),
        (
            "mapping_outer_to_inner/2",
            {"level": "bufer", "loops": [["R", 3, "x"]]},
            "has no specs. Did you mean buffer?",
        ),
        ("mapping_outer_to_inner/2/keep", {"Inputs": 0, "Outputz": 0}, "'Outputz' is no operand"),
        ("mapping_outer_to_inner/0/keep", {"Inputs": 0, "Outputs": 0}, "no level of the mapping keeps Weights"),
        ("mapping_outer_to_inner/2/loops", [["P", 2, "t"], ["P", 2, "t"]], "P has two temporal loops"),
        ("mapping_outer_to_inner/2/loops", [["P", 2.5, "t"]], "bound of P is 2.5"),
        ("mapping_outer_to_inner/2/loops", [["P", 4, "z"]], "kind 'z'; it must be one of t, x, y"),
        ("mapping_outer_to_inner/1/loops", [["K", 4, "t"]], "temporal loop of a level that stores nothing"),
        ("ert_pJ_per_action/buffer", ..., "buffer is missing"),
        ("ert_pJ_per_action/buffer/read", -1.0, "buffer: energy of read is -1.0; it must be a number from 0"),
        ("ert_pJ_per_action/buffer/read", ..., "buffer: ert_pJ_per_action has no energy of read"),
        ("ert_pJ_per_action/mac", {"read": 1.0}, "action compute at 0 levels"),
        ("levels/buffer/specs/Size", "large", 'Size is "large"'),
        ("levels/buffer/specs/Instances", 0, "Instances is 0"),
        ("levels", [], "levels is a list of 0; it must be an object"),
        ("levels/buffer/specs", {"size": 32, "Instances": 4}, "buffer: 'size' is not a field. Did you mean Size?"),
        ("levels/DRAM/specs", {"Read Bandwidth": 4.0}, "'Read Bandwidth' is not a field. Did you mean Read bandwidth?"),
        ("levels/mac/specs", {"instances": 4}, "mac: 'instances' is not a field. Did you mean Instances?"),
        ("ert_pJ_per_action/buffer/updat", 1.0, "'updat' is not a field. Did you mean update?"),
        ("problem/instance", {"K": 8, "R": 3, "P": 16, "strid": 2}, "'strid' is not a field. Did you mean stride?"),
        ("problem/shape/coefficients/0", {"name": "st", "default": 1}, "'stride' is not a coefficient"),
        ("problem/shape/dimensions", ["K", "R", "P", "P"], "dimension P is named twice"),
        ("problem/shape/data_spaces/1/name", "Weights", "data space Weights is named twice"),
        ("problem/shape/data_spaces/2/read_write", False, "none is read_write; a nest writes one of Weights, Inputs"),
        ("mapping_outer_to_inner/2", {"level": "buffer", "Keep": ["Inputs"], "loops": []}, "Did you mean keep?"),
    ],
)
def test_bad_cases_are_refused_with_file_and_field(path: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_case(changed(path, value), "case.json")
    assert said in str(caught.value) and "case.json" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("problem/instance/P", "17", "P: the factors multiply to 16, the bound is 17: 4 at DRAM, 4 at buffer"),
        ("levels/buffer/specs/Size", 12.0, "buffer: 13 words are kept where 12 fit"),
        ("levels/buffer/specs/Instances", 3.0, "more instances are used than the machine has"),
        ("levels/buffer/specs/Instances", 3.0, "buffer: 4 instances are used where 3 are"),
        ("levels/mac/specs/Instances", 2.0, "mac: 4 instances are used where 2 are"),
        ("levels/buffer/specs/Read bandwidth", 0.0, "has to move words but has no bandwidth"),
        (
            "levels/buffer/specs/Read bandwidth",
            0.0,
            "buffer: 160 words of an instance have to pass and the read bandwidth is 0",
        ),
        ("levels/DRAM/specs/Shared bandwidth", 0.0, "words of an instance have to pass and the shared bandwidth is 0"),
    ],
)
def test_what_cannot_run_says_why(path: str, value: Any, said: str) -> None:
    answer = evaluate(read_case(changed(path, value), "case.json"))
    assert not answer["feasible"] and math.isnan(answer["cycles"]) and answer["limiter"] is None
    assert any(said in reason for reason in answer["reasons"])


def test_a_level_that_the_mapping_does_not_name_is_said_to_be_left_out() -> None:
    case = changed("mapping_outer_to_inner/2", {"level": "tile", "keep": {}, "loops": [["P", 4, "x"], ["R", 3, "y"]]})
    answer = evaluate(read_case(case, "case.json"))
    assert "buffer" not in answer["levels"]
    assert "buffer: has specs but the mapping does not name it; left out" in answer["notes"]


def test_fields_that_timeloop_has_and_this_program_does_not_use_are_left_alone(tmp_path: Path) -> None:
    case = changed("problem/instance", {**CASE["problem"]["instance"], "H": 32, "Wpad": 1, "name": "conv"})
    case["levels"]["buffer"]["specs"] |= {"Compute energy": "-", "Word bits": 16, "Technology": "45nm"}
    case["ert_pJ_per_action"]["buffer"] |= {"idle": 0.1, "gated_read": 0.2, "metadata_read": 0.3}
    assert json_text(evaluate(read_case(case, "case.json"))) == json_text(evaluate(read_case(CASE, "case.json")))
    text = yaml_text(mapping_yaml(read_case(CASE, "case.json")))
    more = "depth: 16, technology: 45nm, n_rdwr_ports: 2, n_banks: 4"
    path = tmp_path / "case.yaml"
    path.write_text(text.replace("depth: 16", more), encoding="utf-8")
    assert load_case(path).levels == ("buffer", "DRAM")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("case.yaml", "problem: &a\n  shape: *a\n", "an alias (*name) stands in what it names"),
        (
            "case.yaml",
            "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 99)}]\n" for i in range(1, 9)),
            "repeats it beyond 1,000,000 values",
        ),
        ("case.yaml", "problem: {}\nproblem: {}\n", "the key 'problem' is given twice"),
        ("case.json", '{"levels": {"L": {}, "M": {}, "L": {}}}', "the key 'L' is given twice in an object of L, M"),
        ("case.json", json.dumps(changed("problem/shape/data_spaces", [])), "data_spaces is empty; name what is read"),
    ],
)
def test_files_that_say_a_thing_twice_or_endlessly(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_case(path)
    assert said in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(
    "attributes",
    [
        "depth: 16, width: 16, word-bits: 8",
        "memory_depth: 16, memory_width: 16, word_width: 8",
        "data_storage_depth: 16, n_words: 2",
        "entries: 32, block-size: 2",
        "entries: 32, depth: 16, block-size: 2",
    ],
)
def test_the_same_buffer_under_timeloops_other_names(tmp_path: Path, attributes: str) -> None:
    text = yaml_text(mapping_yaml(read_case(CASE, "case.json")))
    assert "depth: 16, width: 16, datawidth: 8" in text
    path = tmp_path / "case.yaml"
    path.write_text(text.replace("depth: 16, width: 16, datawidth: 8", attributes), encoding="utf-8")
    buffer = load_case(path).architecture.levels[0]
    assert (float(buffer.size), float(buffer.block)) == (32.0, 2.0)


def test_a_density_is_said_to_be_unused() -> None:
    case = changed("problem/instance/densities", {"Weights": {"density": "0.5", "distribution": "fixed_structured"}})
    assert "computed as dense" in evaluate(read_case(case, "case.json"))["notes"][0]
    directed = read_case({**case, "sparse_optimizations": {"targets": []}}, "case.json")
    assert directed.notes[0] == "the search is dense: the directives of sparse_optimizations are not used"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("!Component {name: buffer", "!Parallel {name: buffer", "!Parallel is not supported; nodes are !Component"),
        ("depth: 16", "depth: 2 * 8", "expressions are not supported"),
        ("- {target: buffer, type: temporal", "- {target: bufer, type: temporal", "target bufer is no level"),
        ("type: temporal", "type: temporary", "type temporary is not one of temporal"),
        ("R=3", "R3", 'factor "R3" must read like P=16'),
        ("depth: 16", "dept: 16", "buffer: 'dept' is not a field. Did you mean depth?"),
        ("width: 16, datawidth: 8", "width: 16", "buffer: width needs datawidth, the bits of a word"),
        ("depth: 16, width: 16, datawidth: 8", "sizeKB: 1", "buffer: sizeKB needs datawidth, the bits of a word"),
        ("datawidth: 8, read", "datawidth: 8, word_bits: 16, read", "datawidth is 8 and word_bits, another name of it"),
        ("depth: 16", "depth: 16, entries: 16", "buffer: its words are 16 by entries, 32 by depth; state one"),
        ("depth: 16", "leakage: 2", "buffer: 'leakage' is not a field; what a level leaks is the energy of its action"),
        ("name: update", "name: leakage", "DRAM: ERT: 'leakage' is not a field; what a level leaks is the energy"),
        ("name: update", "name: gated_raed", "DRAM: ERT: 'gated_raed' is not a field. Did you mean gated_read?"),
        ("ERT:", "sparse-optimization: {}\nERT:", "is not a field. Did you mean sparse_optimizations?"),
        ("meshX: 4", "mesh_x: 4", "columns: spatial: 'mesh_x' is not a field. Did you mean meshX?"),
        ("spatial: {", "spacial: {", "columns: 'spacial' is not a field. Did you mean spatial?"),
        ("permutation: [R, P]", "permutations: [R, P]", "'permutations' is not a field. Did you mean permutation?"),
        ("columns[0..3].buffer[", "columns[0..3].bufer[", "ERT: buffer is missing. Did you mean bufer?"),
        ("name: read", "name: leak", "ERT has no energy of read"),
        ("ERT:", "ert:", "'ert' is not a field. Did you mean ERT?"),
        ("bypass: [Weights]", "bypass: [Weight]", "Weight is no data space. Did you mean Weights?"),
        ("architecture:", "architecture: {nodes: [", "is not valid YAML"),
    ],
)
def test_bad_yaml_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    mapping = """
mapping:
- {target: buffer, type: dataspace, bypass: [Weights]}
- {target: buffer, type: temporal, factors: [R=3, P=4], permutation: [R, P]}
"""
    text = yaml_text(mapping)
    assert old in text
    path = tmp_path / "case.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_case(path)
    assert said in str(caught.value) and "case.yaml" in str(caught.value)


# --- tables -----------------------------------------------------------------------------------------------------------

GEMMINI: dict[str, Any] = {
    **{f"prob.{name}": 1 for name in "NPQRS"},
    **{"prob.C": 4, "prob.K": 8, "arch.pe": 4, "arch.meshX": 2},
    **{"arch.mem1_entries": 16, "arch.mem1_instances": 2, "arch.mem1_shared_bandwidth": 2},
    **{"arch.mem2_entries": 64, "arch.mem2_instances": 1, "arch.mem2_shared_bandwidth": 4},
    "mapping.mapping": "L3[WIO] K4 - L2[WI] K2X - L1[O] C2 C2X - L0[W] N1",
}
RANDOM: dict[str, Any] = {
    "dims": {"R": 3, "S": 1, "P": 4, "Q": 2, "C": 2, "M": 2},
    "stride": 1,
    "factors": [
        *([1, 1, 1, 1, 1, 2], [3, 1, 1, 1, 1, 1], [1] * 6, [1, 1, 1, 1, 2, 1], [1, 1, 1, 2, 1, 1]),
        *([1, 1, 2, 1, 1, 1], [1, 1, 2, 1, 1, 1]),
    ],
    "perm_glb_inner_to_outer": ["P", "Q", "S", "R", "C", "M"],
    "perm_dram_inner_to_outer": ["P", "Q", "S", "R", "C", "M"],
}


def test_a_row_of_gemmini() -> None:
    (own,) = predict_rows([GEMMINI], "rows")
    # The scratchpad takes in 32 weights and 4 inputs and gives out 32 weights (8 steps of 2 x 2 elements) and 16 inputs
    # (one for both columns of filters): 84 words at 4 a cycle, where DRAM moves 44 at 8 and the elements step 8 times.
    assert own["reason"] == "" and own["predicted_cycles"] == 21.0 and own["predicted_limiter"] == "scratchpad"


def test_a_row_of_the_eyeriss_like_machine() -> None:
    (own,) = predict_rows([RANDOM], "rows")
    spad = own["predicted_levels"]["psum_spad"]
    assert own["predicted_cycles"] == 2 * 3 * 2 * 2 and spad["instances"] == 4.0
    assert spad["tensors"]["Outputs"]["updates"] == 24.0


def test_bad_rows_keep_their_place_and_say_why() -> None:
    rows = [
        GEMMINI,
        {**GEMMINI, "mapping.mapping": "L3[WIO] K4, L2"},
        {**GEMMINI, "prob.C": None},
        {**GEMMINI, "prob.C": 5},
        {**GEMMINI, "arch.mem1_entries": 0.5},
    ]
    found = predict_rows(rows, "rows")
    said = ["", "is no level such as L2[WI] K16X", "prob.C is null", "do not multiply", "arch.mem1_entries is 0.5"]
    assert all(text in row["reason"] for text, row in zip(said, found, strict=True))
    assert [row["predicted_cycles"] for row in found[:3]] == [21.0, None, None]
    counted = summary([{**row, "target.cycle": 21} for row in rows], found, "rows")
    assert (counted["rows"], counted["predicted"]) == (5, 1) and counted["errors"][0]["equal"] == 1.0
    with pytest.raises(InputError, match="no table of mapped nests"):
        predict_rows([{"m": 1}], "rows")
    with pytest.raises(InputError, match="no rows"):
        predict_rows([], "rows")


def test_systolic_rows() -> None:
    row = {"case": "c", "type": "conv", "M": 196, "N": 64, "K": 288, "dataflow": "os", "array": 16}
    plain, strided, wrong = predict_rows(
        [
            row,
            {**row, "case": "c_s2"},
            {**row, "dataflow": "rs"},
        ],
        "rows",
    )
    assert plain["predicted_cycles"] == 13 * 4 * (16 + 16 + 288 - 2) - 1
    assert strided["predicted_cycles"] == 15 * 4 * (16 + 16 + 288 - 2) - 1  # 15 x 15 pixels, the output rounded up
    assert "dataflow 'rs' is not one of os, ws, is" in wrong["reason"] and wrong["predicted_cycles"] is None


# --- whatever stands where something else belongs ---------------------------------------------------------------------

JUNK = [None, -1, 1.5, "x", [], {}, [1], {"a": 1}, True, math.nan, 10**400]


def places(value: Any, path: str = "") -> list[str]:
    """Every place in a nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [own for key, each in items for own in (f"{path}{key}", *places(each, f"{path}{key}/"))]


@pytest.mark.parametrize("path", places(CASE))
def test_junk_in_a_case_is_refused_or_harmless(path: str) -> None:
    for value in (*JUNK, ...):
        try:
            read_case(changed(path, value), "case.json")
        except InputError as error:
            assert "case.json" in str(error)


@pytest.mark.parametrize(("row", "parse"), [(GEMMINI, parse_gemmini), (RANDOM, parse_random)])
def test_junk_in_a_row_is_refused_or_harmless(row: dict[str, Any], parse: Callable[[dict[str, Any]], Any]) -> None:
    refused = 0
    for name in row:
        for value in JUNK:
            try:
                parse({**row, name: value})
            except InputError:
                refused += 1
    assert refused > len(row)
