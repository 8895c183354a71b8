"""`--report FILE.html` of every command: the page of what it printed, whole or not at all."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from jaxperf.cli.main import app
from jaxperf.report.page import write_page

ESTIMATE = ("estimate", "gpt2", "--device", "h100-sxm", "--prompt", "64", "--output", "8", "--quiet")


def commands(group: Any, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command by its words."""
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        words = (*names, name)
        found |= commands(command, words) if hasattr(command, "commands") else {" ".join(words): command}
    return found


ROOT = get_command(app)
COMMANDS = commands(ROOT)


def required(command: Any) -> list[str]:
    """What a command requires, each with a value of any type."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            words += ["1"] if parameter.param_type_name == "argument" else [parameter.opts[0], "1"]
    return words


def text_of(page: Path) -> str:
    body = page.read_text(encoding="utf-8").split("<pre>")[1].split("</pre>")[0]
    return html.unescape(re.sub(r"<[^>]*>", "", body))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_writes_what_it_prints(name: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = f"{name}: 12 \N{MICRO SIGN}s <of> [all] & more"
    monkeypatch.setattr("typer.testing._get_command", lambda _: ROOT)
    monkeypatch.setattr(COMMANDS[name], "callback", lambda **_: typer.echo(printed))
    words = [*required(COMMANDS[name]), "--report", "a page.html"]
    result = CliRunner().invoke(app, [*name.split(), *words], prog_name="jaxperf")
    assert result.exit_code == 0 and result.stdout == printed + "\n"
    page = own_folder / "a page.html"
    assert text_of(page).strip() == printed
    assert f"<title>jaxperf {name} " in page.read_text() and "&#x27;a page.html&#x27;</title>" in page.read_text()
    assert [path.name for path in own_folder.iterdir()] == ["a page.html"]


def test_the_page_of_an_estimate_has_its_table_and_its_picture(cli, own_folder: Path) -> None:
    result = cli(*ESTIMATE, "--plot", "roofline.png", "--report", "page.html")
    assert result.exit_code == 0
    lines = [line.rstrip() for line in text_of(own_folder / "page.html").splitlines()]
    assert [line for line in lines if line] == [line.rstrip() for line in result.stdout.splitlines() if line.strip()]
    assert (own_folder / "page.html").read_text().count('src="data:image/png;base64,') == 1


def test_a_picture_of_an_earlier_run_is_not_shown(cli, own_folder: Path) -> None:
    (own_folder / "old.png").write_bytes(b"old")
    result = cli(*ESTIMATE, "--batch", "1000000", "--plot", "old.png", "--report", "page.html")
    assert result.exit_code == 3 and "memory" in text_of(own_folder / "page.html")
    assert "data:image" not in (own_folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--report", "page.pdf"), "the ending must be one of .html"),
        (("--report", "missing/page.html"), "does not exist"),
        (("--report", "folder.html"), "it is a folder"),
        (("--report", "page.html", "--json"), "--json prints none"),
    ],
)
def test_a_page_that_cannot_be_is_refused_before_the_work(
    cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    (own_folder / "folder.html").mkdir()
    monkeypatch.setattr("typer.testing._get_command", lambda _: ROOT)
    monkeypatch.setattr(COMMANDS["estimate"], "callback", lambda **_: pytest.fail("worked"))
    result = cli(*ESTIMATE, *options)
    assert result.exit_code == 2 and said in result.stderr and not result.stdout


def test_a_mistake_leaves_no_page(cli, own_folder: Path) -> None:
    assert cli("devices", "h100-smx", "--report", "page.html").exit_code == 2
    assert not list(own_folder.iterdir())


def test_a_page_has_the_colors_of_a_terminal(own_folder: Path) -> None:
    write_page(own_folder / "page.html", "jaxperf", "\x1b[1mTPOT\x1b[0m 21.4 ms")
    assert "font-weight: bold" in (own_folder / "page.html").read_text()
    assert text_of(own_folder / "page.html").strip() == "TPOT 21.4 ms"
