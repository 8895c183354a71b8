"""`jaxperf simulate --adapt LOG`: the terms are of the log alone, and what of it was not used is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxperf.serving.simulator import adapt
from jaxperf.serving.simulator.adapt import Terms
from jaxperf.serving.simulator.step_time import StepTimeTable

SETTINGS = {"sched": "vllm_v1", "num_blocks": 400, "model": "gpt2", "device": "a100-sxm"}
LOG = "arrived_at,prefill_tokens,decode_tokens,first_token_at,completed_at\n"


@pytest.fixture
def fitted(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[StepTimeTable]:
    """The tables that terms were fitted to; nothing is searched for."""
    (own_folder / "s.json").write_text(json.dumps(SETTINGS))
    tables: list[StepTimeTable] = []

    def known(table: StepTimeTable, *_: object) -> Terms:
        tables.append(table)
        return Terms(1.0, 1.0, 0.0, 0.0)

    monkeypatch.setattr(adapt, "fit_terms", known)
    return tables


def test_a_log_is_fitted_as_far_as_it_reaches(cli, fitted: list[StepTimeTable], own_folder: Path, parse_json) -> None:
    """Requests that are few and short make a small table of step times, which the log's steps would leave."""
    (own_folder / "few.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,9,3\n1,9,3\n")
    rows = [f"{index / 1000},600,300,{1 + index},{2 + index}\n" for index in range(20)]
    (own_folder / "log.csv").write_text(LOG + "".join(rows) + "5,0,2,6,7\n")
    asked = ("simulate", "few.csv", "--settings", "s.json", "--adapt", "log.csv", "-o", "out.csv", "--json")
    said = parse_json(cli(*asked).stdout)
    decodes, contexts = fitted[0].decode.shape
    assert decodes - 1 >= 20 and (contexts - 1) * float(fitted[0].bucket) >= 900
    assert not any("beyond the table" in note for note in said["notes"])
    assert any(note.startswith("--adapt: left out (1): prefill_tokens") for note in said["notes"])
    assert not any("interval of kernels" in note or "counted from" in note for note in said["notes"])


def test_two_clocks_are_said(cli, fitted: list[StepTimeTable], own_folder: Path, parse_json) -> None:
    """When the client sent a request, and when the engine queued it."""
    (own_folder / "few.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,9,3\n1,9,3\n")
    rows = [f"{index / 1000},60,3,{1 + index},{2 + index}\n" for index in range(20)]
    (own_folder / "log.csv").write_text(LOG.replace("arrived_at", "queued_at") + "".join(rows))
    asked = ("simulate", "few.csv", "--settings", "s.json", "--adapt", "log.csv", "-o", "out.csv", "--json")
    (note,) = (each for each in parse_json(cli(*asked).stdout)["notes"] if "counted from" in each)
    assert note.startswith("--adapt: its requests are counted from queued_at, those of the simulation from arrived_at")


@pytest.mark.usefixtures("fitted")
def test_attention_in_one_kernel_is_not_fitted_to_a_log(refuse, own_folder: Path) -> None:
    (own_folder / "few.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,9,3\n1,9,3\n")
    rows = [f"{index / 1000},60,3,{1 + index},{2 + index}\n" for index in range(20)]
    (own_folder / "log.csv").write_text(LOG + "".join(rows))
    asked = ("simulate", "few.csv", "--settings", "s.json", "-o", "out.csv", "--adapt", "log.csv", "--fused-attention")
    assert "does not go with --fused-attention" in refuse(*asked)
