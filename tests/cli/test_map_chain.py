"""`jaxperf map --chain`: a fused chain beside its nests, Einsums of a file, and every mistake."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxperf.loopnest import mapper
from jaxperf.loopnest.architecture import Architecture
from jaxperf.loopnest.feasible import Reason
from jaxperf.loopnest.fused import search
from jaxperf.loopnest.fused.chain import Chain
from jaxperf.loopnest.fused.mapping import Fusion
from jaxperf.loopnest.fused.search import ChainFound, find_chain_mapping
from jaxperf.loopnest.fused.space import ChainSpace
from jaxperf.loopnest.mapper import walk

CASE: dict[str, Any] = {
    "clock_hz": 1e9,
    "problem": {
        "instance": {"M": 1},
        "shape": {
            "dimensions": ["M"],
            "data_spaces": [
                {"name": "A", "projection": ["M"]},
                {"name": "Z", "projection": ["M"], "read_write": True},
            ],
        },
    },
    "mapping_outer_to_inner": [
        {"level": "memory", "keep": ["A", "Z"], "loops": []},
        {"level": "buffer", "keep": ["A", "Z"], "loops": []},
    ],
    "ert_pJ_per_action": {
        "mac": {"compute": 0.0},
        "buffer": {"read": 0.0, "write": 0.0},
        "memory": {"read": 60.0, "write": 60.0},
    },
    "levels": {
        "mac": {"specs": {"Instances": 1}},
        "buffer": {"specs": {"Size": 112}},
        "memory": {"specs": {"Size": "-"}},
    },
}
# Two matrix products, 8 x 4 by 4 x 16 by 16 x 4.
CHAIN = "bounds: {M: 8, D: 4, F: 16, E: 4}\nchain: ['H[M,F] = X[M,D] * U[D,F]', {einsum: 'Y[M,E] = H[M,F] * D[F,E]'}]"
MLP = "mlp:tokens=8,hidden=4,inner=16"

pytestmark = pytest.mark.usefixtures("plain_jax")


@pytest.fixture
def case(own_folder: Path) -> Path:
    (own_folder / "chain.yaml").write_text(CHAIN)
    path = own_folder / "case.json"
    path.write_text(json.dumps(CASE))
    return path


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets searches whose shared level is this one or further out find nothing."""

    def patch(level: int) -> None:
        def found(chain: Chain, machine: Architecture, space: ChainSpace, fusion: Fusion, *more: Any) -> ChainFound:
            if fusion.level < level:
                return find_chain_mapping(chain, machine, space, fusion, *more)
            return ChainFound(None, None, math.inf, 8, {Reason.CAPACITY: 7}, False)

        monkeypatch.setattr("jaxperf.io.fused_case.find_chain_mapping", found)

    return patch


def test_a_chain_says_what_its_machine_says_and_nothing_of_the_nest_of_the_case(own_folder: Path) -> None:
    from jaxperf.io.fused_case import chain_task
    from jaxperf.io.fused_chain import read_chain
    from jaxperf.io.timeloop.json_case import load_case, load_machine

    (own_folder / "zeros.json").write_text(json.dumps({**CASE, "sparse_optimizations": {"targets": []}}))
    task = chain_task(*read_chain(MLP), load_machine("zeros.json"), None)
    assert "the search is dense" in task.notes[0]
    problem = {**CASE["problem"], "instance": {**CASE["problem"]["instance"], "densities": {"A": 0.5}}}
    (own_folder / "zeros.json").write_text(json.dumps({**CASE, "problem": problem}))
    said = load_case("zeros.json").notes
    assert "densities of A are given" in said[0] and load_machine("zeros.json").notes == said[1:]


