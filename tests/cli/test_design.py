"""`design`: the device that it writes does what was said of it, and every mistake is one sentence."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import jax
import pytest

SMALL = ("--prompt", "64", "--output", "8", "--batch", "8")
L4 = ("design", "gpt2", "--base", "l4", *SMALL)


def test_the_device_that_is_written_does_what_was_said(cli, parse_json, own_folder: Path) -> None:
    answer = parse_json(cli(*L4, "--slo", "tpot=2ms", "--minimize", "tdp", "-o", "my-chip.toml", "--json").stdout)
    rows = {row["name"]: row for row in answer["rows"]}
    assert answer["device"] == "my-chip" and answer["feasible"] and answer["at_an_end"] == []
    assert rows["tpot"]["design"] == pytest.approx(2e-3, rel=1e-4) and rows["tpot"]["design"] <= 2e-3
    assert rows["tdp"]["design"] < rows["tdp"]["base"] == 72.0
    assert list(answer["prices"]) == ["tpot"] and answer["prices"]["tpot"] > 0.0
    estimated = parse_json(cli("estimate", "gpt2", "--device", "my-chip.toml", *SMALL, "--json").stdout)
    for name in ("ttft", "tpot", "e2e_latency"):
        assert estimated["metrics"][name] == pytest.approx(rows[name]["design"], rel=1e-9)
        assert estimated["metrics"][f"{name}_upper"] == pytest.approx(rows[name]["upper"], rel=1e-9)
    told = parse_json(cli("devices", "my-chip", "--devices-dir", str(own_folder), "--json").stdout)
    assert float(told["num_cores"]["quantity"]) == rows["num_cores"]["design"]
    assert told["memory_bandwidth"]["confidence"] == "derived"


def test_text_says_what_limits_it_and_a_table_holds_every_fact_and_measure(cli, own_folder: Path) -> None:
    text = cli(*L4, "--slo", "tpot=2ms").stdout
    for said in ("Least power", "limited by tpot: 1 % more of it would take", "a chip of its family", "calibrated: "):
        assert said in text
    assert "uncalibrated" in text and "nan" not in text.lower()
    quiet = cli(*L4, "--slo", "tpot=2ms", "--quiet", "-o", "design.csv").stdout
    assert "Least power" in quiet and "note" not in quiet
    with (own_folder / "design.csv").open() as file:
        rows = {(row["what"], row["name"]): row for row in csv.DictReader(file)}
    assert {("fact", name) for name in ("num_cores", "peak_flops.bf16", "tdp")} <= rows.keys()
    assert {("measure", name) for name in ("power", "tdp", "tpot")} <= rows.keys()
    assert float(rows["measure", "tpot"]["limit"]) == 2e-3


def test_a_memory_that_is_free_holds_the_model(cli, parse_json, own_folder: Path) -> None:
    asked = ("design", "llama-3-70b", "--base", "h100-sxm", *SMALL)
    result = cli(*asked)
    assert result.exit_code == 3
    assert "do not fit in device memory" in result.stdout and "--free memory_capacity" in result.stderr
    answer = parse_json(cli(*asked, "--free", "memory_capacity", "-o", "large.toml", "--json").stdout)
    (capacity,) = (row for row in answer["rows"] if row["name"] == "memory_capacity")
    assert 141e9 / 0.9 < capacity["design"] < 170e9 and capacity["design"] % 1e9 == 0.0
    assert {row["name"] for row in answer["rows"] if row["what"] == "fact"} == {"tdp", "memory_capacity"}
    assert cli("estimate", "llama-3-70b", "--device", "large.toml", *SMALL).exit_code == 0


def test_what_nothing_holds_is_said_and_not_written(cli, own_folder: Path) -> None:
    result = cli(*L4, "--slo", "tpot=1us", "-o", "my-chip.toml")
    assert result.exit_code == 3
    assert "no sizes within these ranges hold the limit of tpot" in result.stdout
    assert "not written: the limits are not held" in result.stderr and not (own_folder / "my-chip.toml").exists()


def test_a_range_holds(cli, parse_json) -> None:
    free = "num_cores=40:50,memory_bandwidth=0.2TB/s:0.4TB/s"
    answer = parse_json(cli(*L4, "--free", free, "--minimize", "tpot", "--power-budget", "72W", "--json").stdout)
    rows = {row["name"]: row for row in answer["rows"]}
    assert 40 <= rows["num_cores"]["design"] <= 50 and 0.2e12 <= rows["memory_bandwidth"]["design"] <= 0.4e12
    assert rows["tdp"]["design"] <= 72.0


def test_a_base_of_ones_own_is_found_beside_the_design(cli, parse_json, own_folder: Path) -> None:
    source = '[sources.q]\ntitle = "q"\npublisher = "us"\nkind = "estimate"\nyear = 2026\n'
    limit = 'tdp = { quantity = "60 W", source = "q", confidence = "single source" }\n'
    (own_folder / "my-base.toml").write_text(f'name = "my-base"\nbase = "l4"\n{limit}{source}')
    asked = ("--slo", "tpot=2ms", "-o", "my-chip.toml", "--json")
    answer = parse_json(cli("design", "gpt2", "--base", "my-base.toml", *SMALL, *asked).stdout)
    assert any("starts from my-base: --devices-dir" in note for note in answer["notes"])
    estimated = cli("estimate", "gpt2", "--device", "my-chip", "--devices-dir", str(own_folder), *SMALL, "--json")
    (tpot,) = (row["design"] for row in answer["rows"] if row["name"] == "tpot")
    assert parse_json(estimated.stdout)["metrics"]["tpot"] == pytest.approx(tpot, rel=1e-9)


def test_a_memory_of_unknown_energy_is_said_to_cost_nothing(cli) -> None:
    text = cli("design", "gpt2", "--base", "tpu-v5e", *SMALL).stdout
    assert "what a byte of memory draws is not known of tpu-v5e: bandwidth adds nothing to the TDP" in text


def test_clock_and_links_are_sizes_too_and_a_picture_shows_it(cli, parse_json, own_folder: Path) -> None:
    asked = ("--free", "num_cores,clock_rate,link_bandwidth", "--slo", "ttft=4ms", "--area-budget", "294mm^2")
    files = ("-o", "my-chip.toml", "--plot", "design.png")
    answer = parse_json(cli(*L4, *asked, "--minimize", "tdp", *files, "--json").stdout)
    rows = {row["name"]: row for row in answer["rows"]}
    clock, cores = (rows[name]["design"] / rows[name]["base"] for name in ("clock_rate", "num_cores"))
    assert rows["peak_flops.bf16"]["design"] == pytest.approx(rows["peak_flops.bf16"]["base"] * clock * cores)
    assert rows["die_area"]["design"] <= rows["die_area"]["limit"] == 294e-6 and 0.7 <= clock < 1.0
    assert rows["tdp"]["per_clock_rate"] > rows["tdp"]["per_num_cores"] and rows["tpot"]["per_link_bandwidth"] == 0.0
    estimated = parse_json(cli("estimate", "gpt2", "--device", "my-chip.toml", *SMALL, "--json").stdout)
    assert estimated["metrics"]["ttft"] == pytest.approx(rows["ttft"]["design"], rel=1e-9)
    assert "link_bandwidth = " in (own_folder / "my-chip.toml").read_text().partition("[node]")[2]
    assert (own_folder / "design.png").read_bytes().startswith(b"\x89PNG")


def test_from_python() -> None:
    import jaxperf as jp

    model, point = jp.load_model("gpt2"), {"prompt": 64, "output": 8, "batch": 8}
    with jax.enable_x64(False):  # as JAX starts
        found = jp.design(model, "l4", free={"memory_bandwidth": (1e11, 1e12)}, limits={"tpot": 2e-3}, **point)
        step = jp.decode_step(model)(found.device, batch=8, context=68)
    assert found.best.held and list(found.best.prices) == ["tpot"]
    assert float(step.time) == pytest.approx(2e-3, rel=0.05)  # a step halfway through the output
    with pytest.raises(jp.InputError, match="do not fit"):
        jp.design("llama-3-70b", "l4")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"bacth": 8}, "Did you mean batch"),
        ({"device": "l44"}, "Did you mean l4"),
        ({"model": "gtp2"}, "Did you mean gpt2"),
        ({"free": {"memory_bandwidth": (2e12, 1e12)}}, "memory_bandwidth=2 TB/s:1 TB/s: the lower end must be below"),
        ({"free": {"num_cores": (40.5, 50)}}, "whole numbers"),
        ({"free": {"memory_capacity": (1e9, 2e9)}}, "takes no range"),
        ({"free": ()}, "Name what a design may change"),
        ({"limits": {"tpot": -1.0}}, "must be a number above zero"),
        ({"limits": None}, "'limits' is null; it must map"),
        ({"free": None}, "'free' is null; give the facts"),
        ({"free": {"memory_bandwidth": 1e12}}, "The range of 'memory_bandwidth' is 1000000000000.0; give its lower"),
        ({"name": 3}, "name: '3' would be"),
        ({"name": "l4"}, "is the name of a known device"),
    ],
)
def test_from_python_mistakes_are_told_as_by_the_command(asked: dict[str, Any], said: str) -> None:
    import jaxperf as jp

    with pytest.raises(jp.InputError, match=said):
        jp.design(**{"model": "gpt2", "device": "l4", **asked})


def test_the_shipped_law_of_power_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    import jaxperf as jp

    monkeypatch.setattr("jaxperf.serving.techniques.power_file.SCHEMA", 2)
    with pytest.raises(jp.InputError, match="have schema 1; this version reads schema 2"):
        jp.design("gpt2", "l4")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--free", "memory_bandwith"), "Did you mean memory_bandwidth"),
        (("--free", ","), "name what a design may change"),
        (("--free", "num_cores,num_cores"), "given twice"),
        (("--free", "num_cores=50:40"), "the lower end must be below the upper"),
        (("--free", "num_cores=40.5:50"), "whole numbers"),
        (("--free", "num_cores=40"), "write num_cores=LOW:HIGH"),
        (("--free", "memory_bandwidth=1GB:2GB"), "data rate"),
        (("--free", "memory_bandwidth=1TB/s:900TB/s"), "1000 times off"),
        (("--free", "memory_capacity=1GB:2GB"), "takes no range"),
        (("--minimize", "speed"), "allowed: power, tdp"),
        (("--minimize", "clock_rate"), "must be free"),
        (("--base", "b200", "--area-budget", "800mm^2"), "area of the dies of b200 is not known"),
        (("--free", "l2_capacity"), "allowed: num_cores"),
        (("--free", "memory_capacity", "--plot", "a.png"), "needs a free size"),
        (("--minimize", "tpot", "--slo", "tpot=1ms"), "what is minimised needs none"),
        (("--power-budget", "700"), "--power-budget"),
        (("--slo", "tpto=1ms"), "Did you mean tpot"),
        (("-o", "l4.toml"), "name of a known device"),
        (("-o", "My Chip.toml"), "use a-z, 0-9"),
        (("-o", "chip.txt"), "ending must be one of .toml"),
        (("-o", "nowhere/chip.toml"), "does not exist"),
        (("--base", "h1000"), "h100"),
        (("--tp", "7"), "does not divide"),
    ],
)
def test_mistakes_are_one_sentence(refuse, arguments: tuple[str, ...], said: str) -> None:
    assert said in refuse(*L4, *arguments)
