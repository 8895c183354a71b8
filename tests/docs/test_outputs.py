"""Commands whose answers README and docs show print just that."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jaxperf.cli.main import app
from tests.docs import page

LONG = (
    "design.md",
    "serve-table.md",
    "train-table.md",
    "batches.md",
    "composition.md",
    "simulate.md",
    "plan-train.md",
    "plan-serve.md",
)
SHOWN = re.compile(r"^```[^\n]*\n(\$ .*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["../README.md", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_command_prints_what_the_page_shows(name: str) -> None:
    for block in page.blocks(name):
        if re.fullmatch(r"[a-z]+\.(csv|json)", block.info):
            Path(block.info).write_text(block.text, encoding="utf-8")
    text = re.sub(r"\s*\\\n\s*", " ", (page.DOCS / name).read_text(encoding="utf-8"))
    pairs = [pair for shown in SHOWN.findall(text) for pair in page.commands(page.Block("console", "", shown))]
    assert pairs
    for command, documented in pairs:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
        assert page.missing_lines(documented, result.stdout) == [], result.output
