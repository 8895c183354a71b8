"""The fenced code blocks of a page of the documentation, so that a test can follow the page literally."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```(\S+)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block: its language, what follows the language on the fence (such as a file name), and its text."""

    language: str
    info: str
    text: str


def blocks(page: str) -> list[Block]:
    """The code blocks of `docs/PAGE`, in order; `page` is the file name, such as "add-a-device.md"."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Block(found[1], found[2].strip(), found[3]) for found in _BLOCK.finditer(text)]


def commands(block: Block) -> list[tuple[str, str]]:
    """The (command, documented output) pairs of a `console` block; commands are the lines that start with `$ `."""
    pairs = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(command, output.strip("\n")) for command, _, output in (pair.partition("\n") for pair in pairs)]


def missing_lines(documented: str, actual: str) -> list[str]:
    """Documented lines that the actual output does not have in this order; a line `...` stands for any lines.

    Without such a line the whole output must be as documented. The widths of spaces and rules do not count.
    """
    wanted, left = _words(documented), _words(actual)
    missing, gap = [], False
    for line in wanted:
        if line == "...":
            gap = True
        elif line in left if gap else left[:1] == [line]:
            left, gap = left[left.index(line) + 1 :], False
        else:
            missing.append(line)
    return missing + ([] if gap or missing else [f"(undocumented) {line}" for line in left])


def _words(text: str) -> list[str]:
    """The lines that say something, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" ─━")]
