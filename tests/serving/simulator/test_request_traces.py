"""Traces as people have them: names, formats, dates, order; rows that are no requests; workloads drawn from a seed."""

from __future__ import annotations

import gzip
import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hwspecs.errors import InputError
from jaxperf.io.request_traces import read_requests
from jaxperf.serving.simulator.paths import prefix_paths
from jaxperf.serving.simulator.workloads import draw_requests, round_robin

HEAD = "req,arrived_at,prefill_tokens,decode_tokens\n"


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_rows_are_simulated_in_order_of_arrival_and_ties_stay(tmp_path: Path, name: str) -> None:
    trace = read_requests(written(tmp_path, HEAD + "a,2.5,10,1\nb,0.5,20,2\nc,2.5,30,3\n", name))
    assert trace.row.tolist() == [1, 0, 2] and trace.prompt.tolist() == [20, 10, 30]
    assert [row["req"] for row in trace.rows] == ["a", "b", "c"]
    assert "1 rows arrive before the row above" in trace.notes[0]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_cells_may_be_separated_as_spreadsheets_do(tmp_path: Path, delimiter: str) -> None:
    text = (HEAD + "a,2.5,10,1\nb,0.5,20,2\n").replace(",", delimiter)
    assert read_requests(written(tmp_path, text)).prompt.tolist() == [20, 10]


@pytest.mark.parametrize("name", ["chats.jsonl", "chats.json"])
def test_conversations_are_prompts_and_outputs(tmp_path: Path, name: str) -> None:
    """As ShareGPT has them: the first two messages, four characters a token."""
    said = [{"from": "human", "value": "a" * 9}, {"from": "gpt", "value": "b" * 4}, {"from": "human", "value": "c"}]
    rows = [{"id": "x", "conversations": said}, {"conversations": said[:1]}, {"conversations": None}]
    text = "\n".join(map(json.dumps, rows)) if name.endswith("l") else json.dumps(rows)
    trace = read_requests(written(tmp_path, text, name))
    assert (trace.prompt.tolist(), trace.output.tolist(), trace.arrived.tolist()) == ([3], [1], [0.0])
    assert sorted(trace.reasons) == [1, 2] and "conversations" not in trace.rows[0]
    assert "4 characters" in trace.notes[0] and "all arrive at once" in trace.notes[1]


def test_separators_of_lines_within_texts_end_no_line(tmp_path: Path) -> None:
    """Texts of people have U+2028, U+0085 and the like, which JSON leaves as they are."""
    said = [{"value": "a\u2028b\x85c"}, {"value": "\u2029"}]
    text = "\r\n".join([json.dumps({"conversations": said}, ensure_ascii=False)] * 2)
    assert read_requests(written(tmp_path, text, "chats.jsonl")).prompt.tolist() == [2, 2]


def test_results_of_vllms_benchmark_are_requests_with_measured_times(tmp_path: Path) -> None:
    result = {"date": "now", "request_rate": 2.0, "input_lens": [10, 20, 30], "output_lens": [3, 1, 0]}
    timed = {"start_times": [105.0, 104.0, 106.0], "ttfts": [0.5, 0.25, None], "itls": [[0.1, 0.2], [], []]}
    trace = read_requests(written(tmp_path, json.dumps(result | timed), "r.json"))
    assert trace.arrived.tolist() == [0.0, 1.0] and trace.prompt.tolist() == [20, 10] and list(trace.reasons) == [2]
    assert trace.rows[0]["first_token_at"] == 1.5 and trace.rows[0]["completed_at"] == pytest.approx(1.8)
    at_once = read_requests(written(tmp_path, json.dumps(result | {"request_rate": "inf"}), "r.json"))
    assert at_once.arrived.tolist() == [0.0, 0.0]
    for wrong, words in ((result, "no start_times"), (result | {"output_lens": [3]}, "output_lens 1")):
        with pytest.raises(InputError, match=words):
            read_requests(written(tmp_path, json.dumps(wrong), "r.json"))


