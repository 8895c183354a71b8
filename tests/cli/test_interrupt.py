"""Ctrl-C: exit code 130, by SIGTERM 143, a sentence that says what is kept, and the same command goes on from there."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import jaxperf.cli.progress
import jaxperf.sweeps.run

SWEEP = ("sweep", "sweep.yaml", "-o", "rows.parquet")
AXES = {"device": "h100-sxm", "batch": list(range(1, 17)), "context": [64, 128, 192, 256]}
PATIENCE = 300  # s that a machine with much else to do may take; none of it is waited for where all is well
# A sweep in blocks of eight points that waits for the signal once two blocks are done.
WAITING = """
import contextlib, pathlib, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what it puts in the background without
import jaxperf.cli.progress, jaxperf.sweeps.run
from jaxperf.__main__ import main
jaxperf.sweeps.run.default_block_points = lambda size: 8
def report(done, total):
    if done >= 16:
        pathlib.Path('ready').touch()
        while True:
            time.sleep(0.05)
@contextlib.contextmanager
def bar(what, quiet):
    yield report
jaxperf.cli.progress.progress_bar = bar
main()
"""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxperf.sweeps.run, "default_block_points", lambda size: 8)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, small_blocks: None) -> pytest.MonkeyPatch:
    """Ctrl-C arrives after the second block."""

    @contextlib.contextmanager
    def bar(what: str, quiet: bool) -> Iterator[Any]:
        def report(done: int, total: int) -> None:
            if done >= 16:
                raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(jaxperf.cli.progress, "progress_bar", bar)
    return monkeypatch


def test_an_interrupted_sweep_resumes_to_the_same_file(cli, own_folder: Path, sweep_file, stopped) -> None:
    sweep_file(axes=AXES)
    result = cli(*SWEEP)
    assert result.exit_code == 130
    assert "2 of 8 blocks (16 of 64 points) are finished and kept in 'rows.parquet.parts'" in result.stderr
    assert "the same command resumes from there" in result.stderr
    assert not (own_folder / "rows.parquet").exists()
    parts = sorted((own_folder / "rows.parquet.parts").glob("*.parquet"))
    written = [path.stat().st_mtime_ns for path in parts]
    assert len(parts) == 2

    kept: list[int] = []

    @contextlib.contextmanager
    def watching(what: str, quiet: bool) -> Iterator[Any]:
        yield lambda done, total: kept.append(done) or [path.stat().st_mtime_ns for path in parts if path.exists()]

    stopped.setattr(jaxperf.cli.progress, "progress_bar", watching)
    assert cli(*SWEEP).exit_code == 0
    assert kept[0] == 16 and kept[-1] == 64 and len(written) == 2
    assert cli("sweep", "sweep.yaml", "-o", "whole.parquet").exit_code == 0
    assert pq.read_table(own_folder / "rows.parquet").equals(pq.read_table(own_folder / "whole.parquet"))
    assert sorted(path.name for path in own_folder.iterdir()) == ["rows.parquet", "sweep.yaml", "whole.parquet"]


def test_an_interrupted_selection_leaves_nothing(cli, own_folder: Path, sweep_file, stopped) -> None:
    sweep_file(axes=AXES, keep="top(3, tpot)")
    result = cli(*SWEEP)
    assert result.exit_code == 130 and "Interrupted" in result.stderr
    assert [path.name for path in own_folder.iterdir()] == ["sweep.yaml"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_real_signal(own_folder: Path, sweep_file, number: int, code: int) -> None:
    sweep_file(axes=AXES)
    (own_folder / "waiting.py").write_text(WAITING)  # what `-c` runs is taken for the evaluation of a text
    child = subprocess.Popen([sys.executable, "waiting.py", *SWEEP], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (own_folder / "ready").exists() and child.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(number)
        _, said = child.communicate(timeout=PATIENCE)
    finally:
        child.kill()
    assert child.returncode == code, said
    assert "2 of 8 blocks" in said and "Traceback" not in said


def test_a_table_that_is_not_finished_is_said_not_to_be_written(cli, own_folder: Path, monkeypatch) -> None:
    (own_folder / "t.csv").write_text("device,m,n,k\nh100-sxm,8,8,8\n")

    def stop(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("calibration.kernels.predict.predict", stop)
    result = cli("kernels", "t.csv", "-o", "o.csv")
    assert result.exit_code == 130 and "Interrupted; nothing is written to 'o.csv'." in result.stderr


DROPPED = """
import signal, sys, threading, time, weakref
from jaxperf.cli.interrupts import interruptible
class Object:
    pass
class Closing:
    def __del__(self):
        press()
def press(*given):
    signal.raise_signal(getattr(signal, sys.argv[1]))
start = threading.Thread.start
def slow(thread):
    start(thread)
    time.sleep(0.2)  # longer than until the signal comes again
if sys.argv[2] == "slow":
    threading.Thread.start = slow
with interruptible():
    one = Object() if sys.argv[2] == "weakref" else Closing()
    watched = weakref.ref(one, press) if sys.argv[2] == "weakref" else None
    del one
    time.sleep(float(sys.argv[3]))  # which the signal ends
    print("went on")
"""


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("where", ["weakref", "__del__", "slow"])
def test_an_interrupt_that_python_drops_comes_again(own_folder: Path, where: str, number: str, code: int) -> None:
    (own_folder / "dropped.py").write_text(DROPPED)
    command = [sys.executable, "dropped.py", number, where, str(PATIENCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "\njaxperf: Interrupted.\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    "where", ["press()", "gc.callbacks.append(callback) or gc.collect()", "import pressing", "eval('press()')"]
)
@pytest.mark.long
def test_no_interrupt_is_lost_or_garbled(own_folder: Path, where: str, number: str) -> None:
    """Python drops what is raised in a callback of its collector; a module in C makes something else of it."""
    (own_folder / "pressing.py").write_text("try:\n    press()\nexcept KeyboardInterrupt:\n    raise ImportError\n")
    code = (
        "import builtins, gc, signal, time\nfrom jaxperf.cli.interrupts import interruptible\n"
        f"builtins.press = lambda: signal.raise_signal(signal.{number})\n"
        "def callback(phase, info):\n    if phase == 'start':\n        press()\n"
        f"with interruptible():\n    {where}\n    gc.callbacks.clear()\n"
        f"    time.sleep({PATIENCE})\n    print('went on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    code = 128 + getattr(signal, number)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "\njaxperf: Interrupted.\n")
