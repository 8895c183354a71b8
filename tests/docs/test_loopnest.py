"""The case of docs/loopnest.md: its files are written, its command run, and both files say the same."""

from __future__ import annotations

import shlex
from pathlib import Path

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
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the page in the current folder."""
    for block in BLOCKS:
        if block.info in FILES:
            (folder / block.info).write_text(block.text, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("files")
def test_the_command_prints_what_the_page_says() -> None:
    pairs = [pair for block in BLOCKS if block.language == "console" for pair in page.commands(block)]
    assert [command for command, _ in pairs] == ["jaxperf loopnest gemm.json --quiet"]
    for command, documented in pairs:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0 and page.missing_lines(documented, result.output) == [], result.output


@pytest.mark.usefixtures("files")
def test_both_files_are_one_case() -> None:
    in_json, in_yaml = (json_text(evaluate(load_case(name), "head")) for name in FILES)
    assert in_json == in_yaml
