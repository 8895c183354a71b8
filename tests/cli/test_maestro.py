"""`jaxperf loopnest FILE.m`: the layers of a MAESTRO mapping in their order, and what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.io.maestro_files import EYERISS_MACHINE, eyeriss

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def mapping(own_folder: Path) -> Path:
    (own_folder / "eyeriss.m").write_text(EYERISS_MACHINE)
    path = own_folder / "alexnet.m"
    path.write_text(eyeriss())
    return path


def test_layers_come_back_in_their_order(cli, parse_json, mapping: Path, own_folder: Path) -> None:
    command = ("loopnest", mapping, "--hardware", "eyeriss.m")
    result = cli(*command, "--json", "-o", "layers.csv")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    assert [each["layer"] for each in said["layers"]] == [f"CONV{number}" for number in range(1, 6)]
    assert [each["cycles"] for each in said["layers"]][1:] == [7921306, 4142630, 3598206, 2054398]  # MAESTRO's
    assert said["cycles"] == sum(each["cycles"] for each in said["layers"])
    assert said["layers"][3]["nest"]["levels"]["L2"]["tensors"]["Weights"]["reads"] == 384 * 192 * 9
    assert (own_folder / "layers.csv").read_text().count("true") == 5
    assert "CONV5: note: X': steps cover 16 of 13" in cli(*command).stdout
    (own_folder / "small.m").write_text(EYERISS_MACHINE.replace("5120", "40"))
    result = cli("loopnest", mapping, "--hardware", "small.m")
    assert result.exit_code == 3 and "CONV2: infeasible: L1:" in result.stdout and "nan" not in result.stdout


def test_an_ending_in_capitals_is_the_same(refuse, mapping: Path) -> None:
    assert "ALEXNET.M says nothing of the machine" in refuse("loopnest", mapping.rename("ALEXNET.M"))


def test_the_machine_must_be_given(refuse, mapping: Path, own_folder: Path) -> None:
    assert "says nothing of the machine" in refuse("loopnest", mapping)
    assert "Cannot read 'none.m'" in refuse("loopnest", mapping, "--hardware", "none.m")
    for option, value in {"--timeloop": "head", "--sparse": "s.yaml", "--plot": "a.png"}.items():
        said = refuse("loopnest", mapping, "--hardware", "eyeriss.m", option, value)
        assert f"{option} goes with one case, a .json or .yaml; {mapping} is MAESTRO's" in said
    (own_folder / "case.json").write_text("{}")
    assert "--hardware goes with MAESTRO's mapping" in refuse("loopnest", "case.json", "--hardware", "eyeriss.m")
