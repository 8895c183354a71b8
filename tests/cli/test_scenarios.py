"""`jaxperf scenarios`: the list, one with its files, and commands that are commands; a handful are run and checked."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from jaxperf.cli.main import app
from jaxperf.io.scenarios import load_scenarios

SCENARIOS = load_scenarios()
COMMANDS = [(each.id, command) for each in SCENARIOS.values() for command in each.commands]


def test_the_list_has_every_scenario_once(cli, parse_json) -> None:
    text = cli("scenarios").stdout
    assert "40 scenarios, 40 answered" in text
    for scenario in SCENARIOS.values():
        (line,) = (line for line in text.splitlines() if line.strip().startswith(f"{scenario.id} "))
        assert scenario.name in line and (scenario.commands[0] if scenario.answered else scenario.lacks) in line
    rows = parse_json(cli("scenarios", "--json").stdout)
    assert [row["id"] for row in rows] == list(SCENARIOS)
    assert all(row["answered"] != bool(row["lacks"]) for row in rows)


def test_one_is_shown_with_its_files_and_its_check(cli, parse_json) -> None:
    text = cli("scenarios", "i2.2").stdout
    scenario = SCENARIOS["I2.2"]
    assert scenario.check in text and all(f"command  {command}" in text for command in scenario.commands)
    assert all(name in text and content in text for name, content in scenario.files.items())
    assert parse_json(cli("scenarios", "I2.2", "--json").stdout)["files"] == dict(scenario.files)


def test_files_go_where_they_are_asked(cli, refuse, own_folder: Path) -> None:
    text = cli("scenarios", "I2.1", "--write", "here").stdout
    assert sorted(path.name for path in (own_folder / "here").iterdir()) == ["chat.json", "vllm.json"]
    assert f"written  {Path('here') / 'chat.json'}" in text
    assert "is there already" in refuse("scenarios", "I2.1", "--write", "here")
    assert "give its ID" in refuse("scenarios", "--write", "here")
    assert "Did you mean" in refuse("scenarios", "I2.4")


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_a_command_is_one(name: str, command: str) -> None:
    """Every word is understood, down to the subcommand; nothing is run."""
    found, words = get_command(app), shlex.split(command)[1:]
    while hasattr(found, "commands"):
        found, words = found.commands[words[0]], words[1:]  # type: ignore[attr-defined]
    found.make_context(name, list(words))


def _run(cli, parse_json, name: str, place: int = 0) -> dict:
    """What a command of a scenario says as JSON, run in this folder, where its files are written."""
    for file, text in SCENARIOS[name].files.items():
        Path(file).write_text(text)
    result = cli(*shlex.split(SCENARIOS[name].commands[place])[1:], "--json")
    assert result.exit_code == 0, result.output
    return parse_json(result.stdout)


def test_one_request_obeys_its_bounds(cli, parse_json) -> None:
    metrics = _run(cli, parse_json, "I1.1")["metrics"]
    assert 2 * 6.74e9 * 2048 / 312e12 < metrics["ttft"] < 0.25
    assert 13.5e9 / 2.04e12 < metrics["tpot"] < 0.02


@pytest.mark.long
def test_engines_on_one_device_obey_their_bounds(cli, parse_json) -> None:
    rows = _run(cli, parse_json, "I4.1")["rows"]
    assert len(rows) == 8 and all(row["completed"] == 400 and row["reason"] == "" for row in rows)
    for row in rows:
        assert all(1.0 <= row[f"{phase}_step_slowdown"] <= 2.0 + 1e-9 for phase in ("prefill", "decode"))
    for way in ("time_slice", "mps", "mig"):
        own = [row for row in rows if row["sharing"] == way]
        assert sum(row["bandwidth_share"] for row in own) <= 1.0
        assert all(row["ttft_p99_s"] > alone["ttft_p99_s"] for row, alone in zip(own, rows, strict=False))


@pytest.mark.long
def test_iterations_of_reinforcement_learning_obey_their_checks(cli, parse_json) -> None:
    ppo, grpo = (_run(cli, parse_json, name) for name in ("E33", "E34"))
    assert ppo["generation_share"] > 0.5 and ppo["straggler_penalty"] == 0.0
    assert grpo["straggler_penalty"] > 0.2 < grpo["tail_share"] and grpo["longest_output"] == 16384
    assert grpo["iteration_s"] < sum(each["seconds"] for each in grpo["phases"].values())


@pytest.mark.long
def test_chunks_shorten_the_longest_gaps(cli, parse_json) -> None:
    chunked, whole = (_run(cli, parse_json, "I2.2", place)["latency_s"] for place in (0, 1))
    assert chunked["itl"]["p99"] < whole["itl"]["p99"] and chunked["ttft"]["mean"] > whole["ttft"]["mean"]


@pytest.mark.long
@pytest.mark.usefixtures("plain_jax")
def test_a_divided_video_obeys_its_check(cli, parse_json, own_folder: Path) -> None:
    small, whole, *divided, ring = _run(cli, parse_json, "E36")["answers"]
    tokens = 75_600 / 32_760
    assert tokens < (tokens + tokens**2) / 2 < whole["predicted_ms"] / small["predicted_ms"] < tokens**2
    speedup = [whole["predicted_ms"] / each["predicted_ms"] for each in divided]
    assert all(0.9 * ranks < found < ranks for found, ranks in zip(speedup, (2, 4, 8), strict=True))
    assert all(0.0 < each["exposed_communication_fraction"] < 0.05 for each in divided)
    assert divided[-1]["predicted_ms"] < ring["predicted_ms"] < 1.1 * divided[-1]["predicted_ms"]


@pytest.mark.usefixtures("plain_jax")
def test_training_steps_obey_their_checks(cli, own_folder: Path) -> None:
    rows = _training_rows(cli, own_folder)
    step = {name: [row["predicted_step_time_s"] for row in found] for name, found in rows.items()}
    (ring,) = rows["T1.1"]
    assert 2 * 7 / 8 * 708e6 / 300e9 < ring["communication_s"] < 0.2 * ring["predicted_step_time_s"]
    (sharded,) = rows["T1.2"]
    assert sharded["memory_bytes"] > 18 * 6.74e9 / 16 and sharded["feasible"] == "true"
    used = [row["mfu"] for row in rows["T1.3"]]
    assert used == sorted(used, reverse=True)
    assert all(row["hfu"] / row["mfu"] == pytest.approx(4 / 3, rel=0.01) for row in rows["T1.3"])
    assert 1.0 < step["T2.1"][1] / step["T2.1"][0] < 4.0
    split, plain = rows["T2.2"]
    assert (
        split["feasible"] == plain["feasible"] == "false"
        and 18 * 69e9 / 8 < split["memory_bytes"] < plain["memory_bytes"]
    )
    assert 0.08 < rows["T3.1"][0]["bubble_fraction"] < 7 / 71
    assert 0.005 < rows["T3.2"][0]["bubble_fraction"] < 7 / 1031 and 0.3 < rows["T3.2"][0]["mfu"] < 0.6
    assert 1.0 < step["T4.1"][1] / step["T4.1"][0] < 2.0
    assert 2 / 3 < step["T4.2"][0] / step["T4.2"][1] < 1.0
    ring, alone = rows["T4.3"]
    assert ring["communication_s"] > 3 * (2 * 3 * 8192 * 1280 * 2) * 40 * 16 / 50e9
    assert ring["memory_bytes"] < alone["memory_bytes"] and 1.0 < step["T4.3"][1] / step["T4.3"][0] < 4.0
    divided, whole = rows["T4.4"]
    assert divided["exposed_expert_s"] > 0.0 == whole["exposed_expert_s"]
    assert divided["memory_bytes"] < whole["memory_bytes"]


def _training_rows(cli, folder: Path) -> dict[str, list[dict]]:
    """The tables of all scenarios of `jaxperf train` as one, predicted; numbers as numbers."""
    tables = {
        each.id: list(csv.DictReader(io.StringIO(text)))
        for each in SCENARIOS.values()
        for text in each.files.values()
        if each.answered and each.commands[0].startswith("jaxperf train")
    }
    given = [{"scenario": name, **row} for name, rows in tables.items() for row in rows]
    columns = list(dict.fromkeys(column for row in given for column in row))
    with (folder / "all.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(given)
    assert cli("train", "all.csv", "-o", "out.csv").exit_code == 0
    found: dict[str, list[dict]] = {name: [] for name in tables}
    with (folder / "out.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found[row["scenario"]].append({name: _number(cell) for name, cell in row.items()})
    return found


def _number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def test_they_go_to_a_file(cli, refuse, own_folder: Path) -> None:
    assert cli("scenarios", "--quiet", "-o", "all.csv").exit_code == 0
    with (own_folder / "all.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(SCENARIOS)
    for name, row in rows.items():
        assert row["commands"].splitlines() == list(SCENARIOS[name].commands)
        assert row["files"] == ", ".join(SCENARIOS[name].files) and row["check"] == SCENARIOS[name].check
    assert "the ending must be one of" in refuse("scenarios", "-o", "all.txt")
