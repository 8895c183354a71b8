"""Families fitted anew replace the old ones; the rest is carried over untouched, with what the card says of it."""

from __future__ import annotations

from typing import Any

from calibration.kernels.carry import carried, fits
from calibration.kernels.parameters import Parameters

ROW = {"format": "bf16", "device": "t4", "split": "unseen shapes", "rows": 9, "mean": 5.0, "p90": 9.0}
ROW |= {"roofline_median": 50.0}


def stated(name: str, command: str, **card: Any) -> Parameters:
    """Parameters of one family with a card; nothing reads what the family holds."""
    errors = [{**ROW, "family": name, "median": float(len(command))}]
    holder: Any = [command]
    return Parameters({name: holder}, {"command": command, "created": "2026-01-01", "errors": errors, **card})


OLD = stated("norm", "old", devices=["t4"], data=[{"file": "a"}], adapted={"norm": ["t4/x"]})


def test_a_new_family_stands_beside_the_old_ones() -> None:
    new = stated("gemm", "newer", devices=["l4"], data=[{"file": "a"}, {"file": "b"}])
    both = carried(OLD, new)
    assert both.families["norm"] is OLD.families["norm"] and both.families["gemm"] is new.families["gemm"]
    assert both.card["errors"] == OLD.card["errors"] + new.card["errors"]
    assert both.card["devices"] == ["l4", "t4"] and both.card["data"] == [{"file": "a"}, {"file": "b"}]
    assert both.card["adapted"] == {"norm": ["t4/x"]}
    assert {name: fit["command"] for name, fit in fits(both).items()} == {"norm": "old", "gemm": "newer"}


def test_a_family_fitted_anew_leaves_nothing_of_the_old_one() -> None:
    again = carried(OLD, stated("norm", "newer"))
    assert again.families["norm"] == ["newer"] and again.card["adapted"] == {}
    assert again.card["errors"] == [{**ROW, "family": "norm", "median": 5.0}]
    assert fits(again) == {"norm": {"created": "2026-01-01", "command": "newer"}}


def test_carrying_twice_keeps_who_was_fitted_when() -> None:
    both = carried(carried(OLD, stated("gemm", "first")), stated("moe", "second"))
    assert {name: fit["command"] for name, fit in fits(both).items()} == {
        "norm": "old",
        "gemm": "first",
        "moe": "second",
    }
