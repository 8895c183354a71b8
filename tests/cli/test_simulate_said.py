"""What `jaxperf simulate` says of its cells: agreement with a log, reasons, intervals; nothing is simulated here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxperf.cli.logged import Cells, uncompared_notes
from jaxperf.cli.simulate_said import NEVER, prefix_notes, print_simulated, reservation_notes, span_words, summary
from jaxperf.io.request_traces import RequestTrace, read_requests
from jaxperf.serving.simulator.settings import parse_scheduler

LOG = "arrived_at,prefill_tokens,decode_tokens,first_token_at,completed_at\n"


def log_of(folder: Path, rows: str) -> RequestTrace:
    path = folder / "log.csv"
    path.write_text(LOG + rows)
    return read_requests(path)


def cells_at(first: list[float | None], last: list[float | None]) -> Cells:
    nowhere: list[Any] = [None] * len(first)
    return {"scheduled_at": nowhere, "first_token_at": first, "completed_at": last, "reason": [""] * len(first)}


def printed(said: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    print_simulated({**said, "scheduler": "vllm", "step_time": "", "notes": [], "out": "out.csv"}, quiet=True)
    return capsys.readouterr().out


def test_rows_without_an_answer_are_left_out_of_the_agreement(tmp_path: Path, capsys) -> None:
    trace = log_of(tmp_path, "0,9,3,0.1,0.2\n1,900,3,1.1,1.2\n2,9,3,2.1,\n")
    said = summary(trace, cells_at([0.1, None, 2.4], [None, None, 2.5]))
    first, last = said["agreement"]
    assert (first["rows"], first["left_out"], first["within_1us"]) == (2, 1, 1)
    assert (first["mean_s"], first["largest_s"]) == pytest.approx((0.15, 0.3))
    assert (last["rows"], last["left_out"], last["mean_s"]) == (0, 2, None)
    text = printed(said, capsys)
    assert "first_token_at of the file: 1 of 2 within 1 us, distance 0.15 s in the mean, 0.3 s at most, 1 left" in text
    assert "completed_at of the file: 0 of 0 within 1 us, 2 left out, without a time here" in text


def test_a_log_of_dates_is_compared(tmp_path: Path) -> None:
    day = "2024-03-01 10:00:"
    trace = log_of(tmp_path, f"{day}01,9,3,{day}01.500,{day}04\n{day}03,9,3,{day}03.500,{day}05\n")
    first, last = summary(trace, cells_at([0.5, 2.5], [3.0, 4.5]))["agreement"]
    assert (first["rows"], first["within_1us"]) == (2, 2)
    assert (last["rows"], last["within_1us"], last["largest_s"]) == (2, 1, pytest.approx(0.5))


def test_what_is_no_time_beside_arrivals_is_said(tmp_path: Path) -> None:
    """Cells that are empty say nothing."""
    dated = log_of(tmp_path, "0,9,3,0.1,2024-03-01 10:00:04\n1,9,3,soon,2024-03-01 10:00:05\n2,9,3,,nan\n")
    last, first = uncompared_notes(dated)
    assert last == (
        'completed_at is not compared: "2024-03-01 10:00:04" is a date, but arrivals are numbers (2 such cells)'
    )
    assert first == 'first_token_at is not compared: "soon" is no time (1 such cells)'
    assert uncompared_notes(log_of(tmp_path, "0,9,3,0.1,0.2\n1,900,3,,nan\n")) == []


def test_a_column_without_a_name_has_no_times(tmp_path: Path) -> None:
    """As pandas writes the index of its rows."""
    path = tmp_path / "log.csv"
    path.write_text(",arrived_at,prefill_tokens,decode_tokens\n0,0,9,3\n1,1,9,3\n")
    assert summary(read_requests(path), cells_at([0.5, 2.5], [3.0, 4.5]))["agreement"] == []


def test_requests_that_are_never_admitted_are_one_line(tmp_path: Path) -> None:
    """Each row has its own numbers; thousands of them are counted together."""
    trace = log_of(tmp_path, "0,9,3,,\n1,9,3,,\n2,9,3,,\n3,9,3,,\n")
    cells = cells_at([None] * 4, [None] * 4)
    cells["reason"] = [f"{NEVER} (41 blocks)", "other", f"{NEVER} (42 blocks)", ""]
    told = [(entry["reason"], entry["rows"]) for entry in summary(trace, cells)["without_times"]]
    assert told == [(f"{NEVER} (41 blocks), and others like it", 2), ("other", 1)]
    cells["reason"][2] = f"{NEVER} (41 blocks)"
    assert summary(trace, cells)["without_times"][0]["reason"] == f"{NEVER} (41 blocks)"


def test_an_interval_that_is_not_known_is_one_dash() -> None:
    assert span_words([0.25, 0.5], 1e3) == "250 - 500"
    assert span_words([float("nan"), float("nan")], 1e3) == "-"


def test_requests_that_outgrow_what_is_reserved_are_said() -> None:
    """The last token of a request is never in the cache: here 64 fit, and 65 do not."""
    settings = {"sched": "orca", "num_blocks": 40, "max_blocks_per_seq": 4}
    orca, paged = (parse_scheduler({**settings, "sched": name}) for name in ("orca", "vllm"))
    assert reservation_notes(orca, np.array([64, 3])) == reservation_notes(paged, np.array([65])) == []
    (said,) = reservation_notes(orca, np.array([64, 65, 900]))
    assert said.startswith("2 requests outgrow the 64 tokens that max_blocks_per_seq reserves for each")


def test_prefixes_that_nobody_caches_or_states_are_said(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"arrived_at": 0, "prefill_tokens": 9, "decode_tokens": 3, "hash_ids": [1]}\n')
    hashed, plain = read_requests(path), log_of(tmp_path, "0,9,3,,\n")
    asked = {"sched": "vllm_v1", "num_blocks": 10, "enable_prefix_caching": True}
    for_v1, for_v0 = (parse_scheduler({"sched": name, "num_blocks": 10}) for name in ("vllm_v1", "vllm"))
    (vain,) = prefix_notes({}, for_v0, hashed)
    assert vain == "the column hash_ids is not used: vllm caches no prefixes, as vllm_v1 does"
    (open_,) = prefix_notes(asked, for_v1, plain)
    assert "there are no hash_ids" in open_
    assert prefix_notes(asked, for_v1, hashed, "prefix_aware") == prefix_notes({}, for_v0, plain) == []
    (routed,) = prefix_notes({}, for_v1, plain, "prefix_aware")
    assert routed == "routing prefix_aware is as least_outstanding: no prefixes are cached"
