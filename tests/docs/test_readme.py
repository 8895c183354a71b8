"""README shows the output of `make demo` twice, its first lines above and all of it at the end: one is of the other."""

from __future__ import annotations

from tests.docs import page


def test_the_first_lines_of_the_demo_are_of_the_whole() -> None:
    first, whole = (block.text for block in page.blocks("../README.md") if block.language == "console")
    assert page.missing_lines(first, whole) == []
    for command in ("jaxperf rank ", "jaxperf sweep "):
        assert f".venv/bin/{command}" in first
