"""Files and rows that are wrong: refused or located in one plain sentence, never dropped silently."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwspecs
from calibration.datasets import data_hash, names, read_table
from calibration.datasets.columns import LOCATED
from calibration.datasets.stated_formats import COLUMNS, UNKNOWN_CACHE
from hwspecs.errors import InputError

GOOD = {"m": [8, 8], "n": [8, 16], "k": [8, 8]}


def csv(path: Path, columns: dict[str, list[Any]]) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def refusal(path: Path, **given: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_table(path, **given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"", "is empty"),
        ("t.parquet", b"", "is empty"),
        ("t.csv", b"m,n,k\n", "has no rows"),
        ("t.csv", b"m,n,k\n8,8,8\n8,8\n", "line 3: 2 fields where the header has 3"),
        ("t.csv", b'm,n,k,note\n8,8,8,"fine"\n8,8,8,"cut\n8,8,8,\n', "line 3: a quote is opened and never closed"),
        ("t.jsonl", b'{"m":8}\n\n{"m":', "line 3 is not valid JSON"),
        ("t.csv", b"m,m,k\n8,8,8\n", "the column 'm' occurs more than once"),
        ("t.csv", b"m,M,n,k\n8,8,8,8\n", "the columns 'm' and 'M' mean the same"),
        ("t.csv", b"m,n,k\n\xff\xfe,8,8\n", "is not UTF-8 text"),
        ("t.csv", "m,n,k\n8,8,8\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("t.csv", b"\nm,n,k\n8,8,8\n", "line 1 is empty, but must name the columns"),
        ("t.csv", b"# of the first run\nm,n,k\n8,8,8\n", "line 1 is a comment"),
        ("t.csv", b"sep=;\r\nm;n;k\r\n8;8;8\r\n", "line 1 is 'sep=;', but must name the columns"),
        ("t.csv.gz", b"m,n,k\n8,8,8\n", "Cannot read"),
        ("t.parquet", b"PAR1 and no more", "truncated or not what its name says"),
        ("t.json", b'{"m": 1}', "must be a list of objects"),
        ("t.json", b'[{"m": 1},\n {"m"', "is not valid JSON: Expecting ':' delimiter: line 2"),
        ("t.json", b"[" * 100_000, "brackets nest too deep"),
        ("t.jsonl", b'{"m": ' + b"9" * 5000 + b"}", "line 1 is not valid JSON: a number is too long"),
        ("t.json", b'[{"m": 1, "n": 1, "m": 2}]', "the key 'm' is given twice in an object of m, n; give it once."),
        ("t.jsonl", b'{"m": 1}\n{"m" :1, "a:b": {"c": 1}, "m": 2}', "line 2: the key 'm' is given twice"),
        ("t.json", rb'[{"m": 1, "device": "\uD800"}]', r"has \ud800, half a character"),
        ("t.jsonl", rb'{"m": 1, "\ude00": 1}', r"line 1 has \ude00, half a character"),
        ("t.xlsx", b"PK", "must end in"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(path)
    assert said in message and str(path) in message


def test_characters_in_two_halves_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(rb'[{"m": 1, "n": 1, "k": 1, "kernel": "\ud83d\ude00 \ud55c", "note": "12:00"}]')
    assert read_table(path).tables[0].kernel.tolist() == ["\U0001f600 \ud55c"]


def test_a_missing_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="No such file"):
        data_hash(tmp_path / "absent.csv")


def test_a_truncated_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"m": list(range(1, 1000)), "n": [1] * 999, "k": [1] * 999}), path)
    path.write_bytes(path.read_bytes()[:-100])
    assert "truncated" in refusal(path)


def test_a_missing_column_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    message = refusal(csv(tmp_path / "t.csv", {"m": [1], "n": [1], "kk": [1], "latency_us": [1]}))
    assert "gemm comes nearest, but 'k' is missing. Did you mean kk?" in message
    message = refusal(csv(tmp_path / "t.csv", {"q_len": [1], "heads": [1], "head_dims": [8], "kv_heads": [1]}))
    assert "'head_dim' is missing, which attention_prefill needs. Did you mean head_dims?" in message


def test_cached_tokens_that_are_not_stated_are_not_guessed(tmp_path: Path) -> None:
    columns = {"q_len": [1], "kv_len": [9], "heads": [1], "kv_heads": [1], "head_dim": [8]}
    assert "'prefix' is missing" in refusal(csv(tmp_path / "t.csv", columns))


def test_columns_of_no_family(tmp_path: Path) -> None:
    assert "no family of kernels fits" in refusal(csv(tmp_path / "t.csv", {"colour": ["red"]}))
    assert "Did you mean moe?" in refusal(csv(tmp_path / "t.csv", GOOD), family="moes")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("eight", "'eight' is not a number."),
        ("1 024", "'1 024' is not a number; write it with a decimal point and nothing between thousands."),
        ("-8", "must be a whole number from 1 to 2^53, not -8."),
        ("0", "must be a whole number from 1 to 2^53, not 0."),
        ("8.5", "must be a whole number from 1 to 2^53, not 8.5."),
        ("", "no value."),
        ("1e300", "must be a whole number from 1 to 2^53, not 1e+300."),
        ("inf", "must be a whole number from 1 to 2^53, not inf."),
    ],
)
def test_a_bad_cell_is_located_by_line_and_column(tmp_path: Path, cell: str, said: str) -> None:
    read = read_table(csv(tmp_path / "t.csv", {"m": [8, cell, 8], "n": [8, 9, 10], "k": [8, 8, 8]}))
    (problem,) = read.problems
    assert (problem.row, problem.column, problem.excluded) == (1, "m", True)
    assert read.located(problem) == f"{tmp_path / 't.csv'}, line 3, column 'm': {said}"
    assert read.tables[0].row.tolist() == [0, 2]


def test_a_bad_cell_in_parquet_is_located_by_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"m": [8, -1], "n": [8, 8], "k": [8, 8]}), tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert "row 1, column 'm'" in read.located(read.problems[0])


@pytest.mark.parametrize(
    ("cell", "said"), [("0", "positive"), ("-1", "positive"), ("inf", "positive"), ("fast", "fast")]
)
def test_a_bad_time_keeps_its_row_without_the_time(tmp_path: Path, cell: str, said: str) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"latency_us": [5, cell]}))
    latency = read.tables[0].latency
    assert latency is not None and latency[0] == pytest.approx(5e-6) and latency[1] != latency[1]
    (problem,) = read.problems
    assert (problem.row, problem.excluded) == (1, False) and said in problem.message


def test_absent_times_are_counted(tmp_path: Path) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"latency_us": ["", "nan"]}))
    assert [(problem.message, problem.count) for problem in read.problems] == [("no measured time.", 2)]


def test_a_time_without_a_unit_is_refused(tmp_path: Path) -> None:
    assert "does not state its unit" in refusal(csv(tmp_path / "t.csv", GOOD | {"latency": [1, 2]}))


def test_two_units_must_agree(tmp_path: Path) -> None:
    agreeing = csv(tmp_path / "a.csv", GOOD | {"latency_us": [1500, 2], "time_ms": [1.5, 0.002]})
    latency = read_table(agreeing).tables[0].latency
    assert latency is not None and latency.tolist() == pytest.approx([1.5e-3, 2e-6])
    contradicting = csv(tmp_path / "b.csv", GOOD | {"latency_us": [1500, 2], "time_ms": [1.5, 2]})
    assert "'latency_us' and 'time_ms' contradict each other, first in row 1" in refusal(contradicting)


def test_unknown_devices_are_kept_and_counted(tmp_path: Path) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"gpu": ["h10o", "h10o"]}))
    assert read.tables[0].device.tolist() == ["", ""] and len(read.tables[0]) == 2
    (device,) = read.problems
    assert (device.column, device.count, device.excluded) == ("gpu", 2, False)
    assert "'h10o' is not a known device. Did you mean" in device.message


HEADS = {"heads": [8, 8], "kv_heads": [8, 8], "head_dim": [128, 128]}
OF_FAMILY = {
    "gemm": GOOD,
    "attention_decode": {"kv_len": [64, 64], **HEADS},
    "attention_prefill": {"q_len": [64, 64], **HEADS},
    "attention_mixed": {"prefill_q": [64, 64], "n_decode": [1, 1], "kv_decode": [64, 64], **HEADS},
    "moe": {"tokens": [8, 8], "hidden": [64, 64], "inter": [64, 64], "topk": [2, 2], "experts": [8, 8]},
}


@pytest.mark.parametrize(
    ("family", "column", "text", "said"),
    [
        ("gemm", "dtype", "fp5", "'fp5' is not a known number format. Did you mean fp"),
        ("gemm", "gemm_dtype", "nvf4", "'nvf4' is not a known number format. Did you mean nvfp4"),
        ("moe", "moe_dtype", "w3a16", "'w3a16' is not a known number format. Did you mean w4a16"),
        ("moe", "precision", "bf17", "'bf17' is not a known number format. Did you mean bf16"),
        ("attention_decode", "kv_dtype", "fp5", "'fp5' is not a known number format."),
        ("attention_prefill", "kv_cache_dtype", "int3", "'int3' is not a known number format. Did you mean int8"),
        ("attention_mixed", "kv_cache_dtype", "int3", "'int3' is not a known number format."),
        ("attention_decode", "attn_dtype", "zz", "'zz' is not a known number format. Known: fp64, "),
    ],
)
def test_a_format_that_nobody_knows_is_named_and_its_row_stays(
    tmp_path: Path, family: str, column: str, text: str, said: str
) -> None:
    read = read_table(csv(tmp_path / "t.csv", OF_FAMILY[family] | {column: ["fp8", text]}))
    (table,) = read.tables
    assert (table.family, table.row.tolist()) == (family, [0, 1])
    of_cache = column in COLUMNS["cache"]
    assert (table.cache if of_cache else table.dtype)[1] == (UNKNOWN_CACHE if of_cache else "")
    (problem,) = read.problems
    assert (problem.row, problem.column, problem.count, problem.excluded) == (1, column, 1, False)
    assert problem.message.startswith(said) and all(name in problem.message for name in names.DTYPES)


@pytest.mark.parametrize("text", ["", "none", "auto", "Default"])
def test_a_format_that_is_not_stated_is_no_mistake(tmp_path: Path, text: str) -> None:
    read = read_table(csv(tmp_path / "t.csv", OF_FAMILY["moe"] | {"tokens": [8, 9], "moe_dtype": ["fp8", text]}))
    assert read.tables[0].row.tolist() == [0, 1] and not read.problems


def test_two_columns_that_name_different_formats(tmp_path: Path) -> None:
    """The same in other words is no difference, and a cell that says nothing leaves it to the other."""
    columns = {name: [values[0]] * 4 for name, values in OF_FAMILY["moe"].items()} | {"tokens": [1, 2, 3, 4]}
    stated = {"dtype": ["bf16", "bf16", "", "fp8"], "moe_dtype": ["nvfp4", "bfloat16", "int4", "auto"]}
    read = read_table(csv(tmp_path / "t.csv", columns | stated))
    assert read.tables[0].dtype.tolist() == ["bf16", "int4_weight_only", "fp8"]
    (problem,) = read.problems
    assert (problem.row, problem.excluded) == (0, True)
    assert "'dtype' says bf16 and 'moe_dtype' nvfp4; they mean the same, remove one" in problem.message


def test_the_format_of_a_cache_is_none_of_a_kernel_without_one(tmp_path: Path) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"m": [8, 9], "kv_dtype": ["fp5", "fp8"]}))
    assert len(read.tables[0]) == 2 and not read.problems


@pytest.mark.parametrize(
    ("format_", "name"),
    [("int4", "int4_weight_only"), ("fp4", "nvfp4"), ("W4A16", "int4_weight_only"), ("int8-wo", "int8_weight_only")],
)
def test_formats_have_the_names_that_other_commands_know(tmp_path: Path, format_: str, name: str) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"dtype": ["bf16", format_]}))
    assert read.tables[0].dtype.tolist() == ["bf16", name] and not read.problems


@pytest.mark.parametrize(
    ("written", "name"),
    [("v0.24.0", "0.24.0"), ("0.24.0+cu129", "0.24.0"), ("None", ""), ("vnext", "vnext"), ("1.3.0rc20", "1.3.0rc20")],
)
def test_a_version_is_one_whatever_its_tag_and_its_build_add(tmp_path: Path, written: str, name: str) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"version": [written, written]}))
    assert read.tables[0].version.tolist() == [name] * 2


def test_a_known_device_without_a_specification_says_what_it_is(tmp_path: Path) -> None:
    read = read_table(csv(tmp_path / "t.csv", GOOD | {"gpu": ["A100x4", "h100"]}))
    assert read.tables[0].device.tolist() == ["", "h100-sxm"]
    assert read.problems[0].message == "'A100x4' has no specification: " + hwspecs.resolve("A100x4").reason


def test_repeated_rows_are_counted(tmp_path: Path) -> None:
    columns = {"m": [8, 8, 8, 9], "n": [8] * 4, "k": [8] * 4, "latency_us": [1, 2, 1, 1]}
    read = read_table(csv(tmp_path / "t.csv", columns))
    (problem,) = read.problems
    assert (problem.row, problem.count, problem.excluded) == (1, 2, False)
    assert len(read.tables[0]) == 4


def test_a_repeated_row_is_told_in_any_spelling(tmp_path: Path) -> None:
    columns = {"gpu": ["H100", "h100_sxm", "l40s"], "m": [8] * 3, "n": [8] * 3, "k": [8] * 3}
    (problem,) = read_table(csv(tmp_path / "t.csv", columns)).problems
    assert (problem.row, problem.count, problem.excluded) == (1, 1, False)


def test_impossible_combinations(tmp_path: Path) -> None:
    columns = {"kv_len": [9, 9], "heads": [8, 2], "kv_heads": [8, 4], "head_dim": [64, 64]}
    read = read_table(csv(tmp_path / "t.csv", columns))
    assert read.tables[0].row.tolist() == [0]
    assert read.problems[0].message == "4 is more than the 2 heads."


def test_experts_that_the_ranks_do_not_share_out_evenly(tmp_path: Path) -> None:
    shape = {"tokens": [16] * 4, "hidden": [64] * 4, "inter": [64] * 4, "topk": [2] * 4, "experts": [8] * 4}
    read = read_table(csv(tmp_path / "t.csv", {**shape, "moe_ep_size": [4, 3, 16, 0]}))
    assert read.tables[0].row.tolist() == [0]
    said = [(problem.row, problem.column, problem.excluded, problem.message) for problem in read.problems]
    assert sorted(said) == [
        (1, "ep", True, "3 does not divide the 8 experts."),
        (2, "ep", True, "16 does not divide the 8 experts."),
        (3, "moe_ep_size", True, "must be a whole number from 1 to 2^53, not 0."),
    ]


def test_an_unknown_operation_is_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    columns = {"op": ["softmax", "sofmax"], "rows": [4, 4], "columns": [8, 8]}
    read = read_table(csv(tmp_path / "t.csv", columns))
    assert [table.family for table in read.tables] == ["softmax"]
    assert "'sofmax' is no known operation. Did you mean softmax?" in read.problems[0].message


def test_a_family_without_its_columns_among_others(tmp_path: Path) -> None:
    read = read_table(csv(tmp_path / "t.csv", {"op": ["linear", "softmax"], "m": [4, 4], "n": [8, 8], "k": [8, 8]}))
    assert [table.family for table in read.tables] == ["gemm"]
    assert read.problems[0].excluded and "the column 'rows' is missing" in read.problems[0].message


def test_very_many_bad_rows_are_located_up_to_a_limit_and_counted_beyond(tmp_path: Path) -> None:
    rows = LOCATED + 7
    pq.write_table(pa.table({"m": [0] * rows, "n": [8] * rows, "k": [8] * rows}), tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.tables == () and len(read.problems) == LOCATED + 1
    assert sum(problem.count for problem in read.problems) == rows


def test_flags_that_are_none_are_taken_as_zero_and_located(tmp_path: Path) -> None:
    columns = {"m": [8, 8, 8, 8], "n": [1, 2, 3, 4], "k": [8] * 4, "flag": [4, "", "bad", -1]}
    read = read_table(csv(tmp_path / "t.csv", columns))
    assert read.tables[0].flag.tolist() == [4, 0, 0, 0]
    assert [(problem.row, problem.excluded) for problem in read.problems] == [(2, False), (3, False)]


def test_text_that_is_not_utf8_is_an_unknown_name(tmp_path: Path) -> None:
    names = pa.array([b"q\xff", b"h100"]).view(pa.string())
    pq.write_table(pa.table({"gpu": names, "m": [1, 2], "n": [1, 1], "k": [1, 1]}), tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.tables[0].device.tolist() == ["", "h100-sxm"]
    assert len(read.problems) == 1


@pytest.mark.parametrize("cut", [30, -20])
def test_a_damaged_gzip_file(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(b"m,n,k\n" + b"".join(b"%d,8,8\n" % i for i in range(1, 5000)))
    path = tmp_path / "t.csv.gz"
    path.write_bytes(whole[:cut])
    assert "Cannot read" in refusal(path) or "truncated" in refusal(path)


def test_a_published_layout_with_a_standard_column_beside_its_own(tmp_path: Path) -> None:
    columns = {"OPName": ["linear"], "B": [1], "M": [1], "N": [1], "K": [1], "Device": ["Tesla P4"], "device": ["T4"]}
    assert "the columns 'Device' and 'device' mean the same" in refusal(csv(tmp_path / "t.csv", columns))


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv"])
def test_the_line_of_a_bad_cell_counts_empty_lines_and_breaks_in_cells(tmp_path: Path, blank: str, name: str) -> None:
    lines = ["kernel,m,n,k", blank, "a,1,2,3", '"b', 'c",1,2,4', blank, "d,1,x,3"]
    text = "\n".join(lines).replace(",", "\t" if ".tsv" in name else ",")
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    read = read_table(tmp_path / name)
    assert [read.located(problem) for problem in read.problems] == [
        f"{tmp_path / name}, line 7, column 'n': 'x' is not a number."
    ]
    with (tmp_path / "u.csv").open("w") as file:
        file.write("\n".join([*lines[:-1], "d,1,2"]))
    assert "line 7: 3 fields where the header has 4" in refusal(tmp_path / "u.csv")


def test_times_that_nobody_asks_for_refuse_nothing(tmp_path: Path) -> None:
    """A table of kernels to predict: what is wrong with its times is told, and no row is lost."""
    unclear = {"latency_us": [3, 4], "time_ms": [0.003, 9], "latency": ["a", "b"]}
    read = read_table(csv(tmp_path / "t.csv", GOOD | unclear), timed=False)
    assert read.tables[0].measured.tolist() == [pytest.approx(3e-6), pytest.approx(float("nan"), nan_ok=True)]
    assert [problem.message for problem in read.problems] == ["contradicts 'time_ms'; neither is read."]
    bare = read_table(csv(tmp_path / "b.csv", GOOD | {"latency": [3, 4]}), timed=False)
    assert bare.tables[0].latency is None and "name it latency_s" in bare.problems[0].message
    assert not any(problem.excluded for problem in (*read.problems, *bare.problems))


def test_a_size_taken_for_an_empty_cell_is_noted_and_an_absence_is_not(tmp_path: Path) -> None:
    shape = {"kv_len": [512] * 3, "heads": [8] * 3, "kv_heads": [8] * 3, "head_dim": [64] * 3}
    read = read_table(csv(tmp_path / "t.csv", {"batch": ["", 16, ""], "window": ["", "", 64], **shape}))
    (noted,) = read.problems
    assert (noted.column, noted.message, noted.count, noted.excluded) == ("batch", "no value: 1 taken.", 2, False)
    assert read.tables[0].shape["batch"].tolist() == [1.0, 16.0, 1.0]


def test_a_routing_that_nobody_knows_is_noted_and_taken_as_not_stated(tmp_path: Path) -> None:
    words = ["Balanced", "power-law 1.2", "power_law_abc", "zipf", "power_law_-1", ""]
    sizes = {"tokens": 8, "hidden": 64, "inter": 64, "topk": 2, "experts": 8}
    table = {"distribution": words} | {name: [size] * len(words) for name, size in sizes.items()}
    read = read_table(csv(tmp_path / "t.csv", table))
    assert read.tables[0].text["distribution"].tolist() == ["balanced", "power_law_1.2", "", "", "", ""]
    noted = [problem for problem in read.problems if problem.column == "distribution"]
    assert [problem.row for problem in noted] == [2, 3, 4] and not any(problem.excluded for problem in noted)
    assert "'zipf' is no known routing: taken as not stated. Known: balanced and power_law_" in noted[1].message
