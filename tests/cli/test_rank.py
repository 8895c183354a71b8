"""`rank`: three objectives, prices, targets, and who is left out and why."""

from __future__ import annotations

import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxperf as jp
from jaxperf.io.tables import json_text
from jaxperf.serving.unit_costs import ENERGY_NOTE

LENGTHS = ("--prompt", "64", "--output", "8")
RANK = ("rank", "gpt2", "--devices", "h100-sxm,l4", *LENGTHS, "--max-devices", "2", "--max-batch", "4")
INTERVALS = ("ttft", "tpot", "tokens_per_second", "tokens_per_second_per_device", "tokens_per_joule")


@pytest.fixture
def ranking(answered):
    """Runs `rank --json`; gives (provenance, rows)."""
    return lambda *arguments, **code: itemgetter("provenance", "rows")(answered(*arguments, **code))


@pytest.mark.parametrize("objective", ["tokens/s/device", "tokens/J", "tokens/$"])
def test_objectives(ranking, objective: str) -> None:
    prices = ("--price", "H100=3,l4 = 0.5")
    provenance, rows = ranking(*RANK, "--by", objective, *prices)
    assert (ENERGY_NOTE in provenance["notes"]) == (objective == "tokens/J")
    assert provenance["objective"] == objective and "calibrated: " in provenance["efficiencies"]
    assert [row["rank"] for row in rows] == [1, 2]
    assert rows[0]["score"] >= rows[1]["score"]
    price = {"h100-sxm": 3.0, "l4": 0.5}
    for row in rows:
        per_device = row["tokens_per_second_per_device"]
        wanted = {"tokens/s/device": per_device, "tokens/J": row["tokens_per_joule"]}
        wanted["tokens/$"] = per_device * 3600.0 / price[row["device"]]
        assert row["score"] == pytest.approx(wanted[objective], rel=1e-12)
        assert row["score_lower"] <= row["score"] <= row["score_upper"]
        for name in INTERVALS:
            assert 0.0 < row[f"{name}_lower"] <= row[name] <= row[f"{name}_upper"]
        assert row["num_devices"] == row["tensor_parallel"] * row["pipeline_parallel"] * row["data_parallel"]


def test_python_ranks_as_the_command_does(ranking, parse_json) -> None:
    asked = {"by": "tokens/$", "max_devices": 2, "max_batch": 4, "prompt": 64, "output": 8, "weights": "fp8"}
    prices: dict[str, Any] = {"H100": np.float32(3.0), "l4": 0.5}
    report = jp.rank("gpt2", ["h100-sxm", "l4"], slo={"tpot": np.float64(0.05)}, prices=prices, **asked)
    more = ("--weights", "fp8", "--slo", "tpot=50ms", "--price", "h100-sxm=3", "--price", "l4=0.5")
    assert parse_json(json_text([report.provenance, report.rows])) == [*ranking(*RANK, *more)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"slo": {"tpt": 1.0}}, "An SLO takes no 'tpt'; allowed: ttft, tpot. Did you mean tpot?"),
        ({"slo": {"tpot": "1s"}}, "The slo of tpot is '1s'; it must be a number above zero"),
        ({"prices": {"l44": 1.0}}, "A price list takes no 'l44'"),
        ({"prices": {"l4": -1.0}}, "The price of l4 is -1.0"),
        ({"slo": None}, "'slo' is null; it must map names to numbers"),
        ({"prices": [2.0]}, "'prices' is a list of 1"),
        ({"prompt": [64, 128]}, "'prompt' has 2 values"),
        ({"by": ["tokens/J"]}, "Cannot rank by '['tokens/J']'"),
        ({"directories": 3}, "The folders of devices are 3"),
        ({"devices": None}, "The devices are None; name some"),
        ({"batch": 3}, "A ranking takes no 'batch'; allowed: prompt"),
        ({"by": "tokens/W"}, "Cannot rank by 'tokens/W'"),
    ],
)
def test_what_python_asks_wrongly_is_one_sentence(given: dict, said: str) -> None:
    with pytest.raises(jp.InputError, match=re.escape(said)):
        jp.rank("gpt2", **{"devices": "l4", **given})


def test_prices_from_a_file_may_name_other_devices(ranking, own_folder: Path) -> None:
    (own_folder / "prices.toml").write_text('h100-sxm = 3.0\nmi300x = 2\na40 = "0.4"\n')
    provenance, rows = ranking(*RANK, "--price", "prices.toml")
    assert provenance["objective"] == "tokens/$", "what else are prices for"
    assert [row["device"] for row in rows] == ["h100-sxm"]
    assert provenance["not_ranked"] == {"l4": "no price given"}


