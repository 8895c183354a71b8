"""`jaxperf capacity`: the rate that meets an SLO, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from jaxperf.cli.capacity import _print

SETTINGS = {
    **{"sched": "vllm_v1", "num_blocks": 400, "block_size": 16, "batch_size_cap": 4, "max_tokens_in_batch": 512},
    **{"model": "gpt2", "tp": 1, "device": "a100"},
}
WORKLOAD = {
    **{"count": 40, "seed": 1, "arrivals": {"kind": "poisson", "rate": 1.0}},
    **{"prompt": {"kind": "fixed", "value": 64}, "output": {"kind": "fixed", "value": 8}},
}
POOLS = {"prefill": {}, "decode": {"batch_size_cap": 8}}


@pytest.fixture
def files(own_folder: Path) -> tuple[str, ...]:
    (own_folder / "w.json").write_text(json.dumps(WORKLOAD))
    (own_folder / "s.json").write_text(json.dumps(SETTINGS))
    return ("capacity", "w.json", "--settings", "s.json", "--precision", "0.1")


@pytest.mark.long
def test_more_replicas_take_more(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    result = cli(
        *files, "--slo", "ttft=20ms,tpot=10ms", "--replicas", "1,2", "--price", "a100=2", "--json", "-o", "out.csv"
    )
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    one, two = said["rows"]
    assert (one["replicas"], two["replicas"]) == (1, 2) and two["requests_per_second"] > one[
        "requests_per_second"
    ] > 0.0
    assert one["requests_per_second"] < one["fails_at"] <= 1.1 * one["requests_per_second"]
    assert any("burst" in note for note in said["notes"]) and "energy: uncalibrated" in said["notes"][-1]
    for row in said["rows"]:
        assert row["limited_by"] in ("slo", "completions")
        assert row["requests_per_second_lower"] < row["requests_per_second"] < row["requests_per_second_upper"]
        assert 0.0 < row["output_tokens_per_second"] < 8 * row["requests_per_second"]  # the last one takes its time too
        hours = 1e6 / row["output_tokens_per_second"] * row["replicas"] / 3600.0  # 400 W each
        assert row["kwh_per_million_tokens"] == pytest.approx(0.4 * hours)
        assert row["dollars_per_million_tokens"] == pytest.approx(2.0 * hours)
    with (own_folder / "out.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["requests_per_second"]) for row in written] == [
        row["requests_per_second"] for row in said["rows"]
    ]


@pytest.mark.long
def test_the_requests_that_met_it_can_be_simulated(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    """A workload is drawn at its rate only in the mean: what it is multiplied by is the speedup."""
    limits = ("--slo", "ttft=20ms,tpot=10ms", "--json")
    row = parse_json(cli(*files, *limits, "-o", "out.csv").stdout)["rows"][0]
    for times, meets in ((1.0, True), (row["fails_at"] / row["requests_per_second"], False)):
        described = {**WORKLOAD, "arrivals": {"kind": "poisson", "rate": times * row["speedup"]}}
        (own_folder / "faster.json").write_text(json.dumps(described))
        found = parse_json(cli("simulate", "faster.json", "--settings", "s.json", *limits, "-o", "t.csv").stdout)
        if meets or row["limited_by"] == "slo":
            assert (found["goodput"]["share"] >= 0.9) == meets


def test_rows_that_are_no_requests_are_said(cli, files: tuple[str, ...], own_folder: Path) -> None:
    rows = [f"{time},{tokens},4" for time, tokens in ((0, 20), (1, 0), (2, 20), (3, 0))]
    (own_folder / "r.csv").write_text("\n".join(["arrived_at,prefill_tokens,decode_tokens", *rows]))
    result = cli("capacity", "r.csv", *files[2:], "--slo", "ttft=1s", "-o", "out.csv")
    with (own_folder / "out.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert float(row["speedup"]) == pytest.approx(float(row["requests_per_second"]) / 0.5)  # two requests, 2 s apart
    assert 'note: left out (2): prefill_tokens: "0" is not a whole number' in " ".join(result.stdout.split())


def test_one_request_has_no_rate_and_rows_left_out_are_said(refuse, files: tuple[str, ...], own_folder: Path) -> None:
    (own_folder / "r.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,20,4\nnan,20,4\n")
    said = refuse("capacity", "r.csv", *files[2:], "--slo", "ttft=1s")
    assert "r.csv has one request (left out (1): arrived_at" in said


@pytest.mark.long
def test_pools_are_divided_and_an_slo_nobody_meets_ends_with_three(
    cli, files: tuple[str, ...], own_folder: Path
) -> None:
    decode = {**POOLS["decode"], "batch_size_cup": 8}
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "pools": {**POOLS, "decode": decode}}))
    result = cli(*files, "--slo", "ttft=1us", "--devices", "3")
    assert result.exit_code == 3
    assert "no rate meets" in result.stdout
    assert "note: decode: batch_size_cup is not a setting" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert [row[:3] for row in rows] == [["1", "2", "3"], ["2", "1", "3"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--slo", "ttff=1s"), "ttft"),
        (("--slo", ""), "needs a limit"),
        (("--slo", "ttft=1s", "--share", "1.5"), "share"),
        (("--slo", "ttft=1s", "--quantile", "p98"), "p99"),
        (("--slo", "ttft=1s", "--quantile", "p50", "--share", "0.5"), "give one of the two"),
        (("--slo", "ttft=1s", "--replicas", "1,x"), "1,2,4"),
        (("--slo", "ttft=1s", "--replicas", "0"), "1,2,4"),
        (("--slo", "ttft=1s", "--routing", "round-robin"), "round_robin"),
        (("--slo", "ttft=1s", "--devices", "4"), "pools"),
        (("--slo", "ttft=1s", "--precision", "0"), "precision is 0"),
        (("--slo", "ttft=1s", "--precision", "nan"), "precision is nan"),
        (("--slo", "ttft=1s", "--precision", "1e-17"), "it must be a number from 1e-09 to 1"),
        (("--slo", "ttft=nan"), "--slo: ttft"),
        (("--slo", "ttft=1s", "--price", "h100=2"), "--price: device 'h100' is not among those asked about"),
        (("--slo", "ttft=1s", "--electricity", "nan"), "--electricity: nan must be a number above zero"),
        (("--slo", "ttft=1s", "--share", "nan"), "share"),
        (("--slo", "ttft=1s", "-o", "w.json"), "is the input"),
        (("--slo", "ttft=1s", "-o", "s.json"), "is the input"),
    ],
)
def test_mistakes_are_one_sentence(refuse, files: tuple[str, ...], options: tuple[str, ...], said: str) -> None:
    assert said in refuse(*files, *options)


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([], "object"),
        ({"prefill": {}}, "decode"),
        ({**POOLS, "decoder": {}}, "decode"),
        ({**POOLS, "link": "nvlink"}, "network"),
        ({**POOLS, "decode": {"sched": "lightllm", "block_size": 1}}, "computed elsewhere"),
        ({**POOLS, "first_token": []}, "prefill or decode"),
        ({**POOLS, "decode": {"model": "opt-125m"}}, "a cache is of one model"),
        ({**POOLS, "prefill": {"replicas": 0}}, "replicas"),
        ({**POOLS, "prefill": {"routing": "least"}}, "least_outstanding"),
        ({**POOLS, "prefill": {"pp": 2}}, "pipeline"),
    ],
)
def test_pools_that_mean_nothing_are_refused(refuse, files, own_folder: Path, pools: object, said: str) -> None:
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "pools": pools}))
    assert said in refuse(*files, "--slo", "ttft=1s")


@pytest.mark.parametrize(
    ("devices", "said"), [("1", "too few"), ("-3", "too few"), ("1000000000000", "too many: with 1,024")]
)
def test_devices_that_make_no_pools_are_refused(refuse, files, own_folder: Path, devices: str, said: str) -> None:
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "pools": POOLS}))
    assert said in refuse(*files, "--slo", "ttft=1s", "--devices", devices)


def test_options_of_replicas_are_refused_beside_pools(refuse, files, own_folder: Path) -> None:
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "pools": POOLS}))
    assert "--routing" in refuse(*files, "--slo", "ttft=1s", "--replicas", "2")


def test_requests_that_come_at_once_have_no_rate(refuse, files, own_folder: Path) -> None:
    (own_folder / "w.json").write_text(json.dumps({**WORKLOAD, "arrivals": {"kind": "burst"}}))
    assert "at once" in refuse(*files, "--slo", "ttft=1s")


def test_an_slo_that_is_met_again_is_said_with_its_rate(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"replicas": 2, "devices": 2, "requests_per_second": 3.0, "fails_at": 4.5, "monotone": False}
    _print([row], {"slo": "ttft <= 1 ms", "notes": []}, quiet=True)
    assert "replicas 2: above 4.50 requests/s, which fail, some rate meets the SLO again" in " ".join(
        capsys.readouterr().out.split()
    )
