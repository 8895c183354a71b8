"""docs/add-a-model.md is followed literally: its files are written, its commands run, its outputs compared."""

from __future__ import annotations

import os
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
PAGE = "add-a-model.md"


@pytest.fixture
def checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what a contributor's checkout has, as the current folder."""
    for package in ("jaxperf", "hwspecs"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    monkeypatch.setenv("COLUMNS", "200")
    return folder


def run(command: str, folder: Path) -> tuple[int, str]:
    """The exit code and the output of a command of the page; those that need the changed checkout run in it."""
    program, *arguments = shlex.split(command)
    if program == "jaxperf":
        result = CliRunner().invoke(app, arguments)
        return result.exit_code, result.output
    line = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest"]}.get(program, [program])
    environment = os.environ | {"PYTHONPATH": str(folder)}  # its packages, not those these tests were started with
    done = subprocess.run([*line, *arguments], cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_the_page_can_be_followed_literally(checkout: Path) -> None:
    ran = []
    for block in page.blocks(PAGE):
        if block.language == "console":
            for command, documented in page.commands(block):
                code, output = run(command, checkout)
                assert code == (2 if "--check" in command else 0), f"{command}\n{output}"
                assert page.missing_lines(documented, output) == [], f"{command}\n{output}"
                ran.append(command.split()[0])
        else:
            path = checkout / block.info
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:  # the list of aliases is there already
                file.write(block.text)
    assert ran == ["jaxperf"] * 4 + ["python", "sed", "pytest"]


def test_the_classes_and_files_that_the_page_names_exist() -> None:
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    named = {word.strip("`.,;)") for word in text.split() if word.startswith("`") and "/" in word}
    files = [name for name in named if name.endswith((".py", ".csv"))]
    assert len(files) >= 6 and all((ROOT / name).is_file() for name in files)
