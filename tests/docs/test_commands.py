"""Every command of README and docs names a command, and options that it has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from jaxperf.cli.main import app
from tests.docs import page

FENCED = re.compile(r"^(?:    )?(?:\$ )?((?:python -m )?jaxperf [a-z][^`\n]*)$", re.MULTILINE)
INLINE = re.compile(r"`(jaxperf [a-z][^`]*\s--?[a-z][^`]*)`")
PAGES = [page.DOCS.parent / "README.md", page.DOCS.parent / "CONTRIBUTING.md", *sorted(page.DOCS.rglob("*.md"))]
COMMANDS = typer.main.get_command(app)


def asked(line: str) -> list[str]:
    """The words behind `jaxperf`: without a comment, brackets of what may be left out, and dots; 8 for one letter."""
    line = re.sub(r"\s#.*", "", line)
    line = re.sub(r"[\[\]]", "", line) if re.search(r"\[-", line) else line
    words = shlex.split(line.replace(" ...", ""))
    return ["8" if len(word) == 1 and word.isupper() else word for word in words[words.index("jaxperf") + 1 :]]


def command_of(line: str) -> tuple[TyperCommand, list[str]]:
    """The command of a line, and the words behind its name."""
    command, words = COMMANDS, asked(line)
    while isinstance(command, TyperGroup):
        assert words and words[0] in command.commands, line
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_of_a_page_is_one(path: Path) -> None:
    text = re.sub(r"\s*\\\n\s*", " ", path.read_text(encoding="utf-8"))
    for line in FENCED.findall(text):
        if " | " not in line and "COMMAND" not in line:
            command, words = command_of(line)
            command.make_context(line, words)
    for line in INLINE.findall(text):  # in part
        command, words = command_of(line)
        options = {option for each in command.params for option in each.opts}
        assert {word for word in words if word.startswith("-")} <= options, line
