"""`validate kernels --card`: the errors that the shipped parameters state, without a refit."""

from __future__ import annotations

import pytest

from calibration.kernels.card import by_family, pooled, stated_errors
from calibration.kernels.parameters import Parameters
from hwspecs.errors import InputError

ERRORS = [
    {"family": "gemm", "device": device, "format": form, "split": "unseen shapes", "rows": rows, "median": median}
    | {"mean": 2 * median, "p90": 4 * median, "roofline_median": 50.0, "constant_median": 5.0 * median}
    for device, form, rows, median in (("a", "bf16", 300, 2.0), ("a", "fp8", 100, 6.0), ("b", "bf16", 10, 9.0))
]


def test_formats_weigh_by_rows_and_devices_alike() -> None:
    (row,) = by_family(ERRORS, "unseen shapes")
    assert row["median"] == pytest.approx((3.0 + 9.0) / 2)
    assert (row["devices"], row["rows"], row["worst_device"], row["worst_median"]) == (2, 410, "b", 9.0)
    told = {"median": 6.0, "roofline_median": 50.0, "constant_median": 30.0, "cells": 2}
    assert pooled(ERRORS, "unseen shapes") == told
    assert pooled(ERRORS, "unseen generation")["cells"] == 0


def test_the_card_of_the_shipped_parameters(cli, parse_json) -> None:
    record = parse_json(cli("validate", "kernels", "--card", "--json").stdout)
    assert set(record["pooled"]) == {"unseen shapes", "unseen generation", "200 rows", "10 % of rows"}
    assert all(each["median"] < each["roofline_median"] for each in record["pooled"].values())
    assert {"gemm", "gemm_vector", "moe"} <= {row["family"] for row in record["families"]}
    assert all(0.0 < row["coverage90"] <= 100.0 and row["half_width"] > 0.0 for row in record["intervals"])
    for split in record["pooled"]:
        inside = [row["coverage90"] for row in record["intervals"] if row["split"] == split]
        assert len(inside) == record["pooled"][split]["cells"]
        assert 85.0 < sum(inside) / len(inside) < 95.0
        if split != "unseen generation":  # where single devices are missed
            assert min(inside) > 55.0
    assert "pooled median" in cli("validate", "kernels", "--card").stdout


@pytest.mark.parametrize(
    "errors", ["none", [{"family": "gemm"}], [ERRORS[0] | {"median": "x"}], [ERRORS[0] | {"rows": 0}]]
)
def test_a_card_without_a_table_of_errors_is_refused(errors: object) -> None:
    with pytest.raises(InputError, match="'errors' that are no table .*make them again"):
        stated_errors({"errors": errors})


def test_some_families_of_a_card(cli, refuse, parse_json, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [*ERRORS, *(row | {"family": "moe", "median": 1.0} for row in ERRORS)]
    monkeypatch.setattr("calibration.kernels.parameters.load_parameters", lambda path: Parameters({}, {}))
    monkeypatch.setattr("calibration.kernels.card.stated_errors", lambda card: errors)
    command = ("validate", "kernels", "--card", "--json")
    whole, some = (parse_json(cli(*command, *more).stdout) for more in ((), ("--family", "moe")))
    assert [row["family"] for row in whole["families"]] == ["gemm", "moe"]
    assert some["families"] == whole["families"][1:] and some["pooled"]["unseen shapes"]["median"] == 1.0
    assert "no errors of 'gem'. Did you mean gemm? It has gemm, moe." in refuse(*command, "--family", "gem")


@pytest.mark.parametrize("also", [("data.csv",), ("--whole-folds",)])
def test_a_card_takes_neither_data_nor_folds(refuse, also: tuple[str, ...]) -> None:
    assert "leave DATA and --whole-folds out" in refuse("validate", "kernels", "--card", *also)
    assert "--params goes with --card" in refuse("validate", "kernels", "--params", "mine", *also)


def test_errors_that_are_stated_are_taken_as_they_are(refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stated_errors({"errors": ERRORS}) == ERRORS and stated_errors({}) == []
    monkeypatch.setattr("calibration.kernels.card.stated_errors", lambda card: [])
    assert "states no errors" in refuse("validate", "kernels", "--card")
