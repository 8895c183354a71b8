"""`jaxperf edge`: the same rows in the same order, devices known and adapted to, and every mistake one sentence."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from calibration.edge.parameters import load_edge
from calibration.edge.spaces import SPACES

A = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|avg_pool_3x3~1|nor_conv_3x3~2|"
B = "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|none~0|avg_pool_3x3~1|nor_conv_1x1~2|"
F = "k5_e6|skip|k3_e1_g2|skip|k5_e1|skip|skip|skip|k5_e6|k5_e1|k3_e1_g2|k5_e1|k5_e6|k3_e6|k3_e3|k5_e6|k3_e6|k3_e3|k5_e1"
F += "|k3_e3|k5_e1|k5_e1_g2"
TABLE = f"""note,arch,device,batch,latency_ms
a,{A},Titan RTX,32,7.0
b,{F},Pixel 3,,x
c,{B},phone,,
d,resnet,pixel3,,
"e, last",{B},titan-rtx_32,,
"""
COLUMNS = ("predicted_ms", "lower_ms", "upper_ms", "macs", "tier", "reason")


def read(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).open(newline="")))


def test_rows_come_back_with_latency_interval_and_tier(cli, table: Path) -> None:
    result = cli("edge", table, "-o", "out.csv")
    assert result.exit_code == 0 and "3 of 5 rows predicted" in result.output
    rows = read("out.csv")
    assert [row["note"] for row in rows] == ["a", "b", "c", "d", "e, last"]
    assert tuple(rows[0])[-6:] == COLUMNS
    for row in (rows[0], rows[1], rows[4]):
        assert 0.0 < float(row["lower_ms"]) < float(row["predicted_ms"]) < float(row["upper_ms"])
        assert row["tier"] == "measured" and row["reason"] == ""
    assert "device: 'phone' was not measured on nasbench201; measure 10" in rows[2]["reason"]
    assert rows[2]["predicted_ms"] == "" and float(rows[2]["macs"]) > 0
    assert rows[3]["reason"].startswith("arch: 'resnet' is no network")
    known = load_edge().spaces["nasbench201"]
    cell = np.array([SPACES["nasbench201"].parse(B)])
    (latency,) = known.prior.latency("titan_rtx_32", SPACES["nasbench201"].features(cell))
    assert float(rows[4]["predicted_ms"]) == pytest.approx(1e3 * latency)


def test_a_device_of_ones_own_is_adapted_to(cli, table: Path, own_folder: Path) -> None:
    """Measured to be three times as slow as a known one, it is three times as slow on another network."""
    names = ["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
    cells = np.random.default_rng(1).integers(0, 5, (40, 6)).tolist()
    texts = ["|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|".format(*(names[each] for each in cell)) for cell in cells]
    space = SPACES["nasbench201"]
    slow = 3.0 * load_edge().spaces["nasbench201"].prior.latency("fpga", space.features(np.array(cells)))
    own = own_folder / "own.csv"
    own.write_text("arch,device,latency_s\n" + "".join(f"{a},phone,{t}\n" for a, t in zip(texts, slow, strict=True)))
    record = json.loads(cli("edge", table, "-o", "out.csv", "--adapt", own, "--json").stdout)
    assert record["tiers"] == {"measured": 3, "adapted": 1} and record["adapted_to"]["rows"] == 40
    row = read("out.csv")[2]
    cell = np.array([space.parse(B)])
    (expected,) = 3.0 * load_edge().spaces["nasbench201"].prior.latency("fpga", space.features(cell))
    assert float(row["predicted_ms"]) == pytest.approx(1e3 * expected, rel=0.03)
    assert float(row["lower_ms"]) <= 1e3 * expected <= float(row["upper_ms"])


def test_few_networks_are_said(cli, table: Path, own_folder: Path) -> None:
    (own_folder / "own.csv").write_text(f"arch,device,latency_ms\n{A},phone,40\n")
    result = cli("edge", table, "-o", "out.csv", "--adapt", "own.csv")
    assert "note (1): adapted to fewer than 10 networks (to 1)" in result.output


def test_columns_named_after_devices(cli, own_folder: Path) -> None:
    """As HELP's tables are laid out: a column of a device has its latencies in milliseconds."""
    (own_folder / "wide.csv").write_text(f"arch_idx,arch,pixel3,phone\n0,{A},20,8\n1,{B},3,2\n")
    record = json.loads(cli("edge", "wide.csv", "-o", "out.csv", "--device", "pixel3", "--json").stdout)
    assert record["predicted"] == 2 and record["errors"][0]["rows"] == 2
    record = json.loads(
        cli("edge", "wide.csv", "-o", "own.csv", "--device", "phone", "--adapt", "wide.csv", "--json").stdout
    )
    assert record["tiers"] == {"adapted": 2} and record["errors"][0]["median"] < 0.5


def test_nothing_predicted_ends_with_3(cli, own_folder: Path) -> None:
    (own_folder / "in.csv").write_text(f"arch,device\n{A},phone\n")
    assert cli("edge", "in.csv", "-o", "out.csv").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.csv", "-o", "out.csv"), "No such file"),
        (("in.csv", "-o", "in.csv"), "is the input"),
        (("in.csv", "-o", "out.csv", "--device", "pixel3"), "the column 'device' states the devices"),
        (("bare.csv", "-o", "out.csv"), "the column 'device' is missing"),
        (("no.csv", "-o", "out.csv", "--device", "pixel3"), "the column 'arch' is missing"),
        (("in.csv", "-o", "out.csv", "--adapt", "in.csv"), "in.csv, row 2: latency: 'x' is no time above zero."),
        (("in.csv", "-o", "out.csv", "--adapt", "untimed.csv"), "has no latency; name its column"),
        (("in.csv", "-o", "out.csv", "--params", "none"), "Cannot read parameters"),
    ],
)
def test_refused(refuse, table: Path, own_folder: Path, arguments: tuple[str, ...], said: str) -> None:
    (own_folder / "bare.csv").write_text(f"arch\n{A}\n")
    (own_folder / "no.csv").write_text("cell\n1\n")
    (own_folder / "untimed.csv").write_text(f"arch,device\n{A},phone\n")
    assert said in refuse("edge", *arguments)
    assert not (own_folder / "out.csv").exists()


def test_a_batch_that_is_none_is_said_in_its_row(cli, own_folder: Path) -> None:
    (own_folder / "in.csv").write_text(f"arch,device,batch\n{A},titan_rtx,32.5\n{A},titan_rtx,32.0\n")
    cli("edge", "in.csv", "-o", "out.csv")
    rows = read("out.csv")
    assert rows[0]["reason"] == "batch: '32.5' is no whole number of images, at least 1." and rows[1]["tier"]
