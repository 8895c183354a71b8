"""Tables of kernels: families by columns, SI units, names, published layouts, and the same rows whatever the format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.datasets import FAMILIES, KernelTable, files, iterate_table, names, read_table
from calibration.datasets.schema import FLAG_BROKEN_SOURCE
from calibration.kernels.formats import FORMATS
from hwspecs.errors import InputError

GEMM = {
    "gpu": ["h100_sxm", "A100", "NVIDIA L4"],
    "framework": ["vLLM", "trtllm", ""],
    "version": ["0.24.0", "1.30", "2.0"],
    "dtype": ["bfloat16", "int8_wo", "default"],
    "m": [1, 128, 4096],
    "n": [4096, 512, 64],
    "k": [8192, 256, 32],
    "latency_us": [12.5, 3.0, 7.25],
}


def write_csv(path: Path, columns: dict[str, list[Any]]) -> Path:
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def only(tables: tuple[KernelTable, ...]) -> KernelTable:
    (table,) = tables
    return table


def same(a: KernelTable, b: KernelTable) -> bool:
    assert (a.latency is None) == (b.latency is None)
    pairs = [(getattr(a, name), getattr(b, name)) for name in ("row", "device", "framework", "version", "kernel")]
    pairs += [(a.dtype, b.dtype), (a.cache, b.cache), (a.flag, b.flag)]
    pairs += [(a.shape[name], b.shape[name]) for name in a.shape] + [(a.text[name], b.text[name]) for name in a.text]
    numbers = [] if a.latency is None else [(a.latency, b.latency)]
    return (
        a.family == b.family
        and all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)
        and all(np.array_equal(x, y, equal_nan=True) for x, y in numbers)
    )


def test_a_plain_table_in_si_units_with_one_name_for_each_thing(tmp_path: Path) -> None:
    read = read_table(write_csv(tmp_path / "g.csv", GEMM))
    table = only(read.tables)
    assert (table.family, read.rows, read.problems) == ("gemm", 3, ())
    assert table.row.tolist() == [0, 1, 2]
    assert table.device.tolist() == ["h100-sxm", "a100-sxm-80gb", "l4"]
    assert table.framework.tolist() == ["vllm", "trtllm", ""]
    assert table.version.tolist() == ["0.24.0", "1.30", "2.0"]  # never read as the number 1.3
    assert table.dtype.tolist() == ["bf16", "int8_weight_only", "bf16"]
    assert {name: column.tolist() for name, column in table.shape.items()} == {
        "batch": [1, 1, 1],
        "m": [1, 128, 4096],
        "n": [4096, 512, 64],
        "k": [8192, 256, 32],
    }
    assert table.latency is not None
    np.testing.assert_allclose(table.latency, [12.5e-6, 3.0e-6, 7.25e-6], rtol=1e-15)
    assert table.flag.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz", "t.tsv", "t.json", "t.jsonl"])
def test_every_format_gives_the_same_table(tmp_path: Path, name: str) -> None:
    import gzip

    expected = only(read_table(write_csv(tmp_path / "reference.csv", GEMM)).tables)
    path = tmp_path / name
    records = [dict(zip(GEMM, row, strict=True)) for row in zip(*GEMM.values(), strict=True)]
    if name.endswith(".parquet"):
        encoded = pa.table(
            {"gpu": pa.array(GEMM["gpu"]).dictionary_encode(), **{k: GEMM[k] for k in GEMM if k != "gpu"}}
        )
        pq.write_table(encoded, path)
    elif name.endswith(".json"):
        path.write_text(json.dumps(records))
    elif name.endswith(".jsonl"):
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        text = (tmp_path / "reference.csv").read_text()
        text = text.replace(",", "\t") if ".tsv" in name else text
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert same(only(read_table(path).tables), expected)


def test_a_spreadsheet_csv_with_semicolons_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes("﻿m;n;k;Latency (ms)\r\n8;16;32;0.5\r\n".encode())
    table = only(read_table(path).tables)
    assert table.latency is not None
    assert (table.shape["k"].tolist(), table.latency.tolist()) == ([32.0], [0.5e-3])


BY_COLUMNS = {
    "attention_prefill": {"q_len": 512, "prefix": 0, "heads": 8, "kv_heads": 2, "head_dim": 128, "batch": 4},
    "attention_decode": {"kv_len": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "batch": 4, "window": 128},
    "attention_mixed": {
        **{"prefill_q": 64, "prefill_kv": 0, "n_decode": 8, "kv_decode": 999},
        **{"heads": 32, "kv_heads": 8, "head_dim": 128},
    },
    "moe": {"tokens": 16, "hidden": 4096, "inter": 14336, "topk": 2, "experts": 8, "tp": 2, "ep": 4},
    "collective": {"num_gpus": 8, "bytes": 1048576, "op": "alltoall"},
    "gemm": {"M": 3, "N": 5, "K": 7},
    "quantize": {"m": 3, "k": 7, "op": "scale_matrix"},
    "mla_decode": {"op": "mla_decode", "heads": 16, "batch": 2, "q_len": 1, "kv_len": 900},
    "mla_post": {"op": "mla_gen_post", "heads": 16, "batch": 2, "q_len": 1, "kv_len": 0},
    "norm": {"op": "rms_norm", "tokens": 4, "hidden": 8192},
    "softmax": {"kind": "softmax", "rows": 4, "columns": 8192},
    "convolution": {"batch": 2, "in_channels": 3, "out_channels": 64, "kernel_size": 3, "input_size": 224},
}


@pytest.mark.parametrize("family", BY_COLUMNS)
def test_the_columns_tell_the_family(tmp_path: Path, family: str) -> None:
    row = BY_COLUMNS[family]
    table = only(read_table(write_csv(tmp_path / "t.csv", {name: [value] for name, value in row.items()})).tables)
    assert table.family == family
    assert set(table.shape) == {column.name for column in FAMILIES[family]}
    assert table.latency is None
    for name, value in row.items():
        if name.lower() in table.shape:
            assert table.shape[name.lower()].tolist() == [value]


def test_a_stated_family_overrides_the_columns(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", {"rows": [4], "columns": [64]})
    assert only(read_table(path, family="softmax").tables).family == "softmax"


def test_rows_of_several_families_keep_their_place(tmp_path: Path) -> None:
    columns = {
        "op": ["mla_prefill", "mla_gen_pre", "mla_prefill", "mla_decode"],
        "heads": [1, 2, 3, 4],
        **{"batch": [1] * 4, "q_len": [9] * 4, "kv_len": [9, 0, 9, 9], "kv_dtype": ["fp8", "none", "bfloat16", "fp8"]},
    }
    read = read_table(write_parquet(tmp_path / "t.parquet", columns))
    assert {table.family: table.row.tolist() for table in read.tables} == {
        "mla_prefill": [0, 2],
        "mla_pre": [1],
        "mla_decode": [3],
    }
    prefill = read.table("mla_prefill")
    assert prefill is not None
    assert (prefill.shape["heads"].tolist(), prefill.cache.tolist()) == ([1.0, 3.0], ["fp8", "bf16"])


def test_a_batch_column_tells_batched_products(tmp_path: Path) -> None:
    read = read_table(write_csv(tmp_path / "t.csv", {"batch": [1, 6], "m": [2, 2], "n": [3, 3], "k": [4, 4]}))
    assert [(table.family, table.row.tolist()) for table in read.tables] == [("gemm", [0]), ("bmm", [1])]


def test_operations_of_a_model_are_products_where_the_columns_say_so(tmp_path: Path) -> None:
    read = read_table(
        write_csv(tmp_path / "t.csv", {"op": ["qkv_proj", "lm_head"], "m": [2, 2], "n": [3, 3], "k": [4, 4]})
    )
    assert only(read.tables).text["op"].tolist() == ["qkv_proj", "lm_head"]


NEUSIGHT = {
    "split": ["train", "train", "test", "train", "train"],
    "device": ["Tesla P4", "Tesla T4", "Tesla P4", "Tesla V100-PCIE-32GB", "NVIDIA L4"],
    "op": ["linear", "bmm", "linear", "add", "addu"],
    "dtype": ["fp32"] * 5,
    "B": [1, 2, 1, 16, 16],
    "M": [3, 3, 3, None, None],
    "N": [5, 5, 5, None, None],
    "K": [7, 7, 7, None, None],
    "H": [None, None, None, 10, 10],
    "latency_ms": [1.0, 2.0, 3.0, 4.0, 5.0],
    "torch": ["2.1.0"] * 5,
}


def test_neusight_names_the_reduction_n(tmp_path: Path) -> None:
    """NeuSight: B x (M x N) . (N x K), so 2 B M N K FLOP with N the reduction."""
    read = read_table(write_parquet(tmp_path / "ops.parquet", NEUSIGHT))
    bmm = read.table("bmm")
    assert bmm is not None
    assert {name: column.tolist() for name, column in bmm.shape.items()} == {"batch": [2], "m": [3], "k": [5], "n": [7]}
    assert bmm.device.tolist() == ["t4"]
    assert (bmm.framework.tolist(), bmm.version.tolist()) == (["torch"], ["2.1.0"])
    assert bmm.latency is not None and bmm.latency.tolist() == [2e-3]


def test_neusight_elementwise_reads_one_or_two_tensors(tmp_path: Path) -> None:
    table = read_table(write_parquet(tmp_path / "ops.parquet", NEUSIGHT)).table("elementwise")
    assert table is not None
    assert table.shape["elements_in"].tolist() == [320, 160]
    assert table.shape["elements_out"].tolist() == [160, 160]


def test_neusight_broken_p4_rows_are_marked_not_removed(tmp_path: Path) -> None:
    table = read_table(write_parquet(tmp_path / "ops.parquet", NEUSIGHT)).table("gemm")
    assert table is not None
    assert (table.row.tolist(), table.flag.tolist()) == ([0, 2], [FLAG_BROKEN_SOURCE, 0])


def test_nodes_of_neusight_graphs_that_are_one_operation(tmp_path: Path) -> None:
    columns = {
        "Name": ["a", "b", "c", "d", "e"],
        "FwOps": [
            *("[['Linear', (8192, 1024, 4096)]]", "[['BMM', (256, 512, 64, 128)]]", "[['VECadd', (16, 10)]]"),
            *("[['MEM', ((1, 512), (1,))]]", "[]"),
        ],
        "fw_ms": [1.0, 2.0, 3.0, 4.0, 0.0],
        **{"device": ["AMD_Instinct_MI100"] * 5, "cfg": ["bert_large-inf-512-16"] * 5},
    }
    read = read_table(write_parquet(tmp_path / "t.parquet", columns))
    gemm, bmm, add = read.tables
    assert [gemm.shape[name].tolist() for name in "mnk"] == [[8192], [4096], [1024]]
    assert [bmm.shape[name].tolist() for name in ("batch", "m", "n", "k")] == [[256], [512], [128], [64]]
    assert (add.family, add.shape["elements_in"].tolist(), add.row.tolist()) == ("elementwise", [320], [2])
    assert gemm.device.tolist() == ["mi100"] and gemm.text["model"].tolist() == ["bert_large-inf-512-16"]
    assert sum(problem.count for problem in read.problems if problem.excluded) == 2
    assert_asked_alike(tmp_path / "asked.parquet", columns, "fw_ms", read)


def assert_asked_alike(path: Path, columns: dict[str, list[Any]], time: str, measured: Any) -> None:
    """A layout is told without its measured times as well: rows to predict have none."""
    asked = read_table(write_parquet(path, {name: each for name, each in columns.items() if name != time}))
    assert [table.family for table in asked.tables] == [table.family for table in measured.tables]
    for each, other in zip(asked.tables, measured.tables, strict=True):
        assert each.row.tolist() == other.row.tolist() and each.latency is None
        assert all(np.array_equal(each.shape[name], other.shape[name], equal_nan=True) for name in other.shape)
    said = [each.message for each in measured.problems if each.message != "no measured time."]
    assert [each.message for each in asked.problems] == said


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_the_case_of_a_published_layouts_columns_does_not_matter(tmp_path: Path, change: Callable[[str], str]) -> None:
    vidur = {"device": ["a100"], "kind": ["norm"], "tokens": [16], "elems_in": [160], "elems_out": [160]}
    for columns in (NEUSIGHT, {"OPName" if name == "op" else name: each for name, each in NEUSIGHT.items()}, vidur):
        expected = read_table(write_parquet(tmp_path / "a.parquet", columns))
        changed = {change(name): values for name, values in columns.items()}
        found = read_table(write_parquet(tmp_path / "b.parquet", changed))
        assert all(same(a, b) for a, b in zip(expected.tables, found.tables, strict=True)) and found.tables
        said = [problem.message for problem in found.problems]
        assert any("N the reduction" in each for each in said) == (change is str.lower and columns is not vidur)


@pytest.mark.parametrize("stated", [None, "", "auto", "Auto"])
def test_a_cache_without_a_format_has_that_of_the_activations(tmp_path: Path, stated: str | None) -> None:
    shape = {"batch": [1, 1], "kv_len": [512, 512], "heads": [8, 8], "kv_heads": [8, 8], "head_dim": [128, 128]}
    columns = shape | {"dtype": ["fp16", "fp8"]} | ({} if stated is None else {"kv_dtype": [stated] * 2})
    read = read_table(write_csv(tmp_path / "t.csv", columns))
    assert only(read.tables).cache.tolist() == ["fp16", "bf16"] and not read.problems
    assert all(activations == names.activations_of(dtype) for dtype, (_, activations) in FORMATS.items())


def test_the_same_letters_outside_neusight_keep_their_usual_meaning_and_say_so(tmp_path: Path) -> None:
    read = read_table(write_csv(tmp_path / "t.csv", {"B": [2], "M": [3], "N": [5], "K": [7]}))
    assert only(read.tables).shape["k"].tolist() == [7]
    assert "K the reduction" in read.problems[0].message and not read.problems[0].excluded


def test_llmcompass_means_different_things_by_m_and_n(tmp_path: Path) -> None:
    columns = {
        "op": ["matmul", "softmax", "gelu", "allreduce", "gpt3_block_prefill/Q_K_V"],
        "device": ["A100", "MI210", "A100", "A100x4", "A100x4"],
        "n_dev": [1, 1, 1, 4, 4],
        "dtype": ["fp16", "fp32", "fp16", "bytes", "fp16"],
        "M": [64, 4096, 1024, 8192, 8],
        "N": ["32.0", "128.0", "", "", "2048.0"],
        "K": ["16.0", "", "", "", "12288.0"],
        "measured_s": [1e-5, 2e-5, 3e-5, 4e-5, 5e-5],
    }
    read = read_table(write_csv(tmp_path / "t.csv", columns))
    found = {table.family: table for table in read.tables}
    assert found["gemm"].shape["k"].tolist() == [16]
    assert (found["softmax"].shape["rows"].tolist(), found["softmax"].shape["columns"].tolist()) == ([4096], [128])
    assert found["elementwise"].shape["elements_in"].tolist() == [1024]
    collective = found["collective"]
    assert (collective.shape["bytes"].tolist(), collective.shape["num_gpus"].tolist()) == ([8192], [4])
    assert collective.device.tolist() == ["a100-sxm-80gb"]
    assert [(problem.row, problem.excluded) for problem in read.problems] == [(4, True)]
    stored = read_table(write_parquet(tmp_path / "t.parquet", columns))
    assert_asked_alike(tmp_path / "asked.parquet", columns, "measured_s", stored)


def test_columns_of_row_wise_operations_follow_from_their_elements(tmp_path: Path) -> None:
    columns = {
        "kind": ["norm", "gemm"],
        "tokens": [4, 4],
        **{"m": [0, 4], "n": [0, 5], "k": [0, 6]},
        **{"elems_in": [400, 24], "elems_out": [400, 20]},
    }
    read = read_table(write_csv(tmp_path / "t.csv", columns))
    norm = read.table("norm")
    assert norm is not None and not read.problems
    assert (norm.shape["rows"].tolist(), norm.shape["columns"].tolist()) == ([4], [100])


def test_an_element_count_that_stands_for_bytes_becomes_bytes(tmp_path: Path) -> None:
    columns = {
        "op": ["moe_a2a_dispatch", "moe_a2a_dispatch", "allreduce"],
        **{"num_gpus": [8, 8, 8], "bytes": [128 * 4096, 128 * 4096, 100]},
        **{"tokens": [128, 128, 0], "hidden": [4096, 4096, 0], "dtype": ["default", "fp8", "half"]},
        "topology": ["intra_node", "Intra_Node", "DGX"],
    }
    table = only(read_table(write_csv(tmp_path / "t.csv", columns)).tables)
    assert table.shape["bytes"].tolist() == [2 * 128 * 4096, 128 * 4096, 100]
    assert table.text["op"].tolist() == ["moe_a2a_dispatch", "moe_a2a_dispatch", "all_reduce"]
    assert table.text["topology"].tolist() == ["intra_node", "intra_node", "dgx"], "in whatever letters"


@given(
    rows=st.lists(st.tuples(st.integers(1, 99), st.sampled_from(["h100", "a100", "toaster"])), min_size=1, max_size=30),
    chunk=st.integers(1, 31),
)
def test_the_size_of_the_pieces_changes_nothing(
    rows: list[tuple[int, str]], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "t.csv"
    write_csv(
        path, {"m": [m for m, _ in rows], "n": [8] * len(rows), "k": [8] * len(rows), "gpu": [g for _, g in rows]}
    )
    whole, pieces = read_table(path), read_table(path, chunk=chunk)
    assert same(only(whole.tables), only(pieces.tables))
    assert whole.problems == pieces.problems
    streamed = [only(read.tables) for read in iterate_table(path, chunk)]
    assert np.concatenate([table.row for table in streamed]).tolist() == list(range(len(rows)))
    assert np.concatenate([table.device for table in streamed]).tolist() == only(whole.tables).device.tolist()


CELLS = st.sampled_from(["8", "1", "0", "-3", "2.5", "", "nan", "inf", "many", "1_0"])


@given(cells=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=20))
def test_every_row_is_in_one_table_or_named_as_left_out(
    cells: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cells") / "t.csv"
    write_csv(path, dict(zip(("m", "n", "k"), map(list, zip(*cells, strict=True)), strict=True)))
    read = read_table(path)
    kept = {row for table in read.tables for row in table.row.tolist()}
    out = {problem.row for problem in read.problems if problem.excluded}
    assert kept == {row for row, cell in enumerate(cells) if all(text in ("8", "1") for text in cell)}
    assert kept | out == set(range(len(cells))) and not kept & out


@given(time=st.floats(1e-9, 1e3), unit=st.sampled_from([("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)]))
def test_the_unit_in_a_columns_name_scales_it(
    time: float, unit: tuple[str, float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("units") / "t.csv"
    write_csv(path, {"m": [1], "n": [1], "k": [1], f"time_{unit[0]}": [time / unit[1]]})
    latency = only(read_table(path).tables).latency
    assert latency is not None
    np.testing.assert_allclose(latency, [time], rtol=1e-12)


def test_a_device_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "my-chip.toml").write_text('base = "h100-sxm"\naliases = ["The Chip"]\n')
    path = write_csv(tmp_path / "t.csv", {"gpu": ["the chip"], "m": [1], "n": [1], "k": [1]})
    assert only(read_table(path, directories=[tmp_path]).tables).device.tolist() == ["my-chip"]
    assert only(read_table(path).tables).device.tolist() == [""]


def test_a_column_kind_that_means_something_else(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", {"kind": ["warm"], "m": [1], "n": [1], "k": [1]})
    read = read_table(path)
    assert only(read.tables).family == "gemm"
    said = "'warm' is no known operation, so this column is not read."
    assert [each.message[: len(said)] for each in read.problems] == [said] and not read.problems[0].excluded


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_misspelled_family_is_refused_whatever_the_rows_beside_it(tmp_path: Path, chunk: int | None) -> None:
    path = write_csv(tmp_path / "t.csv", {"family": ["gemm", "softmaxx"], "m": [1, 1], "n": [1, 1], "k": [1, 1]})
    read = read_table(path, chunk=chunk)
    assert only(read.tables).row.tolist() == [0]
    assert [(each.row, each.excluded) for each in read.problems] == [(1, True)]
    assert read.problems[0].message.startswith("'softmaxx' is no known operation. Did you mean softmax")


def test_cells_with_line_breaks_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('kernel,m,n,k\n"a ""b"",\nc",1,2,3\nd,4,5,6\n')
    assert only(read_table(path).tables).kernel.tolist() == ['a "b",\nc', "d"]


@pytest.mark.parametrize("blank", ["", " ", "   \t ", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_lines_of_white_space_are_empty(tmp_path: Path, blank: str, delimiter: str) -> None:
    lines = ["m,n,k", "1,2,3", blank, "4,5,6", blank]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(line.replace(",", delimiter) for line in lines), newline="")
    assert only(read_table(path).tables).shape["m"].tolist() == [1, 4]


@pytest.mark.parametrize("chunk", [None, 1, 3, 100])
def test_a_line_of_white_space_far_down_loses_and_repeats_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int | None
) -> None:
    monkeypatch.setattr(files, "BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_text("m,n,k\n" + "".join(f"{row},2,3\n" for row in range(100)) + "  \n" + "100,2,3\n")
    pieces = [piece.column("m").to_pylist() for piece in files.read_pieces(path, chunk)]
    assert sum(pieces, []) == [str(row) for row in range(101)]
    assert all(len(piece) == chunk for piece in pieces[:-1])


def test_no_function_of_python_is_left_to_a_thread_that_reads_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may let go of it when Python ends already, and is aborted then: exit code 134 for one of 2."""
    given_options: list[Any] = []
    usual = files.csv.open_csv

    def opened(path: Path, **options: Any) -> Any:
        given_options.append(options["parse_options"])
        return usual(path, **options)

    monkeypatch.setattr(files.csv, "open_csv", opened)
    path = tmp_path / "t.csv"
    path.write_text("m,n,k\n1,2\n")
    with pytest.raises(InputError, match="line 2: 2 fields where the header has 3"):
        list(files.read_pieces(path))
    assert [each.invalid_row_handler for each in given_options] == [None]


DOCUMENT = Path(__file__).parents[3] / "docs" / "data-formats.md"


def test_the_documentation_names_every_family_and_column() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    families = text[text.index("## Families") : text.index("## What the readers know")]
    for family, columns in FAMILIES.items():
        (line,) = [line for line in families.splitlines() if line.startswith("|") and f"`{family}`" in line]
        missing = [column.name for column in columns if column.name not in line]
        assert not missing, family


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "gemms.csv", GEMM | {"m": [1, "12x", 3]})
    text = DOCUMENT.read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert (tmp_path / "out.csv").read_text().splitlines()[2].endswith(",")
