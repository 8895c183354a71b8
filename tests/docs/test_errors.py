"""The error tables of docs are those that the cards of the shipped parameters state, to the digits that are printed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from calibration.kernels.card import by_family, intervals, stated_errors
from tests.docs import page

FITTED = page.DOCS.parent / "calibration" / "fitted"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
HELD_OUT = {
    "Generations never seen": "unseen generation",
    "Adapted with 200 rows": "200 rows",
    "Adapted with a tenth of the rows": "10 % of rows",
    "Shapes never seen": "unseen shapes",
}
SPLITS = ("unseen generation", "200 rows", "10 % of rows", "unseen shapes")
SERVED = {"dense": "dense", "experts": "experts", "disaggregated": "disagg", "fixed": "static"}
FAMILY = ("median", "mean", "p90", "roofline_median", "constant_median")


def card(name: str) -> dict[str, Any]:
    return json.loads((FITTED / f"{name}.json").read_text(encoding="utf-8"))


def rows_below(name: str, start: str) -> Iterator[list[str]]:
    """The rows of the first table of `docs/NAME` that stands below the line beginning with `start`, cell by cell."""
    lines = (page.DOCS / name).read_text(encoding="utf-8").splitlines()
    from_there = itertools.dropwhile(lambda line: not line.startswith(start), lines)
    from_table = itertools.dropwhile(lambda line: not line.startswith("|"), from_there)
    table = list(itertools.takewhile(lambda line: line.startswith("|"), from_table))
    assert len(table) > 2, (name, start)
    return ([cell.strip() for cell in line.strip("|").split("|")] for line in table[2:])


def assert_printed(cell: str, values: list[float], where: object) -> None:
    """The numbers of a cell are `values`, rounded to as many decimals as stand there."""
    texts = [text.replace(",", "") for text in NUMBER.findall(cell)]
    assert len(texts) == len(values), (where, cell)
    for text, value in zip(texts, values, strict=True):
        decimals = len(text.partition(".")[2])
        assert abs(float(text) - value) <= 0.501 * 10.0**-decimals, (where, cell, value)


@pytest.mark.parametrize("heading", HELD_OUT)
def test_kernels(heading: str) -> None:
    stated = {row["family"]: row for row in by_family(stated_errors(card("kernels")), HELD_OUT[heading])}
    for family, devices, rows, *figures, worst in rows_below("accuracy.md", f"### {heading}"):
        row = stated.pop(family)
        assert [int(devices), int(rows.replace(",", ""))] == [row["devices"], row["rows"]], family
        for name, cell in zip(FAMILY, figures, strict=True):
            assert_printed(cell, [row[name]], (family, name))
        assert worst.startswith(row["worst_device"]), family
    assert not stated


def test_intervals_of_kernels() -> None:
    stated = {(row["split"], row["family"], row["device"]): row for row in intervals(stated_errors(card("kernels")))}
    names = ("coverage90", "half_width", "interval_score")
    for family, device, *cells in rows_below("accuracy.md", "| family | device | unseen generation"):
        for split, cell in zip(SPLITS, cells[:1] + cells[2:], strict=True):
            row = stated[split, family, device]
            assert_printed(cell, [row[name] for name in names], (split, family, device))


def test_serving() -> None:
    stated = {(row["split"], row["part"], row["who"], row["output"]): row for row in card("serving")["errors"]}
    for split, part, rows, *cells in rows_below("serve-table.md", "| held out | part"):
        for who, cell in zip(("ours", "constant", "roofline"), cells, strict=True):
            found = [stated[split, SERVED[re.split(r"\W", part)[0]], who, output] for output in ("ttft", "tpot")]
            assert_printed(cell, [100 * row["median"] for row in found], (split, part, who))
            assert int(rows) == found[1]["rows"], (split, part)


def test_training() -> None:
    splits = {"configuration": "group", "sources": "source", "models": "model", "all": "native"}
    stated = {(row["split"], row["part"], row["who"]): row for row in card("training")["errors"]}
    for what, rows, *cells in rows_below("train-table.md", "| held out | rows"):
        split, part = splits[what.split()[0].strip(",")], "exploratory" if "exploratory" in what else "dense"
        for who, cell in zip(("ours", "constant", "mfu_0.5", "mfu_0.4"), cells, strict=True):
            row = stated[split, part, who]
            assert int(rows) == row["rows"], what
            if cell != "as above":
                assert_printed(cell, [100 * row[name] for name in ("mean", "median", "p90")], (what, who))


def test_iterations() -> None:
    stated = {(row["mode"], row["device"], row["split"]): row for row in card("graphs")["errors"]}
    for mode, device, _, *cells in rows_below("composition.md", "| mode | device"):
        for split, cell in zip(("left out", "ten operations", "kernels measured"), cells[:3], strict=True):
            assert_printed(cell, [stated[mode, device, split]["error"]], (mode, device, split))


def test_batches() -> None:
    splits = {"nothing": "fitted", "the row": "row", "the device": "device", "the generation": "generation"}
    stated = {(row["split"], row["phase"]): row for row in card("batches")["errors"]}
    for what, prefill, _, decode, _ in rows_below("batches.md", "| held out | prefill"):
        split = splits[what.partition(" (")[0]]
        for phase, cell in (("prefill", prefill), ("decode_step", decode)):
            assert_printed(cell, [100 * stated[split, phase][name] for name in ("mean", "median")], (what, phase))


def test_gemmini() -> None:
    for row, cells in zip(card("gemmini")["errors"], rows_below("gemmini.md", "| model | mean"), strict=True):
        for name, cell in zip(("mean", "median", "p90"), cells[1:4], strict=True):
            assert_printed(cell, [100 * row[name]], (row["who"], name))


def test_sustained() -> None:
    families = card("sustained")["families"]
    for family, bits, device, *cells in rows_below("sustained.md", "| family | class"):
        whole = families[family]["classes"][bits]
        row = whole if device == "unseen" else whole["devices"][device]
        values = (row["compute"], row["memory"], 1e6 * row["floor"], row["median"], row["half_width"][1])
        for cell, value in zip(cells, values, strict=True):
            assert_printed(cell, [value], (family, bits, device))


def test_power() -> None:
    stated = {(row["split"], row["output"], row["who"]): row for row in card("power")["errors"]}
    for split, output, _, *cells in rows_below("power.md", "| held out | output"):
        for who, cell in zip(("ours", "constant", "tdp"), cells, strict=True):
            row = stated[split, output.replace(" ", "_"), who]
            assert_printed(cell, [100 * row[name] for name in ("median", "mean", "p90")], (split, output, who))