def test_own_devices_can_be_priced_by_alias(ranking, own_folder: Path) -> None:
    (own_folder / "my-chip.toml").write_text('name = "my-chip"\nbase = "l4"\naliases = ["chippy"]\n')
    arguments = ("rank", "gpt2", "--devices", "chippy,l4", *LENGTHS, "--max-devices", "2", "--max-batch", "4")
    more = ("--devices-dir", ".", "--by", "tokens/$", "--price", "chippy=1", "--price", "l4=2")
    _, rows = ranking(*arguments, *more)
    assert [row["device"] for row in rows] == ["my-chip", "l4"]
    assert rows[0]["score"] == pytest.approx(2.0 * rows[1]["score"])


def test_targets_nobody_meets(cli, ranking, own_folder: Path) -> None:
    provenance, rows = ranking(*RANK, "--slo", "tpot=1us", code=3)
    assert rows == [] and set(provenance["not_ranked"]) == {"h100-sxm", "l4"}
    assert all(why.endswith("target 0.001 ms") for why in provenance["not_ranked"].values())
    result = cli(*RANK, "--slo", "tpot=1us", "--plot", "ranking.png")
    assert result.exit_code == 3 and "not ranked  h100-sxm: best tpot" in result.stdout
    assert list(own_folder.iterdir()) == []
    quiet = cli(*RANK, "--slo", "tpot=1us", "--quiet")
    assert quiet.exit_code == 3 and "not ranked  h100-sxm: best tpot" in quiet.stdout


def test_text_says_why_and_from_what(cli) -> None:
    text = cli(*RANK, "--weights", "FP8", "--slo", "ttft=1s,tpot=100ms").stdout
    assert "TTFT <= 1000 ms and TPOT <= 100 ms" in text
    for said in ("why         h100-sxm gives", "calibrated: ", "configurations", "no queueing"):
        assert said in text
    (why,) = (line for line in cli(*RANK, "--price", "h100=3", "--price", "l4=3").stdout.splitlines() if "why" in line)
    rates = why.partition("gives ")[2].split()[0], why.partition("it has ")[2].split()[0]
    assert rates[0] == rates[1] and "1.00 x the price" in why
    quiet = cli(*RANK, "--quiet").stdout
    assert "h100-sxm" in quiet and "calibrated" not in quiet


def test_stand_ins_are_said_aloud(cli, own_folder: Path, parse_json) -> None:
    arguments = ("rank", "gpt2", "--devices", "h100-sxm,a100-sxm-80gb", *RANK[4:], "--weights", "mxfp8")
    said = cli(*arguments, "-o", "rows.json").stdout
    assert "no fp8 units, multiplied in bf16: a100-sxm-80gb" in said
    assert "no units for the scales of mxfp8, counted at the fp8 rate: h100-sxm" in said
    rows = parse_json((own_folder / "rows.json").read_text())["rows"]
    used = {row["device"]: row["weights_multiplied_in"] for row in rows}
    assert used == {"h100-sxm": "fp8", "a100-sxm-80gb": "bf16"}


@pytest.mark.long
def test_experts_are_spread(ranking) -> None:
    arguments = ("rank", "mixtral-8x7b", "--devices", "h100-sxm", "--max-devices", "4", "--max-batch", "8")
    provenance, rows = ranking(*arguments, "--prompt", "256", "--output", "32")
    # Tensor x pipeline x data of at most 4: ten splits, three of them (tensor 2 and 4, data 1) with and without experts
    # spread; eight batches.
    assert provenance["points"] == 13 * 8
    winner = rows[0]
    assert winner["tensor_parallel"] * winner["data_parallel"] % winner["expert_parallel"] == 0
    assert winner["memory_share"] <= 1.0


def test_twenty_devices_serve_llama(ranking) -> None:
    provenance, rows = ranking("rank", "llama-3-70b", "--slo", "ttft=2s,tpot=50ms", "--max-batch", "64")
    assert len(rows) >= 20
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    for row in rows:
        assert row["ttft"] <= 2.0 and row["tpot"] <= 0.05 and row["memory_share"] <= 1.0
    assert not {row["device"] for row in rows} & set(provenance["not_ranked"])
    assert all(provenance["not_ranked"].values())
