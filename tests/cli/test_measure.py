"""`jaxperf measure`: a table and its card, one sentence for every mistake, and nothing lost on Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import calibration.microbench.card
import calibration.microbench.run
import jaxperf.io.tables
from calibration.datasets import data_hash, read_table

NAMED = ("--as", "xeon-cloud-2-core")
SMALL = (*NAMED, "--family", "softmax", "--points", "2", "--longest", "100us")


@pytest.fixture(autouse=True)
def plain_jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command runs in a process of its own; memory streams are measured over little, the rest as ever."""
    names = ("jax_numpy_rank_promotion", "jax_numpy_dtype_promotion", "jax_enable_x64")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, ("allow", "standard", False), strict=True):
        jax.config.update(name, value)
    monkeypatch.setattr(calibration.microbench.card, "STREAMED", 1e-3)
    monkeypatch.setattr(calibration.microbench.card, "FLUSHED", 1e-3)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_table_and_its_card(cli, own_folder: Path) -> None:
    result = cli("measure", "-o", "mine.parquet", *SMALL, "--buffers", "both", "--statistic", "fastest")
    assert result.exit_code == 0, result.output
    assert "8 of 8 kernels measured on xeon-cloud-2-core" in result.stdout
    assert "the dispatch of a call" in result.stdout
    read = read_table(own_folder / "mine.parquet")
    assert not read.problems and [len(table) for table in read.tables] == [8]
    card = json.loads((own_folder / "mine.json").read_text())
    assert card["sha256"] == data_hash(own_folder / "mine.parquet")
    assert (card["kernels_measured"], card["stopped"], card["statistic"]) == (8, None, "fastest")
    assert card["machine"]["versions"]["jax"] == jax.__version__
    assert card["dispatch_floor_us"]["fastest"] > 0.0 and card["stream_bandwidth"] > 0.0
    assert sorted({entry["operands"] for entry in card["families"]}) == ["cold", "resident"]


def test_the_same_seed_gives_the_same_kernels(cli, own_folder: Path) -> None:
    shapes = []
    for name, seed in (("a.csv", "5"), ("b.csv", "5"), ("c.csv", "6")):
        assert cli("measure", "-o", name, *SMALL, "--seed", seed, "--dtype", "bf16", "--quiet").exit_code == 0
        (table,) = read_table(own_folder / name).tables
        shapes.append({name: column.tolist() for name, column in table.shape.items()})
    assert shapes[0] == shapes[1] != shapes[2]


def test_json_is_the_card(cli, own_folder: Path, parse_json) -> None:
    result = cli("measure", "-o", "mine.csv", *SMALL, "--json")
    record = parse_json(result.stdout)
    assert record["written"] == ["mine.csv", "mine.json"]
    assert record["kernels_measured"] == 4 and record["device"] == "xeon-cloud-2-core"


