"""`jaxperf colocate`: alone as simulate has it, slower together, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxperf.cli import neighbors
from jaxperf.cli.neighbors import Run
from jaxperf.serving.colocate.overlap import Timeline

LENGTHS = {"prompt": {"kind": "fixed", "value": 200}, "output": {"kind": "fixed", "value": 40}}
REQUESTS = {"count": 40, "seed": 1, "arrivals": {"kind": "poisson", "rate": 8.0}, **LENGTHS}
SMALL = {"sched": "vllm_v1", "model": "gpt2", "device": "a100", "batch_size_cap": 16, "max_tokens_in_batch": 512}
LARGE = {**SMALL, "model": "gpt2-xl"}


@pytest.fixture
def files(own_folder: Path) -> tuple[str, ...]:
    (own_folder / "w.json").write_text(json.dumps(REQUESTS))
    (own_folder / "v.json").write_text(json.dumps({**REQUESTS, "seed": 2}))
    (own_folder / "a.json").write_text(json.dumps(SMALL))
    (own_folder / "b.json").write_text(json.dumps(LARGE))
    return ("colocate", "w.json", "v.json", "--settings", "a.json", "--settings", "b.json")


def rows_of(said: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["sharing"], row["engine"]): row for row in said["rows"]}


def test_alone_is_simulated_and_together_is_slower(cli, files, own_folder: Path, parse_json) -> None:
    result = cli(*files, "--sharing", "mps,time_slice", "--json", "--slo", "ttft=1s")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    rows = rows_of(said)
    plain = parse_json(cli("simulate", "w.json", "--settings", "a.json", "-o", "s.csv", "--json").stdout)
    row = rows["alone", "gpt2"]
    for name in ("ttft", "tpot", "e2e"):
        assert [row[f"{name}_mean_s_{end}"] for end in ("lower", "upper")] == plain["intervals"]["latency_s"][name][
            "mean"
        ]
        both = [(row[f"{name}_{end}_s"], plain["latency_s"][name][end]) for end in ("mean", "p99")]
        assert all(ours == theirs for ours, theirs in both)
    assert row["busy"] == plain["utilization"] and row["num_blocks"] == plain["settings"]["blocks"]
    assert len(rows) == 6 and said["device"] == "a100-sxm-80gb"
    for engine in ("gpt2", "gpt2-xl"):
        row, beside, turns = (rows[way, engine] for way in ("alone", "mps", "time_slice"))
        assert row["e2e_slowdown"] == row["decode_step_slowdown"] == 1.0 and row["goodput_share"] == 1.0
        for phase in ("prefill", "decode"):
            name = f"{phase}_step_slowdown"
            assert 1.0 <= beside[name] <= turns[name] + 0.05 and turns[name] <= 2.0 + 1e-9
        assert 1.0 < beside["e2e_slowdown"] < turns["e2e_slowdown"]
    for way in ("mps", "time_slice"):
        own = [rows[way, engine] for engine in ("gpt2", "gpt2-xl")]
        assert 0.0 < sum(row["bandwidth_share"] for row in own) <= 1.0
        assert sum(row[f"{part}_bytes"] for row in own for part in ("weights", "activations", "cache")) <= 0.9 * 80e9
        assert own[0]["cache_bytes"] == pytest.approx(own[1]["cache_bytes"], rel=0.01)
    assert all(any(word in note for note in said["notes"]) for word in ("max-min", "1 / k", "not in it"))


@pytest.mark.long
def test_two_of_a_kind_with_the_same_requests_meet_all_the_time(cli, files, own_folder: Path) -> None:
    words = ("colocate", "w.json", "--settings", "a.json", "--settings", "a.json", "--sharing", "time_slice,mig")
    text = cli(*words, "-o", "out.csv").stdout
    assert "2 engines on one a100-sxm-80gb" in text and "time_slice: memory bandwidth busy" in text
    assert "note: mig: each engine has 1 / 2 of cores" in text
    with (own_folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sharing"] for row in rows] == ["alone"] * 2 + ["time_slice"] * 2 + ["mig"] * 2
    assert [row["engine"] for row in rows] == ["gpt2 #1", "gpt2 #2"] * 3
    for row in rows[2:4]:
        assert float(row["decode_step_slowdown"]) == pytest.approx(2.0)
    for row in rows[4:]:
        assert 1.0 < float(row["decode_step_slowdown"]) <= 2.0 and float(row["ttft_slowdown"]) > 1.0


@pytest.mark.long
def test_who_was_asked_before_counts_from_then_and_who_does_not_keep_up_is_said(
    cli, files, own_folder: Path, parse_json
) -> None:
    embed = {"document": {"kind": "fixed", "value": 8}, "embed": {"time": {"kind": "fixed", "mean": 2.0}}}
    (own_folder / "w.json").write_text(json.dumps({**REQUESTS, **embed, "kind": "rag", "count": 5}))
    (own_folder / "v.json").write_text(json.dumps({**REQUESTS, "arrivals": {"kind": "even", "rate": 400.0}}))
    said = parse_json(cli(*files, "--sharing", "time_slice", "--json").stdout)
    rows = rows_of(said)
    plain = parse_json(cli("simulate", "w.json", "--settings", "a.json", "-o", "s.csv", "--json").stdout)
    assert rows["alone", "gpt2"]["completed"] == rows["time_slice", "gpt2"]["completed"] == plain["completed"] == 5
    assert rows["alone", "gpt2"]["ttft_mean_s"] == plain["latency_s"]["ttft"]["mean"] > 2.0
    assert rows["time_slice", "gpt2"]["ttft_mean_s"] >= rows["alone", "gpt2"]["ttft_mean_s"]
    assert any(note.startswith("time_slice: gpt2-xl: requests are completed at") for note in said["notes"])


def test_slices_count_from_the_first_step_of_any_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines that decode for a second each, of half a device whose memory they keep busy, ninety seconds apart."""
    timelines = {start: Timeline(np.array([start]), np.array([start + 1.0]), np.array([1])) for start in (0.0, 91.0)}
    needs: Any = SimpleNamespace(time=np.ones(2), shares=np.ones((2, 3)))
    engines: list[Any] = [SimpleNamespace(start=start, needs=lambda _: needs) for start in timelines]
    nothing: Any = None
    monkeypatch.setattr(neighbors, "simulate_alone", lambda own: Run({}, nothing, timelines[own.start]))
    assert neighbors.in_slices(engines, engines).bandwidth == pytest.approx([0.5 / 92, 0.5 / 92])
    assert neighbors.in_slices(engines[:1] * 2, engines).bandwidth == pytest.approx([0.5, 0.5])