def test_rows_that_are_no_requests_are_left_out_with_the_reason(tmp_path: Path) -> None:
    rows = "1,0,10,1\n2,,10,1\n3,-1,10,1\n4,1,0,1\n5,1,10,-3\n6,1,1.5,1\n7,1,ten,1\n8,nan,10,1\n9,1,10,\n"
    trace = read_requests(written(tmp_path, HEAD + rows))
    assert trace.row.tolist() == [0] and sorted(trace.reasons) == list(range(1, 9))
    assert trace.reasons[3] == 'prefill_tokens: "0" is not a whole number of tokens from 1 to 16,777,216'
    assert 'arrived_at: "-1"' in trace.reasons[2] and 'decode_tokens: ""' in trace.reasons[8]


def test_dates_of_azure_and_milliseconds_of_mooncake(tmp_path: Path) -> None:
    azure = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    trace = read_requests(written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + azure))
    assert trace.arrived.tolist() == pytest.approx([0.0, 4.314579]) and trace.output.tolist() == [44, 109]
    mooncake = [
        {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]},
        {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2353]},
    ]
    trace = read_requests(written(tmp_path, "\n".join(map(json.dumps, mooncake)), "t.jsonl"))
    assert trace.arrived.tolist() == [27.482, 30.535] and trace.prompt.tolist() == [6955, 6472]
    assert trace.hashes == [[46, 47], [46, 2353]]


def test_dates_without_a_zone_are_of_utc_and_count_from_the_first_that_is_there(tmp_path: Path) -> None:
    rows = "1,,5,1\n2,2024-03-31 00:30:00,5,1\n3,2024-03-31 03:30:00+00:00,5,1\n4,9999-12-31,5,1\n"
    trace = read_requests(written(tmp_path, HEAD + rows))
    assert trace.arrived.tolist() == [0.0, 3 * 3600.0] and "dates" in trace.notes[0]
    assert "is not a time from 0 to 1e+10 s" in trace.reasons[3]


def test_other_times_of_a_row_are_on_the_clock_of_arrivals(tmp_path: Path) -> None:
    """Dates count from the first arrival, in whatever zone; what no clock is known of is no time."""
    head, lengths = "arrived_at,done,prefill_tokens,decode_tokens\n", ",5,1\n"
    moments = ["2024-03-31 00:30:01,2024-03-31 03:30:03+02:00", "2024-03-31 00:30:00,2.5", "2024-03-31 00:30:02,"]
    trace = read_requests(written(tmp_path, head + "".join(each + lengths for each in moments)))
    assert trace.arrived.tolist() == [0.0, 1.0, 2.0]
    assert trace.times("done").tolist() == pytest.approx([3603.0, 2.5, np.nan], nan_ok=True)
    trace = read_requests(written(tmp_path, head + "7,9.5" + lengths + "8,2024-03-31 00:30:01" + lengths))
    assert trace.times("done").tolist() == pytest.approx([9.5, np.nan], nan_ok=True)
    assert np.isnan(trace.times("absent")).all()


def test_numbers_beyond_all_doubles_are_no_requests(tmp_path: Path) -> None:
    row = '{"arrived_at": 0, "prefill_tokens": %s, "decode_tokens": 1}\n' % ("9" * 400)
    assert "prefill_tokens: 999" in read_requests(written(tmp_path, row, "t.jsonl")).reasons[0]


def test_hashes_in_text_and_those_that_are_none(tmp_path: Path) -> None:
    rows = '1,0,600,1,"[3, 4]"\n2,0,600,1,\n3,0,600,1,[3.5]\n4,0,600,1,3;4\n'
    trace = read_requests(written(tmp_path, HEAD.replace("\n", ",hash_ids\n") + rows))
    assert trace.hashes == [[3, 4], []] and sorted(trace.reasons) == [2, 3]
    assert trace.reasons[3] == 'hash_ids: "3;4" is not a list of whole numbers'


