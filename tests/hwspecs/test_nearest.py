"""Which known names a mistyped one gets as a hint, and which get none."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs.edits import edits
from hwspecs.errors import did_you_mean, nearest

COMMANDS = ("estimate", "rank", "sweep", "trace", "train", "serve", "edge", "batches", "colocate", "devices", "models")
COLUMNS = ("device", "dtype", "op", "m", "n", "k", "kv_len", "heads", "tp", "ep", "rows", "bytes", "latency_us")
DEVICES = ("h100-sxm", "H100 SXM", "h100-nvl", "mi300x", "rtx-4090", "rtx-3090", "titan-rtx", "t4", "a2", "grace")
TARGETS = ("ttft", "tpot", "e2e")


@pytest.mark.parametrize(
    ("name", "among", "found"),
    [
        ("smulate", ("simulate",), ["simulate"]),
        ("trian", COMMANDS, ["train"]),  # swapped letters are one slip
        ("sereve", COMMANDS, ["serve"]),
        ("model", COMMANDS, ["models"]),
        ("tptt", TARGETS, ["tpot"]),
        ("kk", COLUMNS, ["k"]),
        ("pt", COLUMNS, ["tp"]),
        ("latency", COLUMNS, ["latency_us"]),
        ("h1", DEVICES, ["h100-sxm"]),
        ("H100", DEVICES, ["h100-sxm", "h100-nvl"]),  # a spelling of the same letters is said once
        ("rtx 4091", DEVICES, ["rtx-4090", "rtx-3090"]),
        ("RTX Titan", DEVICES, ["titan-rtx"]),  # its words, in another order
        ("h100-sxm-80gb", DEVICES, ["h100-sxm"]),
        ("router", ("routing", "sched"), ["routing"]),
    ],
)
def test_a_slip_gets_the_name_that_was_meant(name: str, among: tuple[str, ...], found: list[str]) -> None:
    assert nearest(name, among)[: len(found)] == found


@pytest.mark.parametrize("name", ["banana", "foo", "bar", "abc", "cat", "tree", "name", "to", "x", "", "-", "123"])
def test_a_name_that_is_like_none_gets_no_hint(name: str) -> None:
    assert [did_you_mean(name, among) for among in (COMMANDS, COLUMNS, DEVICES, TARGETS)] == [""] * 4


def test_a_cutoff_spares_only_names_that_go_on() -> None:
    assert nearest("h100", DEVICES, cutoff=0.9) == ["h100-sxm", "h100-nvl"]
    assert nearest("trian", COMMANDS, cutoff=0.9) == []


@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_edits_are_those_of_the_recursion(one: str, other: str) -> None:
    @cache
    def left(i: int, j: int) -> int:
        if min(i, j) == 0:
            return max(i, j)
        ways = [left(i - 1, j) + 1, left(i, j - 1) + 1, left(i - 1, j - 1) + (one[i - 1] != other[j - 1])]
        if min(i, j) > 1 and (one[i - 2], one[i - 1]) == (other[j - 1], other[j - 2]):
            ways.append(left(i - 2, j - 2) + 1)
        return min(ways)

    assert edits(one, other) == left(len(one), len(other))
