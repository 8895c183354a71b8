"""Every mistake in a sweep file ends with exit code 2, one sentence, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BODY = "model: gpt2\naxes:\n  device: h100-sxm\n  context: 64\n"
SWEEP = ("sweep", "sweep.yaml", "-o", "rows.parquet")


@pytest.fixture(autouse=True)
def nothing_left(own_folder: Path) -> Any:
    """No output and no parts of it are left behind by a question that is refused."""
    yield
    assert not list(own_folder.glob("rows.parquet*"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is a mapping with the keys model, task, axes"),
        (b"- 1", "is a mapping with the keys"),
        (b"just words", "is a mapping with the keys"),
        (b"\x00\x01\xff", "not UTF-8 text"),
        (b"\x00", "character 1 is not text"),
        (b"a: [", "not valid YAML at line 1, column 5"),
        (b"model: gpt2\n\taxes: 1", "not valid YAML at line 2"),
        (b"model: !!python/object:os.system x", "not valid YAML at line 1"),
        (b"[" * 3000, "nested too deeply"),
        (b"model: gpt2\nmodel: gpt2", "line 2, column 1: the key 'model' is given twice"),
        (b"n: " + b"1" * 5000, "cannot be read"),
        (b"n: 2024-13-45", "cannot be read"),
        (b"axes: {batch: 1}", "the key 'model' is missing"),
        (b"model: gpt2", "the key 'axes' is missing"),
        (b"model: gpt2\naxes: {}", "at least one parameter"),
        (b"model: gpt2\naxes: 5", "'axes' is 5; it must be a mapping"),
        (b"model: gpt2\naxes: {1: [2]}", "sweep.yaml"),
        (b"model: 5\naxes: {batch: 1}", "'model' is 5; it must be a text"),
        (b"model: gpt3000\naxes: {batch: 1}", "No model or path"),
        (b"? [a, b]\n: 1", "sweep.yaml"),
        (rb'{"model": gpt2, axes: {batch: 1, "\ud800": {context: [1, 2]}}}', r"\ud800 is half a character"),
    ],
)
def test_malformed_files(refuse, own_folder: Path, content: bytes, said: str) -> None:
    (own_folder / "sweep.yaml").write_bytes(content)
    found = refuse(*SWEEP)
    assert said in found and "sweep.yaml" in found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("taks: decode", "unknown key 'taks'; allowed: model, task"),
        ("task: decod", "Did you mean decode"),
        ("metrics: tpot", "a list of at least one metric"),
        ("metrics: []", "a list of at least one metric"),
        ("metrics: [tpo]", "Did you mean tpot"),
        ("metrics: [ttft]", "Task decode has no metric 'ttft'"),
        ("metrics: [memory, tpot, memory]", "'metrics' has \"memory\" twice; name it once"),
        ("metrics: [1]", "'metrics.0' is 1"),
        ("keep: best", "allowed: all, top(COUNT, METRIC), pareto(METRIC, METRIC, ...)"),
        ("keep: 5", "'keep' is 5"),
        ("keep: top(5)", "needs a count"),
        ("keep: top(0, tpot)", "needs a count"),
        ("keep: top(1.5, tpot)", "needs a count"),
        ("keep: top(5, tpott)", "Did you mean tpot"),
        ("keep: top(5, energy_per_token)", "is not among the sweep's metrics"),
        ("keep: top(5, reason)", "'reason' has no better end; allowed: tpot"),
        ("keep: pareto(tpot)", "at least two metrics"),
        ("keep: pareto(tpot, limiter)", "'limiter' has no better end"),
        ("launch: grph", "Did you mean graph"),
        ("devices_directory: missing", "missing is not a directory"),
        ("metrics: [memory]\nkeep: top(2, memory)", "add 'reason', a time or a rate"),
    ],
)
def test_bad_fields(refuse, own_folder: Path, line: str, said: str) -> None:
    (own_folder / "sweep.yaml").write_text(f"{BODY}{line}\n")
    found = refuse(*SWEEP)
    assert said in found and "sweep.yaml" in found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("batch: []", "'batch' is empty"),
        ("batch:", "axes.batch is null"),
        ("batch: true", "axes.batch is true"),
        ("batch: [true]", "'batch' is true"),
        ("batch: ['8']", """'batch' is "8"; it must be a number"""),
        ("batch: .nan", "'batch' is NaN"),
        ("batch: [1, .inf]", "'batch' is Infinity"),
        ("batch: 0", "'batch' is 0"),
        ("batch: -1", "'batch' is -1"),
        ("batch: 1.0e+30", "'batch' is 1e+30"),
        (f"batch: {10**30}", "'batch' is 1000"),
        ("batch: [[1]]", "'batch' is a list of 1"),
        ("batch: powers(0, 4)", "axes.batch: powers(0, 4): start must be above zero"),
        ("batch: powers(1, 4", "'batch' is \"powers(1, 4\""),
        ("batch: powrs(1, 4)", "Did you mean powers"),
        ("batch: powers(1)", "needs two or three numbers"),
        ("batch: powers(1, x)", "'x' in powers(1, x) is not a number"),
        ("batch: linspace(1, 2)", "a start, a stop and a count"),
        ("batch: linspace(1, 2, 1.5)", "count must be a whole number"),
        ("batch: linspace(1, 1e9, 100000000)", "more than 10,000,000 values"),
        ("batch: linspace(1, 10, 1e15)", "linspace(1, 10, 1e15): that is more than 10,000,000 values"),
        ("batch: range(1, 10, 0)", "range(1, 10, 0): step must be above zero"),
        ("batch: [010]", "column 11: '010' would be a number of base 8; write it in base 10"),
        ("batch: [1:30]", "column 11: '1:30' would be a number of base 60; write it in base 10"),
        ("batch: [-1:30.5]", "'-1:30.5' would be a number of base 60"),
        ("batch: powers(1.0, 1e300, 1e200)", "too large or too small"),
        ("batchh: 3", "'batchh' is not a parameter of task decode; allowed: device"),
        ("prompt: 3", "'prompt' is not a parameter of task decode"),
        ("tensor_parallel: [5, 7]", "tensor_parallel 5 or 7 does not divide"),
        ("layout: {tensor_parallel: [5, 7], batch: [1, 2]}", "allowed: 1, 2, 3, 4, 6, 12"),
        ("layout: {}", "needs at least one axis"),
        ("layout: {batch: [1, 2], tensor_parallel: [1]}", "axes of equal length (batch: 2, tensor_parallel: 1)"),
        ("layout: {batch: [1, 2], context: [1, 2]}", "'context' is given twice"),
        ("layout: {batch: {a: 1}}", "axes.layout.batch is an object"),
        ("layout: {batc: [1]}", "Did you mean batch"),
        ("batch: {tensor_parallel: [1, 2]}", "'batch' has the name of a parameter"),
        ("tpot: {batch: [1, 2]}", "Metric 'tpot' has the name of an axis"),
        ("weights: [bf16, fp9]", "Unknown number format 'fp9'"),
        ("weights: 8", "'weights' is 8"),
        ("kv_cache: int4", "allowed here: fp32, bf16"),
        ("routing_skew: 0.5", "'routing_skew' is 0.5"),
        ("pipeline_parallel: .nan", "'pipeline_parallel' is NaN"),
    ],
)
def test_bad_axes(refuse, own_folder: Path, line: str, said: str) -> None:
    (own_folder / "sweep.yaml").write_text(f"{BODY}  {line}\n")
    found = refuse(*SWEEP)
    assert said in found and "sweep.yaml" in found


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("h100-sxn", "Did you mean h100-sxm"),
        ("[]", "No device is given"),
        ("5", "axes.device holds 5"),
        ("[h100-sxm, 5]", "axes.device holds 5"),
        ("[[h100-sxm]]", "axes.device holds a list of 1"),
        ("{a: b}", "axes.device is a mapping"),
        ("all(memry > 1 GB)", "Did you mean memory"),
        ("'no/*.toml'", "No file matches"),
    ],
)
def test_bad_devices(refuse, own_folder: Path, device: str, said: str) -> None:
    (own_folder / "sweep.yaml").write_text(f"model: gpt2\naxes:\n  device: {device}\n  context: 64\n")
    assert said in refuse(*SWEEP)


def test_a_grid_of_ten_to_the_twelve_fails_before_computing(refuse, own_folder: Path) -> None:
    million = "linspace(1, 1000000, 1000000)"
    axes = f"  device: h100-sxm\n  context: {million}\n  batch: {million}\n"
    (own_folder / "sweep.yaml").write_text(f"model: gpt2\naxes:\n{axes}")
    found = refuse(*SWEEP)
    assert "1,000,000,000,000 points (device 1 x context 1,000,000 x batch 1,000,000)" in found


def test_files_that_are_not_there(refuse, own_folder: Path) -> None:
    (own_folder / "folder.yaml").mkdir()
    assert "'missing.yaml': No such file" in refuse("sweep", "missing.yaml", "-o", "rows.parquet")
    assert "Is a directory" in refuse("sweep", "folder.yaml", "-o", "rows.parquet")
    assert "--out" in refuse("sweep", "folder.yaml")


def test_repeated_aliases_do_not_explode(refuse, own_folder: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    body = "model: gpt2\naxes:\n  context: 64\n  batch: *a11\n"
    (own_folder / "sweep.yaml").write_text("\n".join(lines) + "\n" + body)
    assert len(refuse(*SWEEP)) < 5000
