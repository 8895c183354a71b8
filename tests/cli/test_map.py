"""`jaxperf map`: a mapping that the evaluation confirms, its bound, and every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxperf.io.map_network import Layer, Network
from jaxperf.io.timeloop.nest import read_problem
from jaxperf.loopnest.mapper import Found

CASE: dict[str, Any] = {
    "problem": {
        "instance": {"M": 8, "N": 6, "K": 4},
        "shape": {
            "name": "gemm",
            "dimensions": ["M", "N", "K"],
            "data_spaces": [
                {"name": "A", "projection": [[["M"]], [["K"]]]},
                {"name": "B", "projection": [[["K"]], [["N"]]]},
                {"name": "Z", "projection": [[["M"]], [["N"]]], "read_write": True},
            ],
        },
    },
    "mapping_outer_to_inner": [
        {"level": "memory", "keep": {"A": 0, "B": 0, "Z": 0}, "loops": [["M", 8, "t"], ["N", 6, "t"]]},
        {"level": "buffer", "keep": {"A": 0, "Z": 0}, "loops": [["K", 4, "t"]]},
    ],
    "ert_pJ_per_action": {
        "mac": {"compute": 0.5},
        "buffer": {"read": 1.0, "write": 1.0, "update": 1.0},
        "memory": {"read": 60.0, "write": 60.0, "update": 60.0},
    },
    "levels": {
        "mac": {"specs": {"Instances": 4}},
        "buffer": {"specs": {"Instances": 4, "Size": 8}},
        "memory": {"specs": {"Instances": 1, "Size": "-"}},
    },
}
EFFORT = ("--generations", "12")
ASSUMED = "buffer, memory: no block size is given, one word is assumed"

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def limits(own_folder: Path) -> Callable[[dict], Path]:
    def write(levels: dict) -> Path:
        path = own_folder / "limits.json"
        path.write_text(json.dumps({"levels": levels}))
        return path

    return write


def test_meshes_that_constraints_do_not_state_are_those_of_the_instances(case: Path, limits: Callable) -> None:
    from jaxperf.io.map_case import constrained
    from jaxperf.io.timeloop.json_case import load_case

    whole = load_case(case)
    for named in ({}, {"memory": {"temporal": ["M"]}}, {"buffer": {}, "memory": {"mesh_x": 2, "mesh_y": 2}}):
        machine, found = constrained(whole, str(limits(named)))
        assert [level.fan_x * level.fan_y for level in machine.architecture.levels] == [1.0, 4.0]
        assert found["memory"].mesh_x == named.get("memory", {}).get("mesh_x", 4.0)


def test_the_mapping_costs_what_is_said(cli, parse_json, case: Path, own_folder: Path) -> None:
    result = cli("map", case, *EFFORT, "--json", "-o", "best.yaml")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    assert 0.99 * said["score"] < said["bound"] <= said["score"] == pytest.approx(said["edp_j_cycle"])
    assert said["feasible"] and said["factorings_bounded"] and 0.0 <= said["gap"] < 0.01
    products = {"M": 1, "N": 1, "K": 1}
    for name, bound, _ in (loop for block in said["mapping"] for loop in block["loops"]):
        products[name] *= bound
    assert products == CASE["problem"]["instance"]
    assert "target: buffer" in (own_folder / "best.yaml").read_text()
    (own_folder / "again.json").write_text(json.dumps(CASE | {"mapping_outer_to_inner": said["mapping"]}))
    again = parse_json(cli("loopnest", "again.json", "--timeloop", "head", "--json").stdout)
    assert (again["cycles"], again["energy_j"]) == (said["cycles"], said["energy_j"])


@pytest.mark.long
def test_the_answer_in_words(cli, case: Path) -> None:
    text = cli("map", case, *EFFORT).stdout
    assert "no mapping allowed has less edp" in text and "mappings scored" in text


def test_nothing_that_runs_ends_with_reasons(cli, parse_json, case: Path, limits) -> None:
    pinned = limits({"buffer": {"temporal": ["M", "N", "K"], "factors": {"temporal": {"M": 8, "N": 6}}}})
    files = ("-o", "best.yaml", "--plot", "best.png")
    result = cli("map", case, "--constraints", pinned, *EFFORT, "--json", *files)
    assert result.exit_code == 3, result.output
    for name in ("best.yaml", "best.png"):
        assert f"'{name}' is not written: no mapping that can run was found." in result.stderr
    said = parse_json(result.stdout)
    assert said["mapping"] == [] and said["score"] is None
    (reason,) = said["rejected"]
    assert "do not fit" in reason["reason"] and reason["mappings"] == said["evaluations"]


def test_a_level_keeps_what_is_worth_it(cli, parse_json, own_folder: Path) -> None:
    """A buffer dearer than the memory is let by; one that costs nothing saves operands of a product."""
    kept = {}
    for energy in (80.0, 0.0):
        table = CASE["ert_pJ_per_action"] | {"buffer": dict.fromkeys(("read", "write", "update"), energy)}
        (own_folder / "buffer.json").write_text(json.dumps(CASE | {"ert_pJ_per_action": table}))
        result = cli("map", "buffer.json", *EFFORT, "--bypass", "--objective", "energy", "--json")
        assert result.exit_code == 0, result.output
        said = parse_json(result.stdout)
        assert said["bound"] is None and said["score"] == pytest.approx(said["energy_j"], rel=1e-12)
        kept[energy] = [block["keep"] for block in said["mapping"]]
    assert kept[80.0] == [["A", "B", "Z"], []]
    assert kept[0.0][0] == ["A", "B", "Z"] and kept[0.0][1]


def test_methods_are_compared_at_equal_evaluations(
    cli, parse_json, case: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {"evolution": 2.0, "gradient": 2.0, "random": 3.0}
    layer = Layer(("first", "second"), *read_problem(CASE["problem"], "case"))

    def found(*at: Any, method: str) -> Found:
        objective, seed, effort = at[3:]
        assert (objective, seed, effort.generations, effort.patience) == ("edp", 5, 12, 12)
        return Found(None, None, scores[method], 12 * 8192, {}, False)

    monkeypatch.setattr("jaxperf.io.map_network.network_layers", lambda *at: Network([layer, layer], {}))
    monkeypatch.setattr("jaxperf.io.map_case.find_mapping", found)
    command = ("map", case, "--network", "any", "--compare", "--seed", "5", "--generations", "15")
    result = cli(*command, "--json", "-o", "methods.csv")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    assert said["best"] == {"evolution": 2, "gradient": 2, "random": 0} and said["gradient_at_most_random"] == 2
    assert said["notes"] == [ASSUMED]
    row = said["layers"][0]
    assert 0.0 < row["bound"] <= 2.0 and (row["count"], row["evaluations"]) == (2, 12 * 8192)
    assert len((own_folder / "methods.csv").read_text().splitlines()) == 3
    assert "gradient at most random: 2 of 2" in cli(*command).stdout


@pytest.mark.long
def test_a_total_says_how_many_layers_are_in_it(cli, case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Layer(("first", "second"), *read_problem(CASE["problem"], "case"))
    bounds = {name: 2**40 for name in ("M", "N", "K")}
    large = Layer(("third",), *read_problem({**CASE["problem"], "instance": bounds}, "case"))
    monkeypatch.setattr("jaxperf.io.map_network.network_layers", lambda *at: Network([small, large], {"softmax": 2}))
    result = cli("map", case, "--network", "any", *EFFORT)
    assert result.exit_code == 3, result.output
    assert "2 of 3 layers of 2 shapes" in result.stdout
    assert "note: operations that are not mapped and cost nothing here: softmax 2" in result.stdout


def test_mistakes_are_named(refuse, case: Path, limits, own_folder: Path) -> None:
    assert "Cannot read 'none.json'" in refuse("map", "none.json")
    assert "--objective: 'power'" in refuse("map", case, "--objective", "power")
    assert "--method: 'gradien' is not one of" in refuse("map", case, "--method", "gradien")
    assert "--generations is 0" in refuse("map", case, "--generations", "0")
    assert "--bounds: 'Q' is no loop; there are M, N, K." in refuse("map", case, "--bounds", "Q=3")
    assert "--bounds: 'M' has no value" in refuse("map", case, "--bounds", "M")
    assert "--bounds: M is" in refuse("map", case, "--bounds", "M=2.5")
    for nothing in ("", " , "):
        assert f"--bounds: '{nothing}' names no loop; write M=64" in refuse("map", case, "--bounds", nothing)
    large = "M=1000000000000001"
    said = refuse("map", case, "--bounds", large)
    assert f"{case}, --bounds {large}: M: the search is in 32 bits" in said
    assert "Did you mean eyeriss_like" in refuse("map", case, "--constraints", "eyeris_like")
    assert "'shared_glb' is no level; there are buffer, memory" in refuse("map", case, "--constraints", "eyeriss_like")
    assert "'temporel' is no constraint" in refuse("map", case, "--constraints", limits({"buffer": {"temporel": []}}))
    assert "mesh_x is 0" in refuse("map", case, "--constraints", limits({"memory": {"mesh_x": 0}}))
    fixed = limits({"memory": {"factors": {"temporal": {"K": 3}}}, "buffer": {"factors": {"temporal": {"K": 2}}}})
    said = refuse("map", case, "--constraints", fixed)
    assert f"{fixed}: K: the fixed factors multiply to 6, which does not divide the bound 4" in said
    assert "2 at buffer (temporal), 3 at memory (temporal)" in said
    assert "must be a list" in refuse("map", case, "--constraints", limits({"memory": {"keep": "A"}}))
    wide = refuse("map", case, "--constraints", limits({"memory": {"mesh_x": 3}}))
    assert "memory: mesh_x 3 times mesh_y 1 must be 4, the children" in wide
    kept = refuse("map", case, "--constraints", limits({"memory": {"keep": ["A", "Z"]}}))
    assert "limits.json: no level keeps B; name it in keep of memory" in kept
    assert "is the input" in refuse("map", case, "-o", case)
    assert "the ending must be one of" in refuse("map", case, "-o", "best.txt")
    (own_folder / "list.json").write_text("[]")
    assert "constraints are an object" in refuse("map", case, "--constraints", "list.json")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--compare",), "--compare goes with --network"),
        (("--size", "64"), "--size goes with --network"),
        (("--batch", "2"), "--batch goes with --network"),
        (("--pipelined",), "--pipelined goes with --chain"),
        (("--fuse", "buffer"), "--fuse goes with --chain"),
        (("--bypass", "--prove", "5"), "--prove does not go with --bypass"),
        (("--bypass", "--compare", "--network", "resnet-18"), "--compare does not go with --bypass"),
        (("--network", "resnet-18", "--bounds", "M=4"), "--bounds does not go with --network"),
        (("--network", "resnet-18", "--plot", "a.png"), "--plot does not go with --network"),
        (("--chain", "mlp:", "--plot", "a.png"), "--plot does not go with --chain"),
        (("--chain", "mlp:", "--bounds", "M=2"), "--bounds does not go with --chain"),
        (("--chain", "mlp:", "--method", "random"), "--method does not go with --chain"),
    ],
)
def test_options_that_do_not_go_together(refuse, case: Path, options: tuple[str, ...], said: str) -> None:
    assert said in refuse("map", case, *options)


def test_networks_that_cannot_be_mapped(refuse, case: Path) -> None:
    assert "layers have" in refuse("map", case, "--network", "resnet-18")


def test_an_interrupted_proof_keeps_the_mapping(cli, parse_json, case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*at: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxperf.io.map_case.prove", interrupted)
    result = cli("map", case, *EFFORT, "--json")
    said = parse_json(result.stdout)
    assert result.exit_code == 130 and said["interrupted"] and said["feasible"] and said["bound"] is None


def test_a_level_without_bandwidth_runs_nothing_and_free_energy_has_no_gap(cli, parse_json, own_folder: Path) -> None:
    starved = json.loads(json.dumps(CASE))
    starved["levels"]["memory"]["specs"]["Read bandwidth"] = 0
    (own_folder / "starved.json").write_text(json.dumps(starved))
    result = cli("map", "starved.json", *EFFORT, "--json")
    assert result.exit_code == 3, result.output
    assert any("no bandwidth" in each["reason"] for each in parse_json(result.stdout)["rejected"])
    energies = CASE["ert_pJ_per_action"]
    free = CASE | {"ert_pJ_per_action": {name: dict.fromkeys(energies[name], 0) for name in energies}}
    (own_folder / "free.json").write_text(json.dumps(free))
    result = cli("map", "free.json", *EFFORT)
    assert result.exit_code == 0, result.output
    assert "EDP 0 J cycle" in result.stdout and "to gain" not in result.stdout


def test_layers_of_one_shape_are_searched_once_and_counted(
    cli, parse_json, case: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Layer(("first", "second", "third"), *read_problem(CASE["problem"], "case"))
    monkeypatch.setattr(
        "jaxperf.io.map_network.network_layers",
        lambda *at: Network([layer, layer._replace(names=("last",))], {"softmax": 2}),
    )
    result = cli("map", case, "--network", "any", *EFFORT, "--json", "-o", "layers.csv")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    one, other = said["layers"]
    assert (said["count"], said["shapes"], one["count"], other["count"]) == (4, 2, 3, 1)
    assert one["mapping"] == other["mapping"]
    assert said["left_out"] == {"softmax": 2} and "softmax 2" in said["notes"][1] and said["notes"][0] == ASSUMED
    assert said["cycles"] == 4 * one["cycles"] and said["energy_j"] == pytest.approx(4 * one["energy_j"])
    assert 0.0 <= one["gap"] == one["score"] / one["bound"] - 1.0
    assert len((own_folder / "layers.csv").read_text().splitlines()) == 3