def test_paths_part_where_hashes_part_and_outputs_are_nobody_elses() -> None:
    hashes = [[1, 2, 3], [1, 2, 4], [5, 2]]
    paths = prefix_paths(hashes, np.array([20, 24, 12]), np.array([4, 1, 5]), 4, 8)
    assert paths.tolist() == [
        [0, 1, 2, 3, 4, 5],  # six blocks, the last of the output
        [0, 1, 2, 3, 6, 7],  # alike for two hashes of two blocks
        [8, 9, 10, 11, -1, -1],  # the same second hash after another first one is another node
    ]
    with pytest.raises(InputError, match="a hash stands for 10 tokens"):
        prefix_paths(hashes, np.array([20, 24, 12]), np.array([4, 1, 5]), 4, 10)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (HEAD, "t.csv", "has no requests"),
        ("", "t.csv", "is empty"),
        ("req,arrived,prefill_tokens,decode_tokens\n1,0,1,1\n", "t.csv", "no column arrived_at"),
        (HEAD + "1,0,1,1\n1,0,1,1\n", "t.csv", "rows 0 and 1 have the same req 1"),
        (HEAD + "1,0,1\n", "t.csv", "line 2 has 3 cells; the header has 4"),
        ("a,a\n1,1\n", "t.csv", "two columns have the same name"),
        ("{", "t.jsonl", "line 1 is not valid JSON"),
        ("[1]", "t.jsonl", "line 1 is not an object"),
        ('{"req": 1, "arrived_at": 0, "req": 2}', "t.jsonl", "line 1: the key 'req' is given twice"),
        ('{"req": "\\ud800"}', "t.jsonl", "line 1 has .ud800, half a character"),
        ("nonsense", "t.parquet", "not a Parquet file"),
        (HEAD, "t.txt", "must end in .csv"),
        ("[]", "t.json", "a workload is an object"),
        ('{"count": 0}', "t.json", "count is 0"),
        ('{"count": 1.5}', "t.json", "count is 1.5; it must be a whole number"),
        ("[" * 100_000, "t.jsonl", "brackets nest too deep"),
        ("9" * 5000, "t.json", "a number is too long"),
        (HEAD + "1,0,1,1\n2,2024-01-01 00:00:00,1,1\n", "t.csv", "1 arrivals are dates and 1 numbers"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, text: str, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_requests(written(tmp_path, text, name))


def test_a_broken_archive_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(InputError, match="Cannot read"):
        read_requests(tmp_path / "t.csv.gz")
    for name in ("absent.csv", "absent.parquet"):
        with pytest.raises(InputError, match="No such file"):
            read_requests(tmp_path / name)


WORKLOAD: dict[str, Any] = {
    "count": 4000,
    "seed": 7,
    "arrivals": {"kind": "poisson", "rate": 2.0},
    "prompt": {"kind": "lognormal", "mean": 500.0, "cv": 0.8},
    "output": {"kind": "uniform", "low": 10, "high": 20},
}


def test_a_workload_has_its_rate_and_lengths_and_its_seed_repeats_it() -> None:
    drawn, again, other = (draw_requests({**WORKLOAD, "seed": seed}) for seed in (7, 7, 8))
    assert np.array_equal(drawn.arrived, again.arrived) and not np.array_equal(drawn.arrived, other.arrived)
    assert np.diff(drawn.arrived).mean() == pytest.approx(0.5, rel=0.05)
    assert drawn.prompt.mean() == pytest.approx(500.0, rel=0.05)
    assert set(drawn.output.tolist()) == set(range(10, 21))


@pytest.mark.parametrize("cv", [0.5, 2.0])
def test_gamma_gaps_have_their_coefficient_of_variation(cv: float) -> None:
    drawn = draw_requests({**WORKLOAD, "arrivals": {"kind": "gamma", "rate": 2.0, "cv": cv}})
    gaps = np.diff(drawn.arrived)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)
    assert gaps.mean() == pytest.approx(0.5, rel=0.15)


