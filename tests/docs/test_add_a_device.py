"""docs/add-a-device.md is followed literally: its files are written, its commands run, its outputs compared."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jaxperf.cli.main import app
from tests.docs import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = "add-a-device.md"


@pytest.fixture
def checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what a contributor's checkout has, as the current folder."""
    shutil.copytree(ROOT / "hwspecs", folder / "hwspecs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "hwspecs", folder / "tests" / "hwspecs")
    shutil.copy(ROOT / "pyproject.toml", folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("JAXPERF_DATA", str(folder / "no-data"))
    return folder


def run(command: str, folder: Path) -> tuple[int, str]:
    """The exit code and the output of a command of the page."""
    program, *arguments = shlex.split(command)
    if program == "jaxperf":
        result = CliRunner().invoke(app, arguments)
        return result.exit_code, result.output
    line = [sys.executable, "-m", "pytest", *arguments] if program == "pytest" else [program, *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_page_can_be_followed_literally(checkout: Path) -> None:
    ran = []
    for block in page.blocks(PAGE):
        if block.language == "toml":
            path = checkout / block.info
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, PAGE, "exec"), {})
        elif block.language == "console":
            for command, documented in page.commands(block):
                code, output = run(command, checkout)
                assert code == (2 if "mistakes" in command else 0), f"{command}\n{output}"
                if documented:
                    assert page.missing_lines(documented, output) == [], f"{command}\n{output}"
                ran.append(command.split()[0])
    assert ran.count("jaxperf") >= 5 and ran[-1] == "pytest"


def test_what_is_not_documented_or_not_printed_is_found() -> None:
    assert page.missing_lines("a\nb", "a\n\nb  \n") == []
    assert page.missing_lines("a\n...\nc", "a\nb\nc") == []
    assert page.missing_lines("a\nb", "a\nb\nc") == ["(undocumented) c"]
    assert page.missing_lines("a\nx\n...", "a\nb") == ["x"]
    assert page.missing_lines("b\n...\na", "a\nb") == ["b"]
    assert page.missing_lines("...\nb\na", "a\nb") == ["a"]
