"""`validate kernels --card`: the errors that the shipped parameters state, without a refit."""

from __future__ import annotations

import pytest

from calibration.card import by_family, pooled

ERRORS = [
    {"family": "gemm", "device": device, "format": form, "split": "unseen shapes", "rows": rows, "median": median}
    | {"mean": 2 * median, "p90": 4 * median, "roofline_median": 50.0}
    for device, form, rows, median in (("a", "bf16", 300, 2.0), ("a", "fp8", 100, 6.0), ("b", "bf16", 10, 9.0))
]


def test_formats_weigh_by_rows_and_devices_alike() -> None:
    (row,) = by_family(ERRORS, "unseen shapes")
    assert row["median"] == pytest.approx((3.0 + 9.0) / 2)
    assert (row["devices"], row["rows"], row["worst_device"], row["worst_median"]) == (2, 410, "b", 9.0)
    assert pooled(ERRORS, "unseen shapes") == {"median": 6.0, "roofline_median": 50.0, "cells": 2}
    assert pooled(ERRORS, "unseen generation")["cells"] == 0


def test_the_card_of_the_shipped_parameters(cli, parse_json) -> None:
    record = parse_json(cli("validate", "kernels", "--card", "--json").stdout)
    assert set(record["pooled"]) == {"unseen shapes", "unseen generation"}
    assert all(each["median"] < each["roofline_median"] for each in record["pooled"].values())
    assert {"gemm", "gemm_vector", "moe"} <= {row["family"] for row in record["families"]}
    assert "pooled median" in cli("validate", "kernels", "--card").stdout
