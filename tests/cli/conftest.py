"""The command line run in this process, in a folder of its own; settings of JAX are put back after each call."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from calibration.kernels.parameters import Parameters, save_parameters
from jaxperf.cli.main import app

RESTORED = ("jax_enable_x64", "jax_compilation_cache_dir")
Cli = Callable[..., Result]


@pytest.fixture(scope="session", autouse=True)
def built_once() -> Iterator[None]:
    """Building all commands for each call, as the runner does, takes longer than most of the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(get_command), raising=False)
        yield


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli() -> Iterator[Cli]:
    """Runs a command; whatever happens, it ends with an exit code and never with a traceback."""
    before = {name: getattr(jax.config, name) for name in RESTORED}

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        assert "Traceback" not in result.output
        return result

    yield run
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def refuse(cli: Cli) -> Callable[..., str]:
    """Runs a command that must be refused as the user's mistake; returns the sentence."""

    def run(*arguments: str) -> str:
        result = cli(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        return result.stderr

    return run


@pytest.fixture
def answered(cli: Cli) -> Callable[..., Any]:
    """Runs a command with --json; returns what it says."""

    def run(*arguments: str, code: int = 0) -> Any:
        result = cli(*arguments, "--json")
        assert result.exit_code == code, result.output
        return strict_json(result.stdout)

    return run


@pytest.fixture
def table(request: pytest.FixtureRequest, own_folder: Path) -> Path:
    """A file of the module's own `TABLE`."""
    path = own_folder / "in.csv"
    path.write_text(request.module.TABLE)
    return path


@pytest.fixture
def case(request: pytest.FixtureRequest, own_folder: Path) -> Path:
    """A file of the module's own `CASE`."""
    path = own_folder / "case.json"
    path.write_text(json.dumps(request.module.CASE))
    return path


@pytest.fixture(scope="session")
def no_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernel parameters without a family: large products then reach what such cores usually do."""
    path = tmp_path_factory.mktemp("parameters") / "none"
    save_parameters(Parameters({}, {"created": "2026-11-21", "data": [], "devices": []}), path)
    return path


@pytest.fixture
def sweep_file(own_folder: Path) -> Callable[..., Path]:
    """Writes a small sweep of gpt2, changed as told; `None` drops a key. JSON is YAML."""

    def write(name: str = "sweep.yaml", **changes: Any) -> Path:
        question: dict[str, Any] = {
            "model": "gpt2",
            "axes": {"device": ["h100-sxm", "l4"], "batch": [1, 2, 4, 8], "context": [64, 128, 256]},
            "metrics": ["tpot", "tokens_per_second", "memory", "limiter", "reason"],
        }
        question |= changes
        path = own_folder / name
        path.write_text(json.dumps({key: value for key, value in question.items() if value is not None}))
        return path

    return write


def strict_json(text: str) -> Any:
    """Parsed JSON; NaN and Infinity, which JSON lacks, are refused."""

    def refuse_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse_constant)


@pytest.fixture
def parse_json() -> Callable[[str], Any]:
    """A parser that refuses what JSON lacks."""
    return strict_json
