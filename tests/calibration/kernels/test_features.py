"""Features of one kernel against plain arithmetic, and the same numbers however a table is laid out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets.groups import BLOCKS, CHUNK_WASTE, CHUNKS, FEW_ROWS, Groups, grouped
from calibration.datasets.text import Text, as_text, joined
from calibration.kernels.hardware import load_hardware
from calibration.kernels.inputs import Prepared, prepare
from tests.calibration.tables import blank_table, gemm_table

CORES = 132  # of an H100 SXM (NVIDIA H100 datasheet)


@pytest.fixture(scope="module")
def square() -> Prepared:
    sizes = np.array([4096.0, 8.0])
    shape = {"m": sizes, "n": sizes, "k": sizes, "batch": np.ones(2)}
    return prepare(blank_table("gemm", shape, np.full(2, "h100-sxm", dtype=object)))


@pytest.mark.parametrize(
    ("name", "large", "small"),
    [
        ("tiles 128x128 per core", math.log2(32 * 32 / CORES), math.log2(1 / CORES)),
        ("tiles 128x128 last wave", math.log(8 / (1024 / CORES)), math.log(CORES)),
        ("tiles 256x128 last wave", math.log(4 / (512 / CORES)), math.log(CORES)),
        ("log2 m", 12.0, 3.0),
        ("log2 batch", 0.0, 0.0),
        ("rows not of 8", 0.0, 0.0),
        ("rows not of 64", 0.0, 1.0),
        ("few rows", 0.0, 1.0),
    ],
)
def test_features_of_a_square_product(square: Prepared, name: str, large: float, small: float) -> None:
    assert square.features[:, square.names.index(name)] == pytest.approx([large, small], abs=1e-6)


SIZE = st.integers(1, 10**5)


@given(st.lists(st.tuples(SIZE, SIZE), min_size=8, max_size=8))
def test_waves_are_those_of_whole_numbers(sizes: list[tuple[int, int]]) -> None:
    m, n = np.array(sizes, float).T
    shape = {"m": m, "n": n, "k": np.ones(8), "batch": np.ones(8)}
    found = prepare(blank_table("gemm", shape, np.full(8, "h100-sxm", dtype=object))).waves
    assert found.tolist() == [-(-(-(-rows // 128) * -(-columns // 128)) // CORES) for rows, columns in sizes]


def test_neither_the_order_of_rows_nor_that_of_columns_matters() -> None:
    table = gemm_table(200)
    order = np.random.default_rng(0).permutation(200)
    table.shape.update({name: table.shape.pop(name) for name in ("k", "m")})
    whole, mixed = prepare(table), prepare(gemm_table(200).take(order))
    assert whole.names == mixed.names
    np.testing.assert_array_equal(whole.features[order], mixed.features)
    assert whole.spelled["cell"][order].tolist() == mixed.spelled["cell"].tolist()


WORDS = st.lists(st.sampled_from(["", "a", "b", "c d"]), min_size=1, max_size=60)


@given(WORDS, st.sampled_from([1, 7, 400]))
def test_every_row_is_in_a_block_of_its_group(words: list[str], times: int) -> None:
    column = np.array(words * times, dtype=object)
    groups = grouped([column])
    rows = np.concatenate([rows.ravel() for _, rows in groups.chunks()])
    assert set(rows.tolist()) == set(range(len(column)))
    for group, rows in groups.chunks():
        assert rows.shape[1] in BLOCKS
        np.testing.assert_array_equal(groups.which[rows], np.broadcast_to(group[:, None], rows.shape))
    assert column[groups.first[groups.which]].tolist() == column.tolist()


@given(WORDS, st.integers(0, 15))
def test_wanted_groups_have_chunks_of_their_own(words: list[str], bits: int) -> None:
    groups = grouped([np.array(words * 7, dtype=object)])
    wanted = np.array([bool(bits & (1 << at)) for at in range(len(groups))])
    for kept in (wanted, ~wanted):
        rows = [rows.ravel() for _, rows in groups.chunks(kept)] if kept.any() else []
        assert set(np.concatenate([[], *rows])) == set(np.flatnonzero(kept[groups.which]))


def test_very_many_groups_are_numbered_by_sorting() -> None:
    first, second = (np.array([f"{i % n}" for i in range(20_000)], dtype=object) for n in (20_000, 19_997))
    groups: Groups = grouped([first, second])
    assert len(groups) == 20_000 and groups.chunks()[0][1].shape[1] == 1


@pytest.mark.parametrize("rows", [1, CHUNKS[1] + 1, FEW_ROWS])
def test_few_rows_are_not_filled_up_to_chunks(rows: int) -> None:
    groups = grouped([np.full(rows, "one", object)])
    assert groups.few and sum(each.size for _, each in groups.chunks()) < rows + BLOCKS[0]


@pytest.mark.parametrize("rows", [FEW_ROWS + 1, FEW_ROWS + CHUNKS[1], 5 * CHUNKS[0], 20 * CHUNKS[0] + 1])
def test_a_large_chunk_is_taken_where_little_of_it_is_empty(rows: int) -> None:
    chunks = grouped([np.full(rows, "one", object)]).chunks()
    size, computed = chunks[0][1].size, sum(each.size for _, each in chunks)
    assert size == CHUNKS[0] or -(-rows // CHUNKS[0]) * CHUNKS[0] > CHUNK_WASTE * rows
    assert size in CHUNKS and computed - rows < size
    assert set(np.concatenate([each.ravel() for _, each in chunks])) == set(range(rows))


def test_a_device_described_anew_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    shipped = load_hardware(["h100-sxm"])
    size = '{ quantity = "7 MB", source = "datasheet", confidence = "single source" }'
    text = f'name = "h100-sxm"\nbase = "h100-sxm"\nl2_capacity = {size}\n'
    (tmp_path / "h100-sxm.toml").write_text(text)
    own = load_hardware(["h100-sxm"], [tmp_path])
    assert own.device.l2_capacity == 7e6 != shipped.device.l2_capacity
    assert load_hardware(["h100-sxm"]).device.l2_capacity == shipped.device.l2_capacity


@given(WORDS, WORDS)
def test_text_is_the_array_of_its_strings(words: list[str], more: list[str]) -> None:
    column, rest = np.array(words, dtype=object), np.array(more, dtype=object)
    text: Text = as_text(column)
    assert text.tolist() == words and len(text) == len(words) and text[0] == words[0]
    assert (text == "a").tolist() == (column == "a").tolist()
    assert (text != column[0]).tolist() == (column != column[0]).tolist()
    assert text[column != ""].tolist() == column[column != ""].tolist()
    both = joined([text, rest])
    assert both.tolist() == words + more
    assert both.counts() == {word: (words + more).count(word) for word in set(words + more)}
    assert (
        sorted(both.distinct().values.tolist()) == sorted(set(words + more))
        and both.distinct().tolist() == words + more
    )
