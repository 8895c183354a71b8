"""`jaxperf codesign`: a row for every machine of the grid, confirmed by single searches, and every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxperf.io.codesign.machines import word_bytes
from jaxperf.io.map_network import Layer, Network
from jaxperf.io.timeloop.nest import read_problem
from jaxperf.loopnest.area import mac_area, register_area, sram_area

CASE: dict[str, Any] = {
    "problem": {
        "instance": {"M": 8, "K": 6},
        "shape": {
            "name": "vector",
            "dimensions": ["M", "K"],
            "data_spaces": [
                {"name": "A", "projection": [[["M"]], [["K"]]]},
                {"name": "Z", "projection": [[["M"]]], "read_write": True},
            ],
        },
    },
    "mapping_outer_to_inner": [
        {"level": "memory", "keep": {"A": 0, "Z": 0}, "loops": [["M", 8, "t"], ["K", 6, "t"]]},
        {"level": "buffer", "keep": {"A": 0, "Z": 0}, "loops": []},
    ],
    "ert_pJ_per_action": {
        "mac": {"compute": 0.5},
        "buffer": {"read": 1.0, "write": 1.0, "update": 1.0},
        "memory": {"read": 60.0, "write": 60.0, "update": 60.0},
    },
    "levels": {
        "mac": {"specs": {"Instances": 4}},
        "buffer": {"specs": {"Instances": 4, "Size": 8, "Word bits": 16}},
        "memory": {"specs": {"Instances": 1, "Size": "-", "Read bandwidth": 4}},
    },
}
QUICK = ("--generations", "2")

pytestmark = pytest.mark.usefixtures("plain_jax")


def test_the_machine_of_the_case_costs_what_its_own_search_says(cli, parse_json, case: Path) -> None:
    at = ("--free", "buffer.size=4,8", "--free", "memory.mesh_x=2,4")
    result = cli("codesign", "--base", case, *at, *QUICK, "--json", "-o", "machines.csv", "--plot", "front.png")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    assert "no block size is given" in said["notes"][-1]  # as the case says
    rows = said["rows"]
    assert sorted((row["buffer.size"], row["memory.mesh_x"]) for row in rows) == [(4, 2), (4, 4), (8, 2), (8, 4)]
    assert [row["edp_j_cycle"] for row in rows] == sorted(row["edp_j_cycle"] for row in rows)
    assert rows[0]["pareto"] and rows[0]["loses_by"] == "" and all(row["loses_by"] for row in rows[1:])
    own = next(row for row in rows if (row["buffer.size"], row["memory.mesh_x"]) == (8, 4))
    alone = parse_json(cli("map", case, "--generations", "12", "--prove", "0", "--json").stdout)
    assert own["edp_j_cycle"] == pytest.approx(alone["edp_j_cycle"], rel=1e-9)
    parts = sum(own[f"energy_j.{name}"] for name in ("mac", "buffer", "memory"))
    assert parts == pytest.approx(own["energy_j"])
    assert len(Path("machines.csv").read_text().splitlines()) == 5
    assert Path("front.png").read_bytes().startswith(b"\x89PNG")


def test_layers_count_as_often_as_they_run(cli, parse_json, case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer(("one", "two", "three"), *read_problem(CASE["problem"], "case"))
    monkeypatch.setattr(
        "jaxperf.io.map_network.network_layers",
        lambda *at: Network([layer, layer._replace(names=("last",))], {"norm": 3}),
    )
    at = ("--base", case, "--free", "memory.read_bandwidth=4", *QUICK, "--json")
    one, four = (parse_json(cli("codesign", *network, *at).stdout) for network in ((), ("any",)))
    assert (one["layers"], four["layers"], four["shapes"]) == (1, 4, 2)
    assert one["left_out"] == {} and four["left_out"] == {"norm": 3} and "norm 3" in four["notes"][-1]
    assert four["rows"][0]["cycles"] == 4 * one["rows"][0]["cycles"]
    assert four["rows"][0]["energy_j"] == pytest.approx(4 * one["rows"][0]["energy_j"])


def test_machines_that_cannot_run_come_last_with_their_reasons(cli, parse_json, case: Path) -> None:
    starved = ("--base", case, "--free", "memory.read_bandwidth=0,4", *QUICK)
    rows = parse_json(cli("codesign", *starved, "--json").stdout)["rows"]
    assert [row["feasible"] for row in rows] == [True, False]
    assert "no bandwidth" in rows[1]["reason"] and not rows[1]["pareto"] and rows[1]["energy_j"] is None
    assert all(rows[1][f"energy_j.{name}"] is None for name in ("mac", "buffer", "memory"))
    text = cli("codesign", *starved).stdout
    assert "infeasible: memory.read_bandwidth=0: case: a level has to move words" in text and "best" in text
    small = cli("codesign", "--base", case, "--free", "buffer.size=1", *QUICK, "--json", "--plot", "a.png")
    assert small.exit_code == 3, small.output
    assert "'a.png' is not written: nothing is feasible." in small.stderr
    assert "do not fit" in parse_json(small.stdout)["rows"][0]["reason"]


def test_small_levels_come_with_a_note(cli, case: Path) -> None:
    at = ("codesign", "--base", case, "--free", "buffer.size=4", *QUICK)
    assert "note: buffer: the energy line of sram is nearly flat below 1 KB" in cli(*at).stdout
    assert "nearly flat" not in cli(*at, "--energy", "buffer=fixed").stdout
    assert "note" not in cli(*at, "--quiet").stdout


def test_a_yaml_case_says_its_words(own_folder: Path) -> None:
    path = own_folder / "case.yaml"
    nodes = "{name: spad, attributes: {depth: 16, width: 24, datawidth: 12}}"
    path.write_text(f"architecture:\n  nodes:\n  - !Component {nodes}\n  - !Component {{name: mac}}\n")
    assert word_bytes(path, "spad") == 1.5


def test_a_power_budget_is_energy_per_cycle_times_the_clock(cli, parse_json, case: Path) -> None:
    at = ("codesign", "--base", case, "--free", "memory.read_bandwidth=1,4", *QUICK, "--json", "--clock", "1GHz")
    rows = parse_json(cli(*at).stdout)["rows"]
    powers = [row["power_w"] for row in rows]
    assert powers == pytest.approx([row["energy_j"] / row["cycles"] * 1e9 for row in rows])
    between = f"{(min(powers) + max(powers)) / 2 * 1e3:.6f}mW"
    kept, refused = parse_json(cli(*at, "--power-budget", between).stdout)["rows"]
    assert kept["feasible"] and kept["power_w"] == pytest.approx(min(powers))
    assert not refused["feasible"] and "the budget is" in refused["reason"]


def test_mistakes_are_named(refuse, case: Path, own_folder: Path) -> None:
    at = ("codesign", "--base", case)
    assert "--free is missing" in refuse(*at)
    for option in ("--size", "--batch"):
        assert f"{option} goes with NETWORK" in refuse(*at, "--free", "buffer.size=4", option, "8")
    assert "must read like" in refuse(*at, "--free", "buffer=3")
    assert "'bufer' is no level; there are buffer, memory. Did you mean buffer" in refuse(*at, "--free", "bufer.size=3")
    assert "'sizes' is no field of buffer" in refuse(*at, "--free", "buffer.sizes=3")
    assert '--free: buffer.size is "2.5"; it must be an integer from 1' in refuse(*at, "--free", "buffer.size=2.5")
    assert "has a value twice" in refuse(*at, "--free", "buffer.size=4,4.0")
    assert "is given twice" in refuse(*at, "--free", "buffer.size=4", "--free", "buffer.size=8")
    many = ",".join(map(str, range(1, 300)))
    assert "make 299 machines" in refuse(*at, "--free", f"buffer.size={many}")
    assert "'cacti' is no law" in refuse(*at, "--free", "buffer.size=4", "--energy", "buffer=cacti")
    assert "the size of memory is not free" in refuse(*at, "--free", "buffer.size=4", "--energy", "memory=sram")
    deep = ("--free", "buffer.size=65", "--energy", "buffer=regfile")
    assert "buffer is up to 65 accesses deep; regfile is known up to 64" in refuse(*at, *deep)
    assert "--power-budget needs --clock" in refuse(*at, "--free", "buffer.size=4", "--power-budget", "1W")
    assert "--clock:" in refuse(*at, "--free", "buffer.size=4", "--clock", "fast")
    assert "--generations is 0" in refuse(*at, "--free", "buffer.size=4", "--generations", "0")
    assert "--objective: 'power'" in refuse(*at, "--free", "buffer.size=4", "--objective", "power")
    assert "layers have" in refuse("codesign", "resnet-18", "--base", case, "--free", "buffer.size=4")
    assert "nor one of eyeriss_like, gddr6_aim, hbm2_die, hbm_pim" in refuse("codesign", "--base", "hbm_pin")
    assert "Cannot read" in refuse("codesign", "--base", "none.json", "--free", "buffer.size=4")
    assert "is the input; write to another file" in refuse(*at, "--free", "buffer.size=4", "-o", case)
    wordless = json.loads(json.dumps(CASE))
    del wordless["levels"]["buffer"]["specs"]["Word bits"]
    (own_folder / "wordless.json").write_text(json.dumps(wordless))
    assert "buffer: Word bits is missing" in refuse("codesign", "--base", "wordless.json", "--free", "buffer.size=4")


def test_a_level_without_a_size_needs_a_fixed_energy(cli, refuse, case: Path, own_folder: Path) -> None:
    sized = json.loads(json.dumps(CASE))
    sized["levels"]["memory"]["specs"]["Word bits"] = 16
    (own_folder / "sized.json").write_text(json.dumps(sized))
    at = ("codesign", "--base", "sized.json", "--free", "memory.size=1000000")
    assert "memory has no size" in refuse(*at)
    assert cli(*at, "--energy", "memory=fixed", *QUICK).exit_code == 0


def test_half_a_child_is_refused(refuse, own_folder: Path) -> None:
    levels = {**CASE["levels"], "mac": {"specs": {"Instances": 15}}, "buffer": {"specs": {"Instances": 2, "Size": 8}}}
    (own_folder / "odd.json").write_text(json.dumps({**CASE, "levels": levels}))
    at = ("codesign", "--base", "odd.json", "--free", "buffer.mesh_x=3")
    assert "there would be 6.42857 mac; it must be an integer" in refuse(*at)


def test_an_interruption_keeps_the_machines_that_are_done(
    cli, parse_json, case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxperf.io.codesign import search as codesign_search

    whole, calls = codesign_search.leading_mappings, []

    def second_stops(*at: Any) -> Any:
        calls.append(at)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return whole(*at)

    monkeypatch.setattr(codesign_search, "leading_mappings", second_stops)
    at = ("codesign", "--base", case, "--free", "buffer.size=4,8", *QUICK, "--json")
    result = cli(*at)
    said = parse_json(result.stdout)
    assert result.exit_code == 130 and said["machines"] == 2 and [row["buffer.size"] for row in said["rows"]] == [4]
    none = cli(*at)
    assert none.exit_code == 130 and "before the first machine" in none.stderr


def test_an_area_is_that_of_all_instances_in_the_process(cli, parse_json, case: Path) -> None:
    at = (
        "codesign",
        "--base",
        case,
        "--free",
        "buffer.size=8,16",
        *QUICK,
        "--technology",
        "16nm",
        "--mac-bits",
        "8,16",
    )
    rows = {row["buffer.size"]: row for row in parse_json(cli(*at, "--json").stdout)["rows"]}
    units = 4 * mac_area(8.0, 16.0, 16e-9)
    for size, row in rows.items():
        assert row["area_m2"] == pytest.approx(4 * sram_area(size * 16.0, 16e-9) + units)
    between = f"{(rows[8]['area_m2'] + rows[16]['area_m2']) / 2 * 1e6:.9f}mm^2"
    kept, refused = parse_json(cli(*at, "--area-budget", between, "--json").stdout)["rows"]
    assert kept["feasible"] and kept["buffer.size"] == 8
    assert not refused["feasible"] and "mm2; the budget is" in refused["reason"]
    for row in parse_json(cli(*at, "--area", "buffer=registers", "--json").stdout)["rows"]:
        assert row["area_m2"] == pytest.approx(4 * register_area(row["buffer.size"] * 16.0, 16e-9) + units)


def test_energies_follow_the_process(cli, parse_json, case: Path) -> None:
    at = ("codesign", "--base", case, "--free", "buffer.size=8", *QUICK, "--technology", "7nm", "--mac-bits", "8,16")
    (old,) = parse_json(cli(*at, "--json").stdout)["rows"]
    (same,) = parse_json(cli(*at, "--case-node", "7nm", "--json").stdout)["rows"]
    (new,) = parse_json(cli(*at, "--case-node", "45nm", "--json").stdout)["rows"]
    assert same["energy_j"] == pytest.approx(old["energy_j"], rel=1e-12)
    levels = {"memory": 1.0, "buffer": 7.5 / 10.0, "mac": 0.1 / 0.3}  # off the die; SRAM below 8 KB; logic
    parts = {name for name in old if name.startswith("energy_") and name != "energy_j"}
    assert {name for name in parts if any(level in name for level in levels)} == parts
    for name in parts:
        factor = next(factor for level, factor in levels.items() if level in name)
        assert new[name] == pytest.approx(factor * old[name], rel=1e-9), name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--technology", "3nm", "--mac-bits", "8,16"), "from 7 to 40 nm"),
        (("--technology", "fine", "--mac-bits", "8,16"), "--technology"),
        (("--technology", "16nm"), "--mac-bits must be"),
        (("--technology", "16nm", "--mac-bits", "8,16.5"), "integers from 1"),
        (("--technology", "16nm", "--mac-bits", "0,nan"), "integers from 1"),
        (("--technology", "16nm", "--mac-bits", "8,16", "--area", "memory=sram"), "memory has no size"),
        (("--technology", "16nm", "--mac-bits", "8,16", "--area", "bufer=sram"), "Did you mean"),
        (("--technology", "16nm", "--mac-bits", "8,16", "--area", "buffer=dram"), "sram, registers, none"),
        (("--area", "buffer=sram"), "need --technology"),
        (("--case-node", "45nm"), "needs --technology"),
        (("--technology", "16nm", "--mac-bits", "8,16", "--case-node", "65nm"), "from 7 to 45 nm"),
        (("--technology", "16nm", "--mac-bits", "8,16", "--case-node", "old"), "--case-node"),
        (("--area-budget", "5mm^2"), "needs --technology"),
        (("--technology", "16nm", "--mac-bits", "8,16", "--area-budget", "5 mm"), "--area-budget"),
    ],
)
def test_mistakes_about_silicon_are_named(refuse, case: Path, options: tuple[str, ...], said: str) -> None:
    assert said in refuse("codesign", "--base", case, "--free", "buffer.size=8", *options)