def test_every_word_passes_once(cli: Callable, case: Path, own_folder: Path, refused: Callable) -> None:
    """Energy is of the memory alone, and weights fit in parts: fused, X, U, D and Y pass once and H not at all."""
    refused(1)
    asked = ("--objective", "energy", "--generations", "6", "-o", "out.csv")
    result = cli("map", case, "--chain", "chain.yaml", *asked)
    assert result.exit_code == 0, result.output
    with (own_folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    words = {row["tensor"]: float(row["reads"]) + float(row["updates"]) for row in rows if row["level"] == "memory"}
    assert words == {"X": 8 * 4, "U": 4 * 16, "D": 16 * 4, "Y": 8 * 4}
    assert {row["tensor"] for row in rows if row["level"] == "buffer"} == {*words, "H"}
    assert "Fused at buffer" in result.stdout and "shared at memory: " in result.stdout
    (energy,) = (line.split() for line in result.stdout.splitlines() if line.strip().startswith("energy"))
    assert energy[1:] == ["11.52", "nJ", "-", "-"]  # 192 words of 60 pJ
    assert "unfused: no mapping that can run was found" in result.stdout


def test_what_does_not_fit_says_why(cli: Callable, case: Path, refused: Callable) -> None:
    refused(0)
    result = cli("map", case, "--chain", "chain.yaml")
    assert result.exit_code == 3, result.output
    assert "fused: no mapping that can run was found" in result.stdout
    assert "rejected (7): the tiles that a level keeps do not fit into it" in result.stdout


def test_an_interruption_keeps_the_best(
    cli: Callable, parse_json: Callable, case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [search._next_herd]

    def once(*at: Any) -> Any:
        if not steps:
            raise KeyboardInterrupt
        return steps.pop()(*at)

    monkeypatch.setattr(search, "_next_herd", once)
    result = cli("map", case, "--chain", "chain.yaml", "--json")
    assert result.exit_code == 130
    fused = parse_json(result.stdout)["fused"]
    assert fused["interrupted"] and fused["evaluations"] > 0


@pytest.mark.parametrize("chain", [("--chain", "chain.yaml"), ()])
def test_an_interruption_before_the_first_mapping_leaves_nothing(
    cli: Callable, case: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch, chain: tuple[str, ...]
) -> None:
    def stop(*at: Any) -> None:
        raise KeyboardInterrupt

    for module in (search, mapper):
        monkeypatch.setattr(module, "walk", lambda step, *rest: walk(stop, *rest))
    result = cli("map", case, *chain, "-o", "out.csv")
    assert result.exit_code == 130 and not result.stdout.strip() and not (own_folder / "out.csv").exists()
    assert "Interrupted; nothing is written to 'out.csv'." in result.stderr


def test_mistakes_are_named(refuse: Callable, case: Path, own_folder: Path) -> None:
    def said(chain: str, *more: str) -> str:
        return refuse("map", case, "--chain", chain, *more)

    assert said("mlp").endswith("nor a .yaml file.\n")
    (own_folder / "slow.json").write_text(json.dumps(CASE | {"clock_hz": "fast"}))
    assert 'clock_hz is "fast"' in refuse("map", "slow.json", "--chain", MLP)
    assert "Did you mean attention" in said("atention:heads=2")
    assert "attention: dim is missing" in said("attention:heads=2,queries=4")
    assert "mlp has no 'token'; there are tokens" in said("mlp:token=2")
    assert 'heads is "2.5"' in said("attention:heads=2.5")
    assert "must be given once" in said("mlp:tokens=2,tokens=3")
    assert "it must divide the 3 heads" in said("attention:heads=3,kv_heads=2,queries=4,dim=4")
    assert "--fuse: 'bufer' is no level" in said(MLP, "--fuse", "bufer")
    three = refuse("map", "hbm2_die", "--chain", "attention:heads=2,queries=8,dim=16", "--pipelined")
    assert "3 stages need an instance of registers each, and one of shared_memory has 1;" in three
    assert "nor one of eyeriss_like, gddr6_aim, hbm2_die, hbm_pim" in refuse("map", "hbm_pin", "--chain", MLP)
    assert "Cannot read 'none.yaml'" in said("none.yaml")
    for text, expected in (
        (CHAIN.replace("X[M,D]", "X[M,"), "must read like A[M,K]"),
        (CHAIN.replace("H[M,F] =", "H[M,F]"), "it must read like Z[M,N]"),
        (CHAIN.replace("X[M,D] * U[D,F]", "U[M,D] * U[D,F]"), "an array stands there twice"),
        (CHAIN.replace("E: 4", "G: 4"), "the rank E has no bound"),
        (CHAIN.replace("M: 8", "M: 0"), "bounds: M is 0"),
        (CHAIN.replace("M: 8", "M: 8, Q: 3"), "'Q' is no rank of the chain"),
        (CHAIN.replace("D[F,E]'}", "D[F,E]', operation: 2}"), "Did you mean operations"),
        (f"{CHAIN}\nclock: 3\n", "clock is not one of bounds, chain"),
    ):
        (own_folder / "bad.yaml").write_text(text)
        assert expected in said("bad.yaml")
    limits = {"levels": {"buffer": {"factors": {"temporal": {"M": 2}}}}}
    (own_folder / "limits.json").write_text(json.dumps(limits))
    assert "factors cannot be fixed" in said(MLP, "--constraints", "limits.json")
