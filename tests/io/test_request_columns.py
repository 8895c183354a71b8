"""Columns of requests: none that would change the answer is passed over unsaid."""

from __future__ import annotations

from pathlib import Path

from jaxperf.cli.logged import replaced_notes
from jaxperf.io.request_traces import read_requests

HEADER = "arrived_at,prefill_tokens,decode_tokens"


def _read(folder: Path, text: str):
    (folder / "requests.csv").write_bytes(text.encode())
    return read_requests(folder / "requests.csv")


def test_two_columns_of_one_meaning_are_said(tmp_path: Path) -> None:
    trace = _read(tmp_path, f"{HEADER},output_tokens\n0,8,4,\n1,8,4,5\n")
    assert trace.output.tolist() == [4, 4]
    assert trace.notes == ("the column 'output_tokens' is not read where 'decode_tokens' says something else",)
    assert _read(tmp_path, f"{HEADER},output_tokens\n0,8,4,4.0\n1,8,4,\n").notes == ()


def test_traces_of_splitwise_are_read_and_their_batches_said(tmp_path: Path) -> None:
    header = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    trace = _read(tmp_path, f"{header}0,2,0,0.25,1,374,44\n1,2,0,0.5,1,396,109\n")
    assert trace.arrived.tolist() == [0.25, 0.5] and trace.notes == ()
    assert (trace.prompt.tolist(), trace.output.tolist()) == ([374, 396], [44, 109])
    batched = _read(tmp_path, f"{header}0,2,0,0.25,1,374,44\n1,2,0,0.5,4,396,109\n")
    assert batched.notes == ("the column 'batch_size' is not read: a row is one request",)


def test_a_misspelled_column_is_said(tmp_path: Path) -> None:
    trace = _read(tmp_path, f"{HEADER},priorty,request_id\n0,8,4,1,a\n")
    assert trace.notes == ("the column 'priorty' is not read. Did you mean priority?",)


def test_columns_that_give_way_are_said(tmp_path: Path) -> None:
    trace = _read(tmp_path, f"{HEADER},reason,scheduled_at,origin\n0,8,4,urgent,3,x\n")
    (note,) = replaced_notes(trace, {"scheduled_at": [0.0], "completed_at": [1.0], "reason": [""]})
    assert note == "the file has columns of the answer's names, which give way to these: reason, scheduled_at"
    assert replaced_notes(trace, {"completed_at": [1.0]}) == []


def test_lines_may_end_as_in_old_spreadsheets(tmp_path: Path) -> None:
    trace = _read(tmp_path, f"{HEADER}\r0,8,4\r1,8,5\r")
    assert trace.output.tolist() == [4, 5]
