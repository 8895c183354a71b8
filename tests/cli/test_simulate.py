"""`jaxperf simulate`: the same rows in the same order with their times."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from jaxperf.cli.simulate_said import backlog_notes, span_words
from tests.cli.simulate_case import REQUESTS, SETTINGS, step_time_arrays, write_case


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    return step_time_arrays()


@pytest.fixture
def files(own_folder: Path, arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
    return write_case(own_folder, arrays)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_rows_come_back_with_their_times(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    paid = ("--price", "a100=1.5", "--electricity", "0.1")
    result = cli("simulate", *files, "-o", "out.csv", "--json", "--slo", "ttft=1s,e2e=10ms", *paid)
    assert result.exit_code == 0, result.output
    rows = rows_of(own_folder / "out.csv")
    header = [*REQUESTS.split("\n")[0].split(","), "scheduled_at", "first_token_at", "completed_at", "num_restarts"]
    assert list(rows[0]) == [*header, "reason"]
    assert [row["note"] for row in rows] == ["a, b", "late", "none", "huge", "last"]
    assert rows[0]["arrived_at"] == "0.010"
    # GPT-2 has 12 layers, so 50 tokens, rounded up to 56, take 56 x 10 us x 12 and a decode 8 x 10 us x 12.
    prefill, decode = 56 * 120e-6, 8 * 120e-6
    assert float(rows[1]["first_token_at"]) == pytest.approx(prefill)
    assert float(rows[1]["completed_at"]) == pytest.approx(prefill + decode)
    start = max(0.010, prefill + decode)
    assert float(rows[0]["scheduled_at"]) == pytest.approx(start)
    assert float(rows[0]["completed_at"]) == pytest.approx(start + 104 * 120e-6 + 2 * decode)
    assert float(rows[4]["completed_at"]) == pytest.approx(9.0 + 24 * 120e-6)
    assert [bool(row["completed_at"]) for row in rows] == [True, True, False, False, True]
    assert 'prefill_tokens: "0"' in rows[2]["reason"] and "never admitted" in rows[3]["reason"]
    assert "57 blocks of 16 tokens for its prompt, num_blocks is 40" in rows[3]["reason"]
    said = parse_json(result.stdout)
    assert said["rows"] == 5 and said["completed"] == 3 and said["preemptions"] == 0
    assert said["goodput"]["share"] == pytest.approx(2 / 4)
    assert [entry["rows"] for entry in said["without_times"]] == [1, 1]
    hours = 1e6 / said["output_tokens_per_second"] / 3600.0
    assert said["kwh_per_million_tokens"] == pytest.approx(0.4 * hours)  # of 400 W
    assert said["dollars_per_million_tokens"] == pytest.approx(1.5 * hours + 0.1 * said["kwh_per_million_tokens"])
    assert "energy: uncalibrated" in said["notes"][-1]


def test_energy_of_a_device_that_is_not_known_is_not_told(cli, files: tuple[str, ...], own_folder: Path) -> None:
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "device": "some cluster"}))
    result = cli("simulate", *files, "-o", "out.csv")
    assert result.exit_code == 0 and "kWh" not in result.stdout
    result = cli("simulate", *files, "-o", "out.csv", "--price", "a100=2")
    assert result.exit_code == 2 and "no device that is known" in result.stderr


def test_options_that_do_not_change_a_table_of_step_times_are_said(cli, refuse, files, parse_json) -> None:
    asked = ("simulate", *files, "-o", "out.csv", "--json")
    notes = {}
    for options in (
        (),
        ("--fused-attention",),
        ("--device", "h100", "--weights", "fp8"),
        ("--kv-cache", "fp8", "--params", "mine"),
    ):
        notes[options[::2]] = parse_json(cli(*asked, *options).stdout)["notes"]
    said = {names: [note for note in each if "whatever" in note] for names, each in notes.items()}
    assert said.pop(()) == []
    for names, each in said.items():
        assert each == [f"step times are those of t.npz, whatever {' and '.join(names)} say"]
    assert "h1000" in refuse(*asked[:-1], "--device", "h1000")


def test_numbers_of_a_csv_are_numbers_in_parquet(cli, files: tuple[str, ...], own_folder: Path) -> None:
    import pyarrow.parquet as pq

    assert cli("simulate", *files, "-o", "out.parquet").exit_code == 0
    columns = pq.read_table(own_folder / "out.parquet").to_pydict()
    assert columns["arrived_at"][0] == 0.01 and columns["prefill_tokens"][0] == 100 and columns["note"][0] == "a, b"


def test_columns_of_another_simulator_give_way_and_are_compared(cli, files: tuple[str, ...], own_folder: Path) -> None:
    assert cli("simulate", *files, "-o", "reference.csv").exit_code == 0
    result = cli("simulate", "reference.csv", *files[1:], "-o", "again.parquet")
    assert result.exit_code == 0
    assert "completed_at of the file: 3 of 3 within 1 us" in result.stdout
    result = cli("simulate", "reference.csv", *files[1:], "-o", "again.csv", "--quiet")
    assert rows_of(own_folder / "again.csv") == rows_of(own_folder / "reference.csv")
    assert "step times" not in result.stdout


def test_vidurs_name_of_the_first_token_is_filled_where_the_file_has_it(cli, files, own_folder: Path) -> None:
    (own_folder / "requests.csv").write_text(
        "arrived_at,prefill_tokens,decode_tokens,prefill_completed_at\n0,50,2,\n1,50,2,1.5\n"
    )
    result = cli("simulate", *files, "-o", "out.csv")
    assert "prefill_completed_at of the file: 0 of 1 within 1 us" in result.stdout
    for row in rows_of(own_folder / "out.csv"):
        assert row["prefill_completed_at"] == row["first_token_at"] != ""


def test_our_own_model_is_the_default(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    result = cli("simulate", *files[:3], "-o", "out.csv", "--json", "--device", "h100-sxm", "--weights", "fp4")
    assert result.exit_code == 0, result.output
    said = parse_json(result.stdout)
    assert said["step_time"] == "our model of gpt2 on 1 x h100-sxm (TP1)"
    assert "no fp4 units, multiplied in bf16: h100-sxm" in said["notes"]
    first = rows_of(own_folder / "out.csv")[1]
    assert 1e-4 < float(first["first_token_at"]) < float(first["completed_at"]) < 0.1


def test_all_devices_of_a_replica_are_counted(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,9,2\n")
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "device": "h100-sxm", "tp": 4, "pp": 2}))
    said = parse_json(cli("simulate", *files[:3], "-o", "out.csv", "--json").stdout)
    assert said["step_time"] == "our model of gpt2 on 8 x h100-sxm (TP4 PP2)"


@pytest.mark.long
def test_one_prompt_has_the_interval_of_estimate(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    """And what is told of every number lies in its interval; steps from a table have none."""
    (own_folder / "one.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,512,9\n")
    served = ("--settings", "s.json", "-o", "out.csv", "--json")
    said = parse_json(cli("simulate", "one.csv", *served, "--slo", "ttft=1s").stdout)
    point = ("--prompt", "512", "--output", "9", "--batch", "1", "--json")
    estimated = parse_json(cli("estimate", "gpt2", "--device", "a100", *point).stdout)
    assert estimated["provenance"]["efficiencies"] in said["notes"]
    ends = [estimated["metrics"][f"ttft_{end}"] for end in ("lower", "upper")]
    assert said["intervals"]["latency_s"]["ttft"]["mean"] == pytest.approx(ends, rel=1e-12)
    for name, spans in said["intervals"]["latency_s"].items():
        for statistic, (lower, upper) in spans.items():
            assert lower <= said["latency_s"][name][statistic] <= upper
    lower, upper = said["intervals"]["output_tokens_per_second"]
    assert lower < said["output_tokens_per_second"] < upper
    printed = cli("simulate", "one.csv", *served[:-1]).stdout
    assert span_words(ends, 1e3) in printed
    assert "intervals" not in parse_json(cli("simulate", "one.csv", *served, "--step-time", "t.npz").stdout)


@pytest.mark.long
def test_no_replica_is_more_than_busy(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    """One request outgrows the cache after the others are done; a replica that gets no request is idle."""
    (own_folder / "requests.csv").write_text(
        "arrived_at,prefill_tokens,decode_tokens\n0,100,5\n0,600,9\n0.001,100,500\n"
    )
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "num_blocks": 38}))
    said = {}
    for replicas in ("1", "8"):
        for routing in ("round_robin", "least_outstanding"):
            more = ("-o", "out.csv", "--json", "--replicas", replicas, "--routing", routing)
            said[replicas, routing] = parse_json(cli("simulate", *files, *more).stdout)
    for found in said.values():
        assert 0.0 < found["utilization"] <= 1.0
    assert said["8", "round_robin"]["utilization"] == pytest.approx(said["8", "least_outstanding"]["utilization"])
    last = rows_of(own_folder / "out.csv")[-1]
    assert float(last["first_token_at"]) > 0.0 and last["completed_at"] == ""
    assert last["reason"] == "not completed: it outgrew the cache of an empty replica"


def test_a_request_longer_than_the_context_is_no_request(cli, files, own_folder: Path) -> None:
    """GPT-2 has 1,024 positions."""
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,1000,25\n0,1000,24\n")
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "num_blocks": 80, "sched": "vllm_v1"}))
    assert cli("simulate", *files, "-o", "out.csv").exit_code == 0
    first, second = rows_of(own_folder / "out.csv")
    assert first["reason"] == "longer than the model's context of 1,024 tokens" and first["scheduled_at"] == ""
    assert second["reason"] == "" and float(second["completed_at"]) > 0.0
    (own_folder / "agents.json").write_text(
        json.dumps(
            {
                **{"kind": "agents", "count": 2, "seed": 1, "arrivals": {"kind": "even", "rate": 1.0}},
                **{"prompt": {"kind": "fixed", "value": 300}, "output": {"kind": "fixed", "value": 100}},
                "turns": {"kind": "fixed", "value": 4},
            }
        )
    )
    assert cli("simulate", "agents.json", *files[1:], "-o", "out.csv").exit_code == 0
    ended = [bool(row["completed_at"]) for row in rows_of(own_folder / "out.csv")]
    assert ended == [True, True, False, False] * 2


def test_a_question_counts_from_when_it_was_asked(cli, files, own_folder: Path, parse_json) -> None:
    plain = {"count": 4, "arrivals": {"kind": "even", "rate": 0.1}}
    lengths = {name: {"kind": "fixed", "value": 8} for name in ("prompt", "output", "document")}
    embed = {"time": {"kind": "fixed", "mean": 2.0}}
    (own_folder / "w.json").write_text(json.dumps({**plain, **lengths, "kind": "rag", "embed": embed}))
    said = parse_json(cli("simulate", "w.json", *files[1:], "-o", "out.csv", "--json", "--slo", "ttft=2s").stdout)
    assert said["latency_s"]["ttft"]["mean"] > 2.0 > 1.0 > said["latency_s"]["queueing"]["mean"]
    assert said["goodput"]["share"] == 0.0


def test_two_replicas_take_turns_and_a_client_may_wait(cli, files: tuple[str, ...], own_folder: Path) -> None:
    assert cli("simulate", *files, "-o", "out.csv", "--replicas", "2", "--concurrency", "1").exit_code == 0
    rows = rows_of(own_folder / "out.csv")
    # In order of arrival: rows 1 and 3 on the first replica, rows 0 and 4 on the second.
    assert float(rows[0]["scheduled_at"]) == 0.010 and float(rows[0]["sent_at"]) == 0.010
    assert float(rows[4]["scheduled_at"]) == 9.0


def test_a_workload_is_drawn(cli, files: tuple[str, ...], own_folder: Path) -> None:
    length = {"kind": "fixed", "value": 20}
    workload = {"count": 4, "arrivals": {"kind": "even", "rate": 10.0}, "prompt": length, "output": length}
    (own_folder / "w.json").write_text(json.dumps(workload))
    assert cli("simulate", "w.json", *files[1:], "-o", "out.csv").exit_code == 0
    assert [row["arrived_at"] for row in rows_of(own_folder / "out.csv")] == [
        "0.0",
        "0.1",
        "0.2",
        "0.30000000000000004",
    ]


def test_a_queue_that_grows_is_said(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    """A prompt of 200 tokens takes 24 ms here: 10 a second are served in time, 80 are not."""
    length = {"prompt": {"kind": "fixed", "value": 200}, "output": {"kind": "fixed", "value": 1}}
    found = {}
    for name, arrivals in (
        ("slow", {"kind": "even", "rate": 10.0}),
        ("fast", {"kind": "even", "rate": 80.0}),
        ("burst", {"kind": "burst"}),
    ):
        (own_folder / "w.json").write_text(json.dumps({"count": 100, "arrivals": arrivals, **length}))
        notes = parse_json(cli("simulate", "w.json", *files[1:], "-o", "out.csv", "--json").stdout)["notes"]
        found[name] = [note for note in notes if "of the rate at which they come" in note]
    assert found["slow"] == found["burst"] == [] and len(found["fast"]) == 1
    assert "completed at 5" in found["fast"][0], "41.7 of 80 requests/s"


def test_a_long_output_at_the_end_is_no_queue() -> None:
    """Each request is served alone at once; the last ones have a hundred times the tokens."""
    arrived, output = np.arange(20.0), np.where(np.arange(20) < 15, 2, 200)
    requests = {"arrived": arrived, "scheduled": arrived, "first_token": arrived + 0.1, "prompt": np.full(20, 10)}
    requests |= {"output": output, "completed": arrived + 0.1 + (output - 1) * 0.1}
    assert backlog_notes(requests) == []
    late = np.arange(20) * 2.0
    behind = {name: times + late for name, times in requests.items() if name not in ("arrived", "prompt", "output")}
    assert len(backlog_notes({**requests, **behind})) == 1


def test_step_times_are_fitted_to_a_log(cli, files: tuple[str, ...], own_folder: Path, arrays, parse_json) -> None:
    """The log is of an engine twice as slow, which got most of every third prompt from elsewhere."""
    rows = [f"{index / 100},{60 - index},{10 + index},{59 - index if index % 3 == 0 else 0}" for index in range(30)]
    header = "arrived_at,prefill_tokens,decode_tokens,prefilled_tokens"
    (own_folder / "w.csv").write_text("\n".join([header, *rows]))
    np.savez(own_folder / "slow.npz", **{**arrays, "mlp_up_proj": 2.0 * arrays["mlp_up_proj"]})
    slow = ("w.csv", *files[1:3], "--step-time", "slow.npz")
    assert cli("simulate", *slow, "-o", "log.csv").exit_code == 0
    said = parse_json(cli("simulate", "log.csv", *files[1:], "-o", "out.csv", "--adapt", "log.csv", "--json").stdout)
    before = parse_json(cli("simulate", "log.csv", *files[1:], "-o", "out.csv", "--json").stdout)
    assert "fitted to 30 requests of log.csv" in said["step_time"] and "intervals" not in said
    for fitted, plain in zip(said["agreement"], before["agreement"], strict=True):
        assert fitted["mean_s"] < 0.05 * plain["mean_s"]


def test_a_log_without_times_is_refused(refuse, files: tuple[str, ...], own_folder: Path) -> None:
    said = refuse("simulate", *files, "-o", "out.csv", "--adapt", "requests.csv")
    assert "--adapt: requests.csv: only 0 requests of the log have both times" in said
    dated = "arrived_at,prefill_tokens,decode_tokens,completed_at\n0,9,2,2024-03-01 10:00\n"
    (own_folder / "dated.csv").write_text(dated)
    said = refuse("simulate", *files, "-o", "out.csv", "--adapt", "dated.csv")
    assert "both times" in said and '"2024-03-01 10:00" is a date, but arrivals are numbers' in said


def test_a_prompt_that_is_cached_is_not_computed_again(cli, files: tuple[str, ...], own_folder: Path) -> None:
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"sched": "vllm_v1", "tokens_per_hash": 32}))
    rows = [{"arrived_at": float(i), "prefill_tokens": 80, "decode_tokens": 1, "hash_ids": [1, 2]} for i in range(2)]
    (own_folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert cli("simulate", "t.jsonl", *files[1:], "-o", "out.csv").exit_code == 0
    first, second = rows_of(own_folder / "out.csv")
    # GPT-2 has 12 layers of 10 us a token; 64 of the second prompt's 80 tokens are in the cache.
    assert float(first["first_token_at"]) == pytest.approx(80 * 120e-6)
    assert float(second["first_token_at"]) - 1.0 == pytest.approx(16 * 120e-6)


def test_swapped_requests_wait_for_their_copies(cli, files: tuple[str, ...], own_folder: Path) -> None:
    """Two requests of two blocks each in a cache of four: the second goes out and, when the first has ended, in."""
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,31,9\n0,31,9\n")
    done = {}
    for bandwidth in (1e6, 1e15):
        swap = {"preemption": "swap", "swap_blocks": 4, "swap_bandwidth": bandwidth, "block_bytes": 1e3}
        (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"num_blocks": 4, "watermark_blocks": 0} | swap))
        assert cli("simulate", *files, "-o", "out.csv").exit_code == 0
        rows = rows_of(own_folder / "out.csv")
        assert [(row["num_swaps"], row["num_restarts"]) for row in rows] == [("0", "0"), ("1", "0")]
        done[bandwidth] = [float(row["completed_at"]) for row in rows]
    # A prefill of 62 tokens, rounded up to 64, then eight decodes each; a millisecond for each of two blocks, twice.
    ends = [(64 + 8 * 8) * 120e-6, (64 + 16 * 8) * 120e-6]
    assert done[1e15] == pytest.approx(ends)
    assert done[1e6] == pytest.approx([ends[0] + 2e-3, ends[1] + 4e-3])


def test_an_urgent_request_is_next(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    rows = "0,50,3,0\n0.001,50,3,5\n0.002,50,3,-1\n0.002,50,3,x\n"
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens,priority\n" + rows)
    order = {}
    for policy in ("fcfs", "priority"):
        queue = {"sched": "vllm_v1", "batch_size_cap": 1, "scheduling_policy": policy}
        (own_folder / "s.json").write_text(json.dumps(SETTINGS | queue))
        said = parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)
        assert any("the column priority is not used" in note for note in said["notes"]) == (policy == "fcfs")
        cells = rows_of(own_folder / "out.csv")
        assert 'priority: "x"' in cells[3]["reason"]
        order[policy] = sorted(range(3), key=lambda row, cells=cells: float(cells[row]["scheduled_at"]))
    assert order == {"fcfs": [0, 1, 2], "priority": [0, 2, 1]}


def test_a_prompt_computed_elsewhere_is_decoded_at_once(cli, files, own_folder: Path, parse_json) -> None:
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens,prefilled_tokens\n1,100,3,100\n")
    said = parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)
    (row,) = rows_of(own_folder / "out.csv")
    assert (row["scheduled_at"], row["first_token_at"]) == ("1.0", "1.0")
    assert float(row["completed_at"]) == pytest.approx(1.0 + 2 * 8 * 120e-6)
    assert said["latency_s"]["prefill"]["mean"] is None and said["latency_s"]["ttft"]["mean"] is None


def test_two_stages_are_half_as_busy_with_one_request(
    cli, files: tuple[str, ...], own_folder: Path, parse_json
) -> None:
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,96,5\n")
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"pp": 2}))
    said = parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)
    assert said["utilization"] == pytest.approx(0.5)
    assert said["latency_s"]["e2e"]["mean"] == pytest.approx((96 + 4 * 8) * 120e-6)
    assert said["latency_s"]["itl"]["mean"] is None


def test_blocks_that_are_not_stated_are_counted_from_the_memory(cli, files, own_folder: Path, parse_json) -> None:
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"num_blocks": None}))
    said = parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)
    (note,) = [note for note in said["notes"] if "num_blocks is" in note]
    assert f"{said['settings']['blocks']:,}" in note and "0.9 of the memory used" in note
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"num_blocks": None, "gpu_memory_utilization": 0.45}))
    less = parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)
    assert less["settings"]["blocks"] < 0.5 * said["settings"]["blocks"]


def test_blocks_that_are_stated_are_held_against_the_memory(cli, refuse, files, own_folder: Path, parse_json) -> None:
    """138 GB of weights do not fit on 80 GB however few blocks there are; of a table of step times no one can know."""
    asked = ("simulate", "requests.csv", "--settings", "s.json", "-o", "out.csv")
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"model": "llama-2-70b", "num_blocks": 1000}))
    assert "s.json: no memory is left for a block of KV cache: 80 GB of memory, 138" in refuse(*asked)
    (own_folder / "s.json").write_text(json.dumps(SETTINGS | {"num_blocks": 10**6}))
    said = parse_json(cli(*asked, "--json").stdout)
    (note,) = [note for note in said["notes"] if "there is room for" in note]
    assert note.startswith("num_blocks is 1,000,000, but there is room for") and said["settings"]["blocks"] == 10**6
    assert not [
        note
        for note in parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)["notes"]
        if "room" in note
    ]
    (own_folder / "s.json").write_text(json.dumps(SETTINGS))
    assert not [note for note in parse_json(cli(*asked, "--json").stdout)["notes"] if "room" in note]


def test_nothing_that_can_run_is_exit_code_three(cli, files: tuple[str, ...], own_folder: Path) -> None:
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,-1,2\n0,900,2\n")
    assert cli("simulate", *files, "-o", "out.csv").exit_code == 3
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n0,-1,2\n")
    assert cli("simulate", *files, "-o", "out.csv").exit_code == 3
    assert 'prefill_tokens: "-1"' in rows_of(own_folder / "out.csv")[0]["reason"]


def test_steps_of_pools_beyond_the_table_are_said(cli, files: tuple[str, ...], own_folder: Path, parse_json) -> None:
    """Six decodes at once, of a table of four; no prefill is beyond it."""
    (own_folder / "requests.csv").write_text("arrived_at,prefill_tokens,decode_tokens\n" + "0,9,5\n" * 6)
    pools = {"prefill": {}, "decode": {"batch_size_cap": 8}}
    (own_folder / "s.json").write_text(json.dumps({**SETTINGS, "batch_size_cap": 4, "pools": pools}))
    notes = parse_json(cli("simulate", *files, "-o", "out.csv", "--json").stdout)["notes"]
    said = [note for note in notes if "beyond the table" in note]
    assert len(said) == 1 and said[0].startswith("decode: ")
