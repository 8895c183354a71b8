"""Every layout once: factorizations against brute force, variants without duplicates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxperf.training.layout import SCHEDULES
from jaxperf.training.search.space import (
    GROUP_FIELDS,
    SPLIT_FIELDS,
    VARIANT_FIELDS,
    Space,
    crossed,
    divisors,
    kinds,
    splits,
    variants,
)


@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert divisors(number) == [each for each in range(1, number + 1) if number % each == 0]


@pytest.mark.parametrize(("devices", "experts"), [(1, 1), (24, 1), (16, 8), (30, 12)])
def test_splits_are_all_factorizations(devices: int, experts: int) -> None:
    space = Space(microbatches=(1, 3), least_tokens=1024)
    table = splits(devices, experts, 4096, space)
    rows = {tuple(row) for row in np.stack([table[name] for name in SPLIT_FIELDS], axis=1).astype(int).tolist()}
    sides = range(1, devices + 1)
    wanted = {
        (t, c, p, devices // (t * c * p), e, m)
        for t, c, p in itertools.product(sides, sides, sides)
        if devices % (t * c * p) == 0 and (c == 1 or c * 1024 <= 4096)
        for e in range(1, experts + 1)
        if experts % e == 0 and (devices // p) % e == 0
        for m in (1, 3)
    }
    assert rows == wanted and len(table["tensor"]) == len(wanted)


def test_no_layout_comes_twice() -> None:
    table = splits(64, 8, 8192, Space(microbatches=(1, 2)))
    seen = set()
    total = 0
    for kind, rows in kinds(table, 8, False):
        columns = crossed(table, rows, variants(kind, 8, Space()))
        layouts = np.stack([columns[name] for name in (*SPLIT_FIELDS, *VARIANT_FIELDS)], axis=1)
        total += len(layouts)
        seen |= set(map(tuple, layouts.tolist()))
        alone = columns["pipeline"] == 1.0
        assert (columns["schedule"][alone] == SCHEDULES.index("1f1b")).all()
        assert (columns["sequence_parallel"][columns["tensor"] == 1.0] == 0.0).all()
        one_way = columns["schedule"] < SCHEDULES.index("dualpipe")  # whose other end has copies to share with
        assert (columns["zero"][(columns["data"] * columns["context"] == 1.0) & one_way] == 0.0).all()
        assert (columns["interleave"][columns["schedule"] == SCHEDULES.index("interleaved")] > 1.0).all()
    assert len(seen) == total
    groups = {tuple(row) for row in np.stack([table[name] for name in GROUP_FIELDS], axis=1).tolist()}
    assert groups == {row[:5] for row in seen}
