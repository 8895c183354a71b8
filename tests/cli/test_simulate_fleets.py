"""`jaxperf simulate` of pools and of drawn workloads: why requests have no times, and what goes together."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxperf.cli.simulate_said import NEVER, OUTGREW

SERVED = ("--settings", "s.json", "--model", "gpt2", "--device", "a100-sxm-80gb", "-o", "out.csv")
SETTINGS = {"sched": "vllm_v1", "block_size": 16}


def test_of_pools_the_one_that_never_admits_a_request_is_named(cli, own_folder: Path) -> None:
    """The longest does not fit for its prefill, the next not for its decode, which the third then outgrows."""
    rows = ("900,9", "640,9", "600,99", "100,9")
    (own_folder / "r.csv").write_text(
        "\n".join(["arrived_at,prefill_tokens,decode_tokens", *(f"0,{row}" for row in rows)])
    )
    pools = {"prefill": {"num_blocks": 50}, "decode": {"num_blocks": 40}}
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "pools": pools}))
    assert cli("simulate", "r.csv", *SERVED).exit_code == 0
    with (own_folder / "out.csv").open(newline="") as file:
        reasons = [row["reason"] for row in csv.DictReader(file)]
    assert reasons == [
        f"{NEVER} (prefill: 57 blocks of 16 tokens for its prompt, num_blocks is 50)",
        f"{NEVER} (decode: 41 blocks of 16 tokens for its prompt and the next token, num_blocks is 40)",
        OUTGREW,
        "",
    ]


def test_what_the_decode_pool_swaps_is_told(cli, own_folder: Path, parse_json) -> None:
    """Two requests of five blocks each on six."""
    (own_folder / "r.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,30,40\n0,30,40\n")
    swap = {"preemption": "swap", "swap_blocks": 9, "swap_bandwidth": 1e9, "num_blocks": 6}
    pools = {"prefill": {"num_blocks": 50}, "decode": swap}
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "sched": "vllm", "pools": pools}))
    said = parse_json(cli("simulate", "r.csv", *SERVED, "--json").stdout)
    with (own_folder / "out.csv").open(newline="") as file:
        swaps = [(row["num_restarts"], row["num_swaps"]) for row in csv.DictReader(file)]
    assert swaps == [("0", "0"), ("0", "1")]
    assert (said["preemptions"], said["prefill"]["preemptions"]) == (1, 0)


PARTS = {
    "best_of_n": {"samples": {"kind": "fixed", "value": 2}},
    "rag": {"document": {"kind": "fixed", "value": 32}, "documents": 2},
    "agents": {"turns": {"kind": "fixed", "value": 2}},
}


@pytest.fixture
def drawn(own_folder: Path) -> Callable[..., tuple[str, ...]]:
    """Writes a small workload of a kind, and the settings of replicas; returns what asks for them."""

    def write(kind: str, **settings: object) -> tuple[str, ...]:
        plain = {"count": 4, "arrivals": {"kind": "poisson", "rate": 50.0}, "kind": kind}
        lengths = dict.fromkeys(("prompt", "output"), {"kind": "fixed", "value": 20})
        (own_folder / "w.json").write_text(json.dumps({**plain, **lengths, **PARTS[kind]}))
        (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "num_blocks": 200, **settings}))
        return ("simulate", "w.json", *SERVED)

    return write


def test_drawn_requests_that_follow_no_others_are_taken_in_turn(cli, drawn, own_folder: Path, parse_json) -> None:
    """By stages of a pipeline and by clients; rows and texts in the cache are those behind a router of one replica."""
    for kind, requests in (("best_of_n", 8), ("rag", 4)):
        assert parse_json(cli(*drawn(kind, pp=2), "--json").stdout)["completed"] == requests
    assert parse_json(cli(*drawn("best_of_n"), "--concurrency", "1", "--json").stdout)["batch_occupancy"] == 1.0
    rows = []
    for routing in ("round_robin", "least_outstanding"):
        cli(*drawn("rag", enable_prefix_caching=True), "--routing", routing)
        rows.append((own_folder / "out.csv").read_text())
    assert rows[0] == rows[1]


def test_what_cannot_be_in_turn_is_refused_for_what_it_is(refuse, drawn) -> None:
    assert "where requests follow others" in refuse(*drawn("agents", pp=2))
    assert "when others have ended; leave it out" in refuse(*drawn("agents"), "--concurrency", "2")
    assert "stages before the engine; leave it out" in refuse(*drawn("rag"), "--concurrency", "2")
    routed = ("--concurrency", "2", "--routing", "least_outstanding")
    assert "for requests in turn; leave it or --routing out" in refuse(*drawn("best_of_n"), *routed)