def test_totals_divided_as_vidur_does(tmp_path: Path) -> None:
    total = {"kind": "uniform", "low": 128, "high": 512}
    described = {"count": 500, "arrivals": {"kind": "burst"}, "total": total, "prompt_to_output": 20}
    trace = read_requests(written(tmp_path, json.dumps(described), "w.json"))
    sums = trace.prompt + trace.output
    assert sums.min() >= 128 and sums.max() <= 512 and (trace.arrived == 0.0).all()
    assert (np.abs(trace.prompt / trace.output - 20.0) < 2.5).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrivals": {"kind": "poison", "rate": 1}}, "poisson"),
        ({"arrivals": {"kind": "poisson"}}, "rate is null"),
        ({"arrivals": {"kind": "burst", "rate": 1}}, "'rate' is no number of burst"),
        ({"prompt": {"kind": "uniform", "low": 5, "high": 4}}, "high is 4"),
        ({"prompt": 5}, "prompt is 5"),
        ({"total": {"kind": "fixed", "value": 9}, "prompt_to_output": 2.0}, "prompt means nothing beside total"),
        ({"prompt_to_output": 2.0}, "prompt_to_output means nothing without total"),
        ({"prompt": {"kind": "fixed", "value": 2.5}}, "value is 2.5; it must be a whole number"),
        ({"promt": 5}, "'promt' is no part of a workload. Did you mean prompt"),
    ],
)
def test_mistakes_in_a_workload(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        draw_requests({**WORKLOAD, **change})
    assert words in str(caught.value)


def test_replicas_take_requests_in_turn() -> None:
    drawn = draw_requests({**WORKLOAD, "count": 7})
    shares = round_robin(drawn, 3)
    assert [len(share.arrived) for share in shares] == [3, 2, 2]
    assert shares[1].prompt.tolist() == drawn.prompt[[1, 4]].tolist()
    assert len(round_robin(drawn, 10)) == 7


def test_what_a_conversation_states_is_not_guessed(tmp_path: Path) -> None:
    """Its tokens and times go before four characters a token and all at once, and then nothing is said of these."""
    said = [{"from": "human", "value": "a" * 9}, {"from": "gpt", "value": "b" * 4}]
    rows = [{"conversations": said, "prompt_tokens": 7, "output_tokens": 5, "arrival_time": time} for time in (0, 2)]
    trace = read_requests(written(tmp_path, "\n".join(map(json.dumps, rows)), "chats.jsonl"))
    assert (trace.prompt.tolist(), trace.output.tolist(), trace.arrived.tolist()) == ([7, 7], [5, 5], [0.0, 2.0])
    assert trace.notes == ()


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_as_pandas_writes_them_are_read_without_it(tmp_path: Path, zone: str | None) -> None:
    """Nanoseconds that are no whole microseconds: Azure's seventh digit."""
    dates = pa.array([1_700_158_546_680_590_100, 1_700_158_548_680_590_900, None], pa.timestamp("ns", zone))
    waits = pa.array([1, 2, 3], pa.duration("ns"))
    columns = {"arrived_at": dates, "prefill_tokens": [3, 4, 5], "decode_tokens": [5, 6, 7], "waited": waits}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    trace = read_requests(tmp_path / "t.parquet")
    assert trace.arrived.tolist() == [0.0, 2.0] and list(trace.reasons) == [2]
    assert type(trace.rows[0]["arrived_at"]) is datetime and type(trace.rows[0]["waited"]) is timedelta


def test_days_are_dates(tmp_path: Path) -> None:
    columns = {"arrived_at": [date(2024, 1, 1), date(2024, 1, 2)], "prefill_tokens": [3, 4], "decode_tokens": [5, 6]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_requests(tmp_path / "t.parquet").arrived.tolist() == [0.0, 86400.0]


def test_that_timestamps_are_milliseconds_is_said(tmp_path: Path) -> None:
    row = {"input_length": 3, "output_length": 4}
    numbers, dates = [{"Timestamp": 500, **row}], [{"Timestamp": "2023-11-16 18:15:46", **row}]
    for rows, said in ((numbers, "Timestamp counts milliseconds, as in Mooncake's traces"), (dates, "times are dates")):
        trace = read_requests(written(tmp_path, json.dumps(rows), "t.json"))
        assert len(trace.notes) == 1 and trace.notes[0].startswith(said)


@pytest.mark.parametrize(
    ("times", "arrived", "said"),
    [
        ([0, 0.5, 3], [0.0, 0.5, 3.0], "timestamp is taken to count seconds"),
        ([1700158546, 1700158549], [1700158546.0, 1700158549.0], "timestamp is taken to count seconds"),
        ([1700158546000, 1700158549000], [1700158546.0, 1700158549.0], "timestamp counts milliseconds"),
        ([0, 1700158549], [0.0, 1700158.549], "timestamp counts milliseconds"),
    ],
)
def test_timestamps_with_a_fraction_or_since_1970_are_seconds(tmp_path: Path, times, arrived, said: str) -> None:
    rows = [{"timestamp": time, "input_length": 3, "output_length": 4} for time in times]
    trace = read_requests(written(tmp_path, json.dumps(rows), "t.json"))
    assert trace.arrived.tolist() == pytest.approx(arrived, rel=1e-12) and trace.notes[0].startswith(said)
