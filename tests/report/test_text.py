"""Numbers and tables as people read them."""

from __future__ import annotations

import io
import math
import re

import pytest
from rich.console import Console

from jaxperf.core.cost import Limiter
from jaxperf.report.text import (
    bold,
    console,
    counted,
    interval,
    layout_words,
    limiter_words,
    milliseconds,
    number,
    paragraph,
    quantity,
    table,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01234, "0.0123"),
        (1.0, "1.00"),
        (12.34, "12.3"),
        (99.99, "100"),
        (123.4, "123"),
        (12345.6, "12346"),
        (math.nan, "-"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_one_is_no_plural() -> None:
    assert [counted(count, "layer") for count in (0, 1, 1200)] == ["0 layers", "1 layer", "1,200 layers"]


def test_units_and_intervals() -> None:
    assert quantity(3.35e12, "byte/s") == "3.35 TB/s" and quantity(math.nan, "s") == "-"
    assert milliseconds(0.0214) == "21.4" and interval(0.0196, 0.024, 1e3) == "[19.6, 24.0]"


def test_layouts_in_words() -> None:
    point = {"tensor_parallel": 4, "pipeline_parallel": 2, "data_parallel": 1, "expert_parallel": 1}
    assert layout_words(point) == "TP4 PP2" and layout_words({**dict.fromkeys(point, 1)}) == "TP1"
    assert layout_words({**dict.fromkeys(point, 8), "tensor_parallel": 1, "pipeline_parallel": 1}) == "DP8 EP8"


def test_limiters_in_words() -> None:
    assert limiter_words({Limiter.MEMORY: 0.71, Limiter.HOST: 0.29}, 1) == "memory 71%"


def test_paragraphs_wrap_under_their_label() -> None:
    lines = paragraph("note", "word " * 60).splitlines()
    assert lines[0].startswith("note  word") and all(line.startswith("      word") for line in lines[1:])
    assert max(map(len, lines)) <= 100


def test_a_table_is_not_cut() -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(table("two", ("name", "value", "words"), [("a" * 60, "1.5", "3 of one, 4 of two"), ("b", "[1, 2]", "x")]))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "a" * 60 in text and "3 of one, 4 of two" in text and "…" not in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_cuts_no_name_and_no_figure(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    """`jaxperf rank` showed no names of devices on a terminal of 80 columns."""
    out = console()
    out.width = width
    title, names = "a title that is longer than its table", ("device", "tokens/s/device", "range", "decode limited by")
    out.print(table(title, names, [("h100-sxm", "2922", "[2169, 3338]", "memory 95%, kernel launch 2%")]))
    said = capsys.readouterr().out
    for word in (title, *names, "h100-sxm", "2922", "[2169, 3338]", "memory 95%, kernel launch 2%"):
        assert word in said, word
    out.print("word " * 30)
    assert out.width == width and max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_a_title_is_not_folded_to_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    title = "199 of 200 requests completed, scheduler sarathi_fixed"
    console().print(table(title, ("ms", "mean"), [("ttft", "1.0")]))
    assert capsys.readouterr().out.splitlines()[0].rstrip() == title


def test_no_line_ends_in_spaces(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("long enough", "1.0", "a"), ("ttft", "2.0", "")]
    console().print(table("", ("ms", "mean", "of"), rows))
    plain = capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    console().print(table("", ("ms", "mean", "of"), rows))
    styled = capsys.readouterr().out
    assert "\x1b[" in styled
    for lines in (plain.splitlines(), re.sub(r"\x1b\[[0-9;]*m", "", styled).splitlines()):
        assert "ttft" in lines[4] and lines == [line.rstrip() for line in lines]


def test_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A model's folder or a device's display name may hold rich's markup: it was swallowed, or a traceback."""
    out = console()
    out.print("a [/b] [red]x :x:")
    out.print(table("t [/i]", ("head [/u]",), [("[red]cell",)]))
    out.print(bold("name [/b]", ": rest"))
    said = capsys.readouterr().out
    assert all(word in said for word in ("a [/b] [red]x :x:", "t [/i]", "head [/u]", "[red]cell", "name [/b]: rest"))
