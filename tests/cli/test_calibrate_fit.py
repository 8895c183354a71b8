"""Families of `jaxperf calibrate` in processes of their own: what each leaves, and what stops one or all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import jaxperf.cli.calibrate
from calibration.kernels.calibrate import NO_ROW
from calibration.kernels.fit import Settings
from calibration.kernels.parameters import Parameters, load_parameters, save_parameters
from jaxperf.cli import processes
from jaxperf.cli.main import app

TINY = Settings(steps=20, law_steps=20, batch=32, widths=(4,))
MATRICES = "device,framework,version,kernel,dtype,m,n,k,latency_us"
NORMS = "device,framework,version,kernel,op,dtype,rows,columns,latency_us"

pytestmark = pytest.mark.usefixtures("plain_jax")


class Ended:
    """A process that is over."""

    def __init__(self, returncode: int) -> None:
        self.returncode = returncode

    def poll(self) -> int:
        return self.returncode

    def kill(self) -> None: ...

    def wait(self) -> None: ...


class Endless(Ended):
    """One that runs until it is stopped."""

    def poll(self) -> None:  # type: ignore[override]
        return None

    def kill(self) -> None:
        self.returncode = -9


@pytest.fixture
def tables(own_folder: Path) -> list[str]:
    """Products and norms, whatever they take; the H100 has products alone."""
    times = np.random.default_rng(0).uniform(5.0, 50.0, 30)
    products = [f"a40,vllm,0.24.0,cublas,bf16,{1 << n % 10},1024,{1 << n % 7},{t:.3f}" for n, t in enumerate(times)]
    products.append("h100-sxm,vllm,0.24.0,cublas,bf16,64,64,64,9.0")
    norms = [f"a40,torch,2.4,norm,norm,fp16,{1 << n % 12},4096,{t:.3f}" for n, t in enumerate(times[:20])]
    for name, header, rows in (("gemm.csv", MATRICES, products), ("norm.csv", NORMS, norms)):
        (own_folder / name).write_text("\n".join([header, *rows]) + "\n")
    return ["gemm.csv", "norm.csv"]


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Each process is played by a command in this one; the list has what was started."""
    asked: list[Sequence[str]] = []

    def started(command: Sequence[str], out: Path, core: int) -> Any:
        asked.append(command)
        result = CliRunner().invoke(app, [*command, "-o", str(out)])
        out.with_name(f"{out.name}.log").write_text(result.stderr)
        return Ended(result.exit_code)

    monkeypatch.setattr(processes, "own_cores", lambda families, cores: list(range(min(2, families))))
    monkeypatch.setattr(processes, "started", started)
    monkeypatch.setattr(jaxperf.cli.calibrate, "settings", lambda seed: TINY)
    return asked


