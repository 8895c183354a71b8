"""A folder of configs, read whole: every file is understood, guessed or refused, and none stops the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hwspecs.errors import InputError
from jaxperf.io.huggingface import LARGEST_FILE, read_config
from jaxperf.io.model_check import GUESSED, REFUSED, UNDERSTOOD, Checked, check_folder

GOOD: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
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


def put(root: Path, name: str, content: Any) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, (bytes, str)) else json.dumps(content)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def check(root: Path) -> dict[str, Checked]:
    return {item.path: item for item in check_folder(root)}


def test_every_file_has_one_of_three_fates(tmp_path: Path) -> None:
    put(tmp_path, "plain/config.json", GOOD)
    put(tmp_path, "guess/config.json", {key: value for key, value in GOOD.items() if key != "torch_dtype"})
    put(tmp_path, "unknown/config.json", GOOD | {"architectures": ["SpaceshipForCausalLM"]})
    put(tmp_path, "wrong/config.json", GOOD | {"hidden_size": "64"})
    put(tmp_path, "deep/er/still/config.json", GOOD)
    put(tmp_path, "broken/config.json", '{"hidden_size": ')
    put(tmp_path, "empty/config.json", "")
    put(tmp_path, "bytes/config.json", b"\xff\xfe\x00")
    put(tmp_path, "huge/config.json", b" " * (LARGEST_FILE + 1))
    found = check(tmp_path)
    fates = {path.partition("/")[0]: item.status for path, item in found.items()}
    assert fates == {
        "plain": UNDERSTOOD,
        "deep": UNDERSTOOD,
        "guess": GUESSED,
        **dict.fromkeys(("unknown", "wrong", "broken", "empty", "bytes", "huge"), REFUSED),
    }
    assert list(found) == sorted(found)
    assert found["plain/config.json"].model == read_config(tmp_path / "plain")
    reasons = {path.partition("/")[0]: item.reason for path, item in found.items() if item.model is None}
    assert reasons["wrong"].startswith('hidden_size is "64"; it must be an integer')
    assert "SpaceshipForCausalLM" in reasons["unknown"] and "line 1" in reasons["broken"]
    assert reasons["empty"] == "is empty; it must hold a JSON object."
    assert all(str(tmp_path) not in reason for reason in reasons.values())
    assert found["guess/config.json"].model is not None
    assert found["guess/config.json"].model.assumptions == ("torch_dtype is absent; bf16 weights were assumed.",)


def test_other_json_files_count_only_when_they_are_configs(tmp_path: Path) -> None:
    put(tmp_path, "llama-own.json", GOOD)
    put(tmp_path, "broken-own.json", json.dumps(GOOD)[:-1])
    put(tmp_path, "tokenizer_config.json", {"tokenizer_class": "X", "model_max_length": 4})
    put(tmp_path, "preprocessor_config.json", {"model_type": "clip", "image_size": 224})
    put(tmp_path, "generation_config.json", {"max_length": 20})
    put(tmp_path, "index.json", {"weight_map": {"a": "b"}})
    put(tmp_path, "large.json", b'{"model_type": "x"}' + b" " * (LARGEST_FILE + 1))
    put(tmp_path, "notes.txt", GOOD)
    found = check(tmp_path)
    assert {path: item.status for path, item in found.items()} == {
        "llama-own.json": UNDERSTOOD,
        "broken-own.json": REFUSED,
    }
    assert found["llama-own.json"].model is not None and found["llama-own.json"].model.name == "llama-own"


def test_links_in_circles_and_twice_are_followed_once(tmp_path: Path) -> None:
    put(tmp_path, "a/config.json", GOOD)
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "self").symlink_to("self")
    found = check(tmp_path)
    assert len(found) == 1 and next(iter(found.values())).status == UNDERSTOOD


def test_files_of_the_hugging_face_cache_are_named_by_their_repository(tmp_path: Path) -> None:
    blob = put(tmp_path, "models--org--Some-Model/blobs/0a1b", GOOD)
    snapshot = tmp_path / "models--org--Some-Model" / "snapshots" / "9f" / "config.json"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(blob)
    (item,) = check(tmp_path).values()
    assert item.model is not None and item.model.name == "Some-Model" == read_config(snapshot.parent).name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_dead_links_are_rows_and_nobody_waits(tmp_path: Path) -> None:
    put(tmp_path, "good/config.json", GOOD)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    os.mkfifo(tmp_path / "pipe" / "other.json")
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "config.json").symlink_to("nowhere")
    found = check(tmp_path)
    assert {path: item.status for path, item in found.items()} == {
        "dead/config.json": REFUSED,
        "good/config.json": UNDERSTOOD,
        "pipe/config.json": REFUSED,
    }


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_listed_is_a_row(tmp_path: Path) -> None:
    put(tmp_path, "good/config.json", GOOD)
    locked = put(tmp_path, "locked/config.json", GOOD).parent
    locked.chmod(0)
    try:
        found = check(tmp_path)
    finally:
        locked.chmod(0o700)
    assert found["locked"].status == REFUSED and "cannot be read" in found["locked"].reason


def test_a_mistake_of_ours_costs_one_row_and_asks_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a/config.json", GOOD)
    put(tmp_path, "b/config.json", GOOD | {"hidden_size": 65})

    def read(data: Any, name: str) -> Any:
        return read_config(data, name) if data["hidden_size"] == 64 else 1 // 0

    monkeypatch.setattr("jaxperf.io.model_check.read_config", read)
    found = check(tmp_path)
    assert [item.status for item in found.values()] == [UNDERSTOOD, REFUSED]
    assert "ZeroDivisionError" in found["b/config.json"].reason and "please report it" in found["b/config.json"].reason


def test_progress_counts_every_file(tmp_path: Path) -> None:
    for index in range(5):
        put(tmp_path, f"{index}/config.json", GOOD)
    seen: list[tuple[int, int]] = []
    check_folder(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == [(done, 5) for done in range(1, 6)]


@pytest.mark.parametrize("folder", ["nowhere", "file.json", "empty", "", " ", "a\0b", "x" * 5000])
def test_a_bad_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "file.json", GOOD)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        check_folder(folder)
    said = str(caught.value)
    assert "\n" not in said and said.endswith(".") and len(said) < 300
