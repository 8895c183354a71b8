"""Tables of fixed batches: every spelling of a row, and a sentence for every row that is none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibration.composition.batches_rows import read_batches
from hwspecs.errors import InputError

GOOD = {
    "gpu": "RTX_6000_Ada",
    "tp": 2,
    "model": "Qwen3-32B",
    "dtype": "bfloat16",
    "framework": "SGLang",
    "batch": 2,
    "output_len": 10,
    "prompt_lengths": "[100, 7]",
    "prefill_s": 0.5,
    "decode_step_s": "",
}


def write(folder: Path, *changes: dict[str, object], drop: str = "") -> Path:
    path = folder / "in.json"
    rows = [{name: value for name, value in {**GOOD, **change}.items() if name != drop} for change in changes]
    path.write_text(json.dumps(rows))
    return path


def test_a_row_is_read_with_every_spelling_resolved(tmp_path: Path) -> None:
    table = read_batches(write(tmp_path, {}))
    (batch,) = table.batches
    assert (batch.device, batch.ranks, batch.model, batch.dtype) == ("rtx-6000-ada", 2, "Qwen3-32B", "bf16")
    assert (batch.framework, batch.prompts, batch.output) == ("sglang", (100, 7), 10)
    assert batch.measured[0] == 0.5 and math.isnan(batch.measured[1])


def test_parquet_may_hold_real_lists(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.Table.from_pylist([{**GOOD, "prompt_lengths": [3, 5], "decode_step_s": 0.1}]), path)
    assert read_batches(path).batches[0].prompts == (3, 5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu": "RTX_6000_Adaa"}, "gpu: .*not a known device"),
        ({"gpu": ""}, "gpu: no device"),
        ({"model": " "}, "model: none"),
        ({"dtype": "bf17"}, "dtype: 'bf17' is not a known number format"),
        ({"tp": 0}, "tp: 0 must be a whole number"),
        ({"tp": "two"}, "tp: 'two' must be a whole number"),
        ({"output_len": 2.5}, "output_len: 2.5 must be"),
        ({"output_len": None}, "output_len: None must be"),
        ({"batch": 3}, "batch: 3 is stated, but prompt_lengths holds 2"),
        ({"prompt_lengths": "100, 7"}, "prompt_lengths: .* is not a JSON list"),
        ({"prompt_lengths": "[]"}, "at least one length"),
        ({"prompt_lengths": "7"}, "at least one length"),
        ({"prompt_lengths": "[100, -7]"}, "prompt_lengths: -7 must be"),
        ({"prompt_lengths": "[100, true]"}, "prompt_lengths: True must be"),
        ({"prompt_lengths": "[100, NaN]"}, "prompt_lengths: nan must be"),
        ({"prompt_lengths": f"[{2**27}, 1]"}, "add up to"),
    ],
)
def test_a_bad_row_leaves_the_others(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    table = read_batches(write(tmp_path, {}, change, {}))
    assert [batch.row for batch in table.batches] == [0, 2]
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(table.reasons[1])


@pytest.mark.parametrize("column", ["gpu", "tp", "model", "output_len", "prompt_lengths"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    with pytest.raises(InputError, match=f"the column '{column}' is missing"):
        read_batches(write(tmp_path, {}, drop=column))


@pytest.mark.parametrize("column", ["dtype", "framework", "batch"])
def test_what_has_a_default_may_be_missing(tmp_path: Path, column: str) -> None:
    assert len(read_batches(write(tmp_path, {}, drop=column)).batches) == 1


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        read_batches(write(tmp_path))
