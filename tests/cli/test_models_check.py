"""`jaxperf models --check DIR`: the table, the same as JSON, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GOOD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def configs(own_folder: Path) -> Path:
    """One model understood, one guessed."""
    for name, changes in {"plain": {}, "guess": {"tie_word_embeddings": None}}.items():
        folder = own_folder / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(GOOD | changes))
    return own_folder / "models"


def test_all_understood_or_guessed_is_answered(cli, configs: Path) -> None:
    result = cli("models", "--check", configs)
    assert result.exit_code == 0
    assert result.stdout.rstrip().endswith("2 files: 1 understood, 1 guessed, 0 refused")
    assert "assumed: guess/config.json: tie_word_embeddings is absent; false" in result.stdout


def test_one_refused_file_is_a_row_and_exit_code_two(cli, parse_json, configs: Path) -> None:
    (configs / "bad").mkdir()
    (configs / "bad" / "config.json").write_text(json.dumps(GOOD | {"vocab_size": -1}))
    result = cli("models", "--check", configs)
    assert result.exit_code == 2
    assert "refused: bad/config.json: vocab_size is -1; it must be an integer from 1" in result.stdout
    as_json = cli("models", "--check", configs, "--json")
    assert as_json.exit_code == 2
    data = parse_json(as_json.stdout)
    assert data["totals"] == {"files": 3, "understood": 1, "guessed": 1, "refused": 1}
    bad, guess, plain = data["files"]
    assert (bad["path"], bad["status"]) == ("bad/config.json", "refused") and "vocab_size is -1" in bad["reason"]
    assert guess["status"] == "guessed" and len(guess["assumptions"]) == 1
    by_hand = 2 * 1000 * 64 + 2 * (64 * 8 * 16 + 64 * 64 + 3 * 64 * 96 + 2 * 64) + 64
    assert plain["parameters"] == plain["active_parameters"] == by_hand
    assert (plain["layers"], plain["kv_bytes_per_token"]) == (2, 2 * 2 * 2 * 16 * 2)


def test_quiet_leaves_the_sentences_out(cli, configs: Path) -> None:
    assert "assumed:" not in cli("models", "--check", configs, "--quiet").stdout


def test_names_of_files_cannot_write_to_the_terminal(cli, configs: Path) -> None:
    (configs / "a\x1b[31m[red]").mkdir()
    (configs / "a\x1b[31m[red]" / "config.json").write_text("{}")
    text = cli("models", "--check", configs).stdout
    assert "\x1b" not in text and text.count("a\\x1b[31m[red]/config.json") == 2  # in the table and below it


def test_a_long_path_is_not_cut(cli, configs: Path) -> None:
    folder = configs.joinpath(*["x" * 100] * 4)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(GOOD))
    assert "/".join(["x" * 100] * 4) + "/config.json" in cli("models", "--check", configs, "--quiet").stdout


@pytest.mark.parametrize("folder", ["nowhere", "", "empty"])
def test_a_bad_folder_is_refused(refuse, own_folder: Path, folder: str) -> None:
    (own_folder / "empty").mkdir()
    assert "folder" in refuse("models", "--check", folder)


def test_one_question_at_a_time(refuse, configs: Path) -> None:
    assert "exclude each other" in refuse("models", "gpt2", "--check", configs)
    assert "exclude each other" in refuse("models", "--classes", "--check", configs)


def test_the_classes_are_listed(cli, parse_json) -> None:
    names = parse_json(cli("models", "--classes", "--json").stdout)
    assert names == sorted(names) == cli("models", "--classes").stdout.split()
    assert {"LlamaForCausalLM", "BertModel", "WhisperForConditionalGeneration"} <= set(names)


def test_an_encoder_shows_its_tower(cli) -> None:
    text = cli("models", "whisper-tiny").stdout
    assert "37.8 M" in text and "audio tower" in text and "1500 positions" in text


def test_the_answer_goes_to_a_file_that_is_none_of_the_configs(cli, refuse, configs: Path) -> None:
    (configs / "bad").mkdir()
    (configs / "bad" / "config.json").write_text("{")
    assert cli("models", "--check", "models", "-o", "checked.json").exit_code == 2
    rows = {row["path"]: row for row in json.loads(Path("checked.json").read_text())["rows"]}
    assert {path: row["status"] for path, row in rows.items()} == {
        "bad/config.json": "refused",
        "guess/config.json": "guessed",
        "plain/config.json": "understood",
    }
    assert len({tuple(row) for row in rows.values()}) == 1, "all rows have the same columns"
    assert rows["bad/config.json"]["reason"] and rows["bad/config.json"]["layers"] is None
    own = "models/plain/config.json"
    for words in (("--check", "models"), (own,), ("models/plain",)):
        before = Path(own).read_text()
        assert "is the input; write to another file" in refuse("models", *words, "-o", own)
        assert Path(own).read_text() == before