@pytest.mark.long
def test_it_is_the_fit_of_one_process(
    cli, tables: list[str], played: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ["calibrate", *tables, "--exclude-device", "H100"]
    assert cli(*question, "-o", "apart").exit_code == 0
    assert [command[command.index("--family") + 1] for command in played] == ["gemm", "norm"]
    assert ["--exclude-device" in command for command in played] == [True, False]  # norms have no H100
    monkeypatch.setattr(processes, "own_cores", lambda families, cores: [0])
    assert cli(*question, "-o", "here").exit_code == 0
    assert Path("apart.safetensors").read_bytes() == Path("here.safetensors").read_bytes()
    assert Path("apart.json").read_text() == Path("here.json").read_text()
    assert not list(Path().glob("*unfinished*"))


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Products are fitted at once, with the shipped parameters; how the process of the norms ends is told."""
    shipped = load_parameters()

    def norms_end(how: Callable[[Path], Ended]) -> None:
        def started(command: Sequence[str], out: Path, cores: set[int]) -> Ended:
            if "norm" in command:
                return how(out)
            save_parameters(Parameters({"gemm": shipped.families["gemm"]}, {"errors": []}), out)
            return silent(0)(out)

        monkeypatch.setattr(processes, "started", started)

    return norms_end


def silent(status: int, said: str = "") -> Callable[[Path], Ended]:
    """A process that ends so, and says no more than that."""

    def end(out: Path) -> Ended:
        out.with_name(f"{out.name}.log").write_text(said)
        return Ended(status)

    return end


@pytest.mark.parametrize(("status", "said"), [(-9, ""), (2, " No space left on device.")])
def test_a_process_that_fails_leaves_the_others(
    cli, tables: list[str], ended: Callable[[Any], None], status: int, said: str
) -> None:
    ended(silent(status, f"jaxperf:{said}" if said else ""))
    stopped = cli("calibrate", *tables, "-o", "p")
    assert stopped.exit_code == 2
    assert f"The process that fitted norm ended with status {status}.{said}" in stopped.stderr
    assert "go on with --params p.unfinished --family norm in the place" in stopped.stderr
    assert set(load_parameters("p.unfinished").families) == {"gemm"} and not Path("p.json").exists()


def test_a_family_without_a_usable_row_is_left_out_aloud(cli, tables: list[str], ended: Callable[[Any], None]) -> None:
    ended(silent(2, f"a warning\njaxperf: {NO_ROW}\n"))
    found = cli("calibrate", *tables, "-o", "p")
    assert found.exit_code == 0 and f"left out: norm: {NO_ROW}" in found.stderr
    assert set(load_parameters("p").families) == {"gemm"}


def test_ctrl_c_stops_all_and_keeps_what_is_done(
    cli, tables: list[str], ended: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    endless = Endless(0)
    ended(lambda out: endless)
    monkeypatch.setattr(processes.time, "sleep", interrupted)
    stopped = cli("calibrate", *tables, "-o", "p")
    assert stopped.exit_code == 130 and "What was fitted (gemm) is in p.unfinished" in stopped.stderr
    assert endless.returncode == -9


@pytest.mark.parametrize(("families", "cores", "gigabytes", "most"), [(1, 8, 64, 1), (9, 3, 64, 3), (9, 9, 17, 4)])
def test_as_many_at_a_time_as_fit_and_each_on_one_core(
    monkeypatch: pytest.MonkeyPatch, families: int, cores: int, gigabytes: int, most: int
) -> None:
    monkeypatch.undo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
        patch.setattr(os, "sysconf", lambda name: 1000 if name == "SC_PAGE_SIZE" else gigabytes * 1_000_000)
        assert processes.own_cores(families, processes.usable_cores()) == list(range(most))


def test_a_fit_has_one_core_and_what_comes_after_it_all_of_them() -> None:
    before = processes.usable_cores()
    with contextlib.suppress(ValueError), processes.on_core(before[-1]):
        assert processes.usable_cores() == [before[-1]] or not hasattr(os, "sched_setaffinity")
        raise ValueError("a mistake")
    assert processes.usable_cores() == before


def test_the_core_of_a_process_that_ended_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def started(command: Sequence[str], out: Path, core: int) -> Ended:
        given.append(core)
        return silent(2, f"jaxperf: {NO_ROW}\n")(out)

    monkeypatch.setattr(processes, "started", started)
    assert not list(processes.written(dict.fromkeys("abcd", []), [0, 2], lambda said: None, NO_ROW))
    assert sorted(given) == [0, 0, 2, 2]


def test_a_process_is_this_jaxperf(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the folder holds that is called as our packages are."""
    monkeypatch.undo()
    for name in ("jaxperf", "calibration", "hwspecs"):
        (own_folder / f"{name}.py").write_text("raise SystemExit(7)")
    with contextlib.chdir(own_folder):
        core = processes.usable_cores()[0]
        process = processes.started(["calibrate", "nowhere.csv"], own_folder / "p", core)
        assert not hasattr(os, "sched_getaffinity") or os.sched_getaffinity(process.pid) == {core}
        assert process.wait(120) == 2
    said = (own_folder / "p.log").read_text()
    assert said.startswith("jaxperf: ") and "nowhere.csv" in said