def test_what_does_not_fit_together_is_told_and_ends_with_three(cli, files, own_folder: Path) -> None:
    """A block is 16 tokens of 36,864 bytes; 100,000 of them are 59 GB."""
    for name in ("a.json", "b.json"):
        (own_folder / name).write_text(json.dumps({**SMALL, "num_blocks": 100_000}))
    result = cli(*files, "--sharing", "mps", "-o", "out.csv", "--quiet")
    assert result.exit_code == 3
    assert "mps: not possible: weights, activations and stated caches of all engines are" in result.stdout
    assert "note:" not in result.stdout
    with (own_folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["sharing"], bool(row["reason"])) for row in rows] == [("alone", False)] * 2 + [("mps", True)] * 2


def test_requests_that_follow_others_are_refused(refuse, files, own_folder: Path) -> None:
    turns = {"kind": "agents", "turns": {"kind": "fixed", "value": 3}}
    (own_folder / "w.json").write_text(json.dumps({**REQUESTS, **turns, "count": 5}))
    assert "follow one another" in refuse(*files)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("w.json", "--settings", "a.json"), "two or more"),
        (
            ("w.json", "w.json", "w.json", "--settings", "a.json", "--settings", "b.json"),
            "one for each, or one for all",
        ),
        (("w.json", *("--settings", "a.json") * 8), "7 at most"),
        (("w.json", *("--settings", "a.json") * 2, "--sharing", "mpss"), "Did you mean mps?"),
        (("w.json", *("--settings", "a.json") * 2, "--sharing", ""), "no way to share"),
        (("w.json", *("--settings", "a.json") * 2, "--slo", "ttff=1s"), "ttft"),
        (("w.json", *("--settings", "a.json") * 2, "-o", "w.json"), "is the input"),
        (("w.json", *("--settings", "a.json") * 2, "-o", "a.json"), "is the input"),
        (("nothing.json", *("--settings", "a.json") * 2), "nothing.json"),
        (("w.json", "--settings", "a.json", "--settings", "nothing.json"), "nothing.json"),
    ],
)
def test_mistakes_are_one_sentence(refuse, files, words: tuple[str, ...], said: str) -> None:
    assert said in refuse("colocate", *words)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": None}, "no key 'model'"),
        ({"pools": {}}, "pools are several engines"),
        ({"device": "h100-sxm"}, "different devices: a100-sxm-80gb (a.json), h100-sxm (b.json); give --device"),
        ({"device": None}, "no device"),
        ({"tp": 5}, "tp is not the same: 1 (a.json), 5 (b.json)"),
        ({"pp": 2}, "not pipelines"),
        ({"sched": "vlm"}, "Did you mean vllm?"),
        ({"model": "llama-2-70b"}, "no memory is left"),
    ],
)
def test_engines_that_cannot_share_are_refused(refuse, files, own_folder: Path, change: dict, said: str) -> None:
    (own_folder / "b.json").write_text(json.dumps({**LARGE, **change}))
    assert said in refuse(*files)


def test_requests_that_are_none_are_refused(refuse, files, own_folder: Path) -> None:
    (own_folder / "r.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,0,4\n")
    assert "r.csv: none of the rows is a request" in refuse("colocate", "r.csv", *files[2:])
