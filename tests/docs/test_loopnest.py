"""The case of docs/loopnest.md: its files are written, its command run, and both files say the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from jaxperf.cli.main import app
from jaxperf.io.tables import json_text
from jaxperf.io.timeloop.case import evaluate
from jaxperf.io.timeloop.json_case import load_case
from tests.docs import page

PAGE = "loopnest.md"
FILES = ("gemm.json", "gemm.yaml")


BLOCKS = page.blocks(PAGE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the files of the page; settings of JAX are put back after."""
    for block in BLOCKS:
        if block.info in FILES:
            (tmp_path / block.info).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    before = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_compilation_cache_dir")}
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("folder")
def test_the_command_prints_what_the_page_says() -> None:
    pairs = [pair for block in BLOCKS if block.language == "console" for pair in page.commands(block)]
    assert [command for command, _ in pairs] == ["jaxperf loopnest gemm.json --quiet"]
    for command, documented in pairs:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0 and page.missing_lines(documented, result.output) == [], result.output


@pytest.mark.usefixtures("folder")
def test_both_files_are_one_case() -> None:
    in_json, in_yaml = (json_text(evaluate(load_case(name), "head")) for name in FILES)
    assert in_json == in_yaml
