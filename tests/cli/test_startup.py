"""The command answers `--help` at once and loads nothing heavy for it; every subcommand explains itself."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from jaxperf import __version__
from jaxperf.cli.examples import EXAMPLES
from jaxperf.cli.main import app
from jaxperf.serving.fleet.routing import ROUTINGS

COMMANDS = tuple(name for name in EXAMPLES if " " not in name)
HEAVY = ("jax", "numpy", "pydantic", "pint", "pyarrow", "matplotlib", "yaml")


def python(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **how)  # type: ignore[call-overload]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom jaxperf.cli.main import main\nsys.argv = ['jaxperf', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "loaded:"
    assert all(command in done.stdout for command in COMMANDS)


def test_help_of_a_subcommand_loads_no_jax() -> None:
    code = (
        "import sys\nfrom jaxperf.cli.main import main\nsys.argv = ['jaxperf', 'rank', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('jax' in sys.modules)"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "False"


def test_runs_as_a_module() -> None:
    done = python("-m", "jaxperf", "devices", "nothing-like-this")
    assert done.returncode == 2
    assert done.stderr.startswith("jaxperf: 'nothing-like-this' is not a known device.")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [*EXAMPLES, "plan"])
def test_help_of_every_command_is_plain_text(cli, command: str) -> None:
    result = cli(*command.split(), "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    for garbage in ("\x1b", "[[", "list[", "Optional", "PathLike", "typer", "**", "`"):
        assert garbage not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    options = [line for line in result.stdout.splitlines() if line.startswith("  -")]
    assert len(options) == len({line.split()[0].rstrip(",") for line in options})


def _commands(group: Any, *before: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *before, name)
        else:
            yield " ".join((*before, name)), command


def test_every_command_has_an_example_that_it_can_read(cli) -> None:
    found = dict(_commands(get_command(app)))
    assert set(found) == set(EXAMPLES)
    for name, command in found.items():
        lines = [line.strip() for line in EXAMPLES[name].strip().splitlines()]
        assert lines[-1] in cli(*name.split(), "--help").stdout
        for line in lines:
            words = shlex.split(line) if line.startswith("jaxperf ") else []
            if words[1 : 1 + len(name.split())] == name.split():
                command.make_context(name, words[1 + len(name.split()) :]).close()
        assert any(line.startswith(f"jaxperf {name}") for line in lines)


def test_the_list_of_commands_says_each_in_whole_sentences(cli) -> None:
    listed = cli("--help").stdout.partition("Commands:")[2] + cli("plan", "--help").stdout.partition("Commands:")[2]
    lines = [line for line in listed.splitlines() if line]
    assert len(lines) == len(EXAMPLES) + 1 and all(line.endswith(".") and "..." not in line for line in lines)


def test_the_version_is_told(cli) -> None:
    assert cli("--version").stdout == f"jaxperf {__version__}\n"
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == __version__


@pytest.mark.parametrize("command", ["simulate", "capacity"])
def test_help_lists_the_routings(cli, command: str) -> None:
    assert all(name in cli(command, "--help").stdout for name in ROUTINGS)


def test_no_arguments_shows_the_help(cli) -> None:
    result = cli()
    assert result.exit_code in (0, 2)
    assert "Usage:" in result.output and "estimate" in result.output


def test_an_unknown_command_names_the_nearest(refuse) -> None:
    assert "estimate" in refuse("estmate")


def test_an_unknown_option_names_the_nearest(refuse) -> None:
    assert "--batch" in refuse("estimate", "gpt2", "--device", "h100-sxm", "--batc", "3")


@pytest.mark.skipif(os.name == "nt", reason="pipes of another kind")
def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    command = f"{sys.executable} -m jaxperf devices --json | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "["
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_output_is_one_sentence() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m jaxperf devices --json > /dev/full"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["jaxperf: No space left on device."]


@pytest.mark.parametrize("cache", ["", "own"])
def test_a_cache_without_an_absolute_place_is_left_out(own_folder: Path, monkeypatch, cache: str) -> None:
    """Nothing is put into the folder one works in; a user without a home (of a container) is no traceback."""
    from jaxperf.cli.compute import start_jax

    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where nothing tells the home
    start_jax()
    assert list(own_folder.iterdir()) == []


def test_a_name_that_the_terminal_cannot_show_is_spelled(own_folder: Path) -> None:
    (own_folder / "möd").mkdir()
    (own_folder / "möd" / "config.json").write_text('{"architectures": ["möd"]}')
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = python("-m", "jaxperf", "models", "--check", ".", cwd=own_folder, env=environment)
    assert "Traceback" not in done.stderr and "m\\xf6d" in done.stdout