def stop_after(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Ctrl-C arrives while the next kernel is measured."""
    whole, calls = calibration.microbench.run.time_point, [0]

    def stopping(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] > rows:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(calibration.microbench.run, "time_point", stopping)


def test_ctrl_c_keeps_what_was_measured(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, 3)
    result = cli("measure", "-o", "mine.parquet", *SMALL)
    assert result.exit_code == 130
    assert "3 of 4 kernels are measured and kept in 'mine.parquet'" in result.stderr
    assert read_table(own_folder / "mine.parquet").rows == 3
    assert json.loads((own_folder / "mine.json").read_text())["stopped"] == "interrupted"


def test_a_full_disk_does_not_lose_what_was_measured(cli, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setitem(jaxperf.io.tables.WRITERS, ".csv", full)
    result = cli("measure", "-o", "mine.csv", *SMALL)
    assert result.exit_code == 2
    assert "No space left on device. Standard output has the 4 kernels measured, as CSV." in " ".join(
        result.stderr.split()
    )
    assert list(own_folder.iterdir()) == []
    (own_folder / "kept.csv").write_text(result.stdout)
    read = read_table(own_folder / "kept.csv")
    assert read.rows == 4 and not read.problems


def test_ctrl_c_before_the_first_kernel_writes_nothing(cli, own_folder: Path, monkeypatch) -> None:
    stop_after(monkeypatch, 0)
    result = cli("measure", "-o", "mine.parquet", *SMALL)
    assert result.exit_code == 130 and "nothing is written" in result.stderr
    assert list(own_folder.iterdir()) == []


def test_the_budget_ends_a_run(cli, own_folder: Path, refuse) -> None:
    assert "give a longer --budget" in refuse("measure", "-o", "mine.csv", *SMALL, "--budget", "1ns")
    assert list(own_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "gpuu"), "'gpuu' is not allowed; allowed: cpu, gpu."),
        (("--as", "xeon-cloud-2-cores"), "--as: 'xeon-cloud-2-cores' is not a known device."),
        (("--as", "h100-sxm"), "--as: h100-sxm is of the kind 'gpu'; what is measured here is a cpu."),
        ((*NAMED, "--family", "gem"), "'gem' is not measured."),
        ((*NAMED, "--family", "collective"), "needs two devices or more"),
        ((*NAMED, "--dtype", "fp64"), "'fp64' is not measured in these families"),
        ((*NAMED, "--points", "0"), "--points is 0"),
        ((*NAMED, "--seed", "-1"), "--seed is -1"),
        ((*NAMED, "--longest", "5 GB"), "--longest: "),
        ((*NAMED, "--budget", "0s"), '--budget: "0s" must be finite and greater than zero'),
        ((*NAMED, "--buffers", "warm"), "'warm' is not allowed; allowed: resident, cold, both."),
        ((*NAMED, "--statistic", "mean"), "allowed: median, fastest, sustained."),
        ((*NAMED, "--statistic", "sustained"), "which --meter TIME measures; give both."),
        ((*NAMED, "--meter", "2min"), "--meter must be at most 60 s a kernel."),
        ((*NAMED, "--meter", "1s"), "--meter reads NVIDIA GPUs"),
        ((*NAMED, "--shortest", "5ms"), "--shortest must be below --longest."),
        ((*NAMED, "--clock", "device"), "--clock: 'device' is not allowed; allowed: host."),
        ((*NAMED, "-o", "mine.xlsx"), "the ending must be one of .parquet, .csv."),
        ((*NAMED, "-o", "nowhere/mine.csv"), "does not exist"),
    ],
)
def test_mistakes_are_one_sentence(refuse, own_folder: Path, arguments: tuple[str, ...], told: str) -> None:
    given = ("-o", "mine.csv", *arguments)
    sentence = refuse("measure", *given)
    assert told in sentence and len(sentence.strip().splitlines()) == 1
    assert list(own_folder.iterdir()) == []


def test_an_unnamed_processor_says_how_to_name_it(refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    import calibration.microbench.machine

    monkeypatch.setattr(calibration.microbench.machine, "processor_name", lambda: "Some Processor")
    sentence = refuse("measure", "-o", "mine.csv")
    assert "calls this device 'Some Processor'" in sentence and "--as DEVICE" in sentence and "TOML" in sentence


def test_a_backend_that_is_not_there(refuse) -> None:
    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this machine has a GPU")
    assert "JAX finds no gpu here, only cpu" in refuse("measure", "-o", "mine.csv", "--device", "gpu")


def test_a_card_of_parameters_is_not_written_over(own_folder: Path, refuse) -> None:
    (own_folder / "mine.json").write_text('{"schema": 2, "families": {}}')
    sentence = refuse("measure", "-o", "mine.parquet", *SMALL)
    assert "'mine.json' is the card of something else than a measurement" in sentence and "-o" in sentence
    assert [each.name for each in own_folder.iterdir()] == ["mine.json"]
