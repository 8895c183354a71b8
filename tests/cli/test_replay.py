"""`jaxperf replay` as a user types it: answers, files, and mistakes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import Result

from hwspecs import load
from jaxperf.io.chakra.traces import write_chakra
from jaxperf.training.replay.trace import Operation, Trace

Cli = Callable[..., Result]
Refuse = Callable[..., str]


@pytest.fixture
def trace(own_folder: Path) -> Path:
    """Two layers of one rank of eight: work, and an all-reduce of its gradients."""
    steps = (
        Operation(0, "one", "compute", flops=1e12, bytes_moved=1e8, duration=0.002),
        Operation(1, "one.grad", "collective", (0,), collective="all_reduce", size=1e8),
        Operation(2, "two", "compute", (0,), flops=1e12, bytes_moved=1e8, duration=0.002),
        Operation(3, "two.grad", "collective", (2,), collective="all_reduce", size=1e8),
    )
    path = own_folder / "step.0.et"
    write_chakra(Trace(0, steps), path)
    return path


def test_a_trace_on_ten_thousand_ranks_is_answered(cli: Cli, trace: Path, own_folder: Path) -> None:
    result = cli("replay", trace, "--device", "h100-sxm", "--recorded", 8, "--n", 10_000, "-o", "out.csv")
    assert result.exit_code == 0
    assert "10,000 ranks on h100-sxm (recorded: 8)" in result.stdout
    with (own_folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == ["compute", "all_reduce", "compute", "all_reduce"]
    assert all(float(row["end_s"]) > float(row["start_s"]) for row in rows)


def test_json_holds_what_the_text_says(cli: Cli, trace: Path) -> None:
    def run(*options: str) -> dict:
        result = cli("replay", trace, "--device", "h100-sxm", "--recorded", "8", "--json", *options)
        assert result.exit_code == 0
        return json.loads(result.stdout)

    base = run()
    assert (base["ranks"], base["recorded_ranks"], base["device"]) == (8, 8, "h100-sxm")
    assert sum(base["critical_path_s"].values()) == pytest.approx(base["time_s"])
    assert base["classes"][0]["ranks"] == 8
    assert run("--n", "64")["time_s"] > base["time_s"]
    wide = run("--n", "64", "--topology", "node=64")
    assert base["time_s"] < wide["time_s"] < run("--n", "64")["time_s"]
    assert run("--topology", "link=45GB/s,link-latency=1ms,kind=switch")["time_s"] > base["time_s"]
    assert run("--compute", "recorded")["classes"][0]["compute_s"] == pytest.approx(0.004)
    assert run("--efficiency", "high")["time_s"] < base["time_s"] < run("--efficiency", "low")["time_s"]


def test_what_is_assumed_is_said_with_its_range(cli: Cli, trace: Path) -> None:
    asked = ("replay", trace, "--device", "v100-sxm-32gb", "--recorded", "8")
    found = json.loads(cli(*asked, "--json").stdout)
    ends = [json.loads(cli(*asked, "--json", "--efficiency", level).stdout) for level in ("high", "low")]
    assert [found["lower_s"], found["upper_s"]] == [each["time_s"] for each in ends]
    assert found["lower_s"] < found["time_s"] < found["upper_s"] and "lower_s" not in ends[0]
    assert "nominal shares assumed" in found["provenance"] and "range of assumptions" in found["provenance"]
    assert "range" not in ends[0]["provenance"]
    assert found["notes"] == ["v100-sxm-32gb has no bf16 matrix units: work is counted in fp16."]
    said = " ".join(cli(*asked).stdout.split())
    assert f"note: {found['notes'][0]}" in said and found["provenance"] in said


def test_work_takes_what_products_were_measured_to_sustain(cli: Cli, refuse: Refuse, trace: Path) -> None:
    asked = ("replay", trace, "--device", "h100-sxm", "--recorded", "8")
    shipped = Path(str(resources.files("calibration.fitted").joinpath("sustained.json")))
    Path("mine.sustained.json").write_text(shipped.read_text())
    found, assumed = (json.loads(cli(*asked, "--json", *options).stdout) for options in (("--params", "mine"), ()))
    from jaxperf.core.sustained_file import calibration_of, load_sustained_table

    rates = calibration_of(load("h100-sxm"), load_sustained_table("mine")).calibrated.sustained.rates["gemm"]
    least = 1e12 / load("h100-sxm").peak_flops["bf16"].si / float(rates.compute[1, 1])  # s, of each of both steps
    assert found["lower_s"] < found["time_s"] < found["upper_s"] and found["time_s"] != assumed["time_s"]
    assert 2.0 * least < found["classes"][0]["compute_s"] < 3.0 * least
    assert "measured tier, mine.sustained.json" in found["provenance"] and "links: assumed" in found["provenance"]
    assert "Cannot read sustained rates 'absent.sustained.json'" in refuse(*asked, "--params", "absent")


def test_what_takes_no_time_is_said(cli: Cli, own_folder: Path) -> None:
    steps = (
        Operation(0, "one", "compute"),
        Operation(1, "two", "compute", flops=1e9),
        Operation(2, "grad", "collective", collective="all_reduce", size=1e8),
    )
    write_chakra(Trace(0, steps), own_folder / "step.0.et")
    asked = ("replay", "step.0.et", "--device", "h100-sxm", "--json")
    empty = "1 nodes have neither work nor duration: they take no time."
    alone = "one rank: 1 collectives take no time; say --recorded N, the ranks of the run."
    assert json.loads(cli(*asked).stdout)["notes"] == [empty, alone]
    assert json.loads(cli(*asked, "--recorded", "8").stdout)["notes"] == [empty]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--device", "tpu-v5p", "--dtype", "fp64"], "--dtype: tpu-v5p multiplies neither fp64"),
        (["--device", "h100-smx"], "h100-sxm"),
        (["--n", "0"], "--n is 0"),
        (["--topology", "nodes=8"], "Did you mean node"),
        (["--topology", "node=8,node=16"], "node is given twice"),
        (["--topology", "node=8.5"], "number of devices"),
        (["--topology", "link=450"], "--topology: link"),
        (["--topology", "kind=ring"], "is not one of switch, mesh"),
        (["--dims", "8,x"], "--dims: '8,x'"),
        (["--compute", "guess"], "is not one of roofline, recorded"),
        (["--dtype", "bf61"], "Did you mean bf16"),
        (["--efficiency", "most"], "is not one of low, nominal, high"),
        (["--grow", "dp"], "named or described 'dp'"),
        (["--groups", "absent.json"], "absent.json cannot be read"),
        (["-o", "out.xyz"], "the ending must be one of"),
    ],
)
def test_mistakes_are_one_sentence(refuse: Refuse, trace: Path, options: list[str], says: str) -> None:
    device = [] if "--device" in options else ["--device", "h100-sxm"]
    assert says in refuse("replay", trace, *device, *options)


def test_the_input_stays(refuse: Refuse, own_folder: Path) -> None:
    path = own_folder / "k.0.json"
    path.write_text('{"workload_graph": [{"Id": 0, "Name": "a", "NodeType": 4, "num_ops": 1}]}')
    before = path.read_text()
    assert "is the input" in refuse("replay", path, "--device", "h100-sxm", "-o", path)
    assert path.read_text() == before


def test_files_that_are_no_trace_are_refused(refuse: Refuse, own_folder: Path) -> None:
    (own_folder / "noise.0.et").write_bytes(bytes(range(256)))
    assert "noise.0.et" in refuse("replay", "noise.0.et", "--device", "h100-sxm")
    assert "cannot be read" in refuse("replay", "absent.0.et", "--device", "h100-sxm")
