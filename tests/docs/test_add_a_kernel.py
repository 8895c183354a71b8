"""docs/add-a-kernel.md is followed literally: its files are written, its commands run, its outputs compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = "add-a-kernel.md"


BLOCKS = page.blocks(PAGE)
FILES = {block.info: block.text for block in BLOCKS if block.language == "python"}
COMMANDS = [pair for block in BLOCKS if block.language == "console" for pair in page.commands(block)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the project with every file of the page."""
    made = tmp_path_factory.mktemp("kernel")
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    line = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest"]}[program]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run([*line, *arguments], cwd=folder, capture_output=True, text=True, env=environment)


def test_the_page_has_a_kernel_its_use_its_sweep_and_its_test() -> None:
    assert list(FILES) == ["gate.py", "call.py", "sweep.py", "test_gate.py"]
    assert [command for command, _ in COMMANDS] == ["python call.py", "python sweep.py", "pytest test_gate.py"]


@pytest.mark.parametrize(("command", "documented"), COMMANDS)
def test_a_command_prints_what_the_page_says(command: str, documented: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    if command.startswith("pytest"):
        summary = re.sub(r" in [\d.]+s.*", "", done.stdout.strip().splitlines()[-1].strip("= "))
        assert summary == documented
    else:
        assert done.stdout.strip() == documented


def test_the_test_of_the_page_can_fail(folder: Path, tmp_path: Path) -> None:
    for name in ("gate.py", "test_gate.py"):
        (tmp_path / name).write_text((folder / name).read_text())
    wrong = FILES["gate.py"].replace("gate.experts * itemsize", "2.0 * gate.experts * itemsize")
    assert wrong != FILES["gate.py"]
    (tmp_path / "gate.py").write_text(wrong)
    done = run("pytest -q test_gate.py", tmp_path)
    assert done.returncode == 1 and "6 failed" in done.stdout, done.stdout


def test_the_files_named_in_the_last_step_exist() -> None:
    text = (ROOT / "docs" / PAGE).read_text()
    for path in re.findall(r"`((?:jaxperf|tests)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
