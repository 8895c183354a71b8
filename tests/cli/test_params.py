"""`--params`: one's own sustained rates in estimate, rank and sweep, and what is said of files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxperf.core.sustained_file import checksum, load_sustained_table

RANK = ("rank", "gpt2", "--devices", "h100-sxm", "--max-devices", "1", "--max-batch", "1")
COMMANDS = (("estimate", "gpt2", "--device", "h100-sxm"), RANK)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_named(cli, command: tuple[str, ...]) -> None:
    result = cli(*command, "--params", "nowhere")
    assert (
        result.exit_code == 2 and "nowhere.sustained.json" in result.stderr and "calibration.sustained" in result.stderr
    )


def test_a_missing_file_is_named_before_a_sweep_starts(cli, sweep_file, own_folder: Path) -> None:
    sweep_file(model="gpt2", task="decode", axes={"device": "h100-sxm"}, metrics=["tpot"])
    result = cli("sweep", "sweep.yaml", "-o", "rows.parquet", "--params", "nowhere")
    assert result.exit_code == 2 and result.stderr.startswith("jaxperf: Cannot read sustained rates 'nowhere.sustained")
    assert not (own_folder / "rows.parquet").exists()


def test_own_rates_change_the_answer_and_are_named(cli, own_folder: Path, parse_json) -> None:
    table = load_sustained_table()
    families = json.loads(json.dumps(table.families))
    row = families["gemm"]["classes"]["16-bit"]["devices"]["h100-sxm"]
    row["memory"], row["floor"] = row["memory"] / 4.0, row["floor"] * 4.0
    changed = {**table.card, "families": families, "power": dict(table.power)}
    Path("mine.sustained.json").write_text(json.dumps(changed | {"sha256": checksum(changed)}))
    question = ("estimate", "gpt2", "--device", "h100-sxm", "--prompt", "64", "--output", "8", "--weights", "bf16")
    shipped, own = (parse_json(cli(*question, "--json", *more).stdout) for more in ((), ("--params", "mine")))
    assert own["metrics"]["tpot"] > shipped["metrics"]["tpot"]
    assert own["provenance"]["parameters"] == "mine.sustained.json"
    assert shipped["provenance"]["parameters"] == "shipped"
    assert set(own["provenance"]["tiers"]["h100-sxm"].values()) == {"measured"}


def test_a_changed_byte_is_told(cli, own_folder: Path) -> None:
    table = load_sustained_table()
    record = {"families": json.loads(json.dumps(table.families)), "power": dict(table.power)}
    text = json.dumps({**table.card, **record, "sha256": checksum(record)})
    Path("mine.sustained.json").write_text(text)
    question = ("estimate", "gpt2", "--device", "h100-sxm", "--prompt", "64", "--output", "8", "--params", "mine")
    assert cli(*question).exit_code == 0
    Path("mine.sustained.json").write_text(text.replace('"memory": 0.8', '"memory": 0.7', 1))
    result = cli(*question)
    assert result.exit_code == 2 and "a byte was changed" in result.stderr


def test_rates_that_were_made_from_other_parameters_say_so(cli, own_folder: Path, parse_json) -> None:
    table = load_sustained_table()
    record = {**table.card, "families": table.families, "power": table.power}
    Path("mine.sustained.json").write_text(json.dumps(record))
    question = ("estimate", "gpt2", "--device", "h100-sxm", "--params", "mine", "--json")

    def told(sha256: str | None) -> dict:
        Path("mine.json").write_text(json.dumps({"sha256": sha256} if sha256 else []))
        return parse_json(cli(*question).stdout)["provenance"]

    assert told("another")["other_parameters"] == "mine.json"
    assert "mine.sustained.json was made from other parameters than mine.json" in told("another")["efficiencies"]
    for same in (table.card["parameters_sha256"], None):
        assert "other_parameters" not in told(same) and "other parameters" not in told(same)["efficiencies"]
