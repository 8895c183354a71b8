"""Several columns of one meaning: what they agree on is read, what one leaves open is another's, the rest is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibration.datasets import Read, read_table

HEADER = "device,gpu,framework,backend,batch,b,kv_len,heads,num_heads,kv_heads,head_dim\n"


def read(tmp_path: Path, *rows: str) -> Read:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return read_table(path)


def test_what_one_column_leaves_open_another_says(tmp_path: Path) -> None:
    found = read(
        tmp_path, "a100,,vllm,,8,,64,32,,8,128", ",h100,,trtllm,,4,64,,16,8,128", "h100,H100-SXM,,,,,64,8,8,8,128"
    )
    decode = found.table("attention_decode")
    assert decode is not None
    assert [problem.message for problem in found.problems] == ["no value: 1 taken."], "the batch of the last"
    assert decode.device.tolist() == ["a100-sxm-80gb", "h100-sxm", "h100-sxm"]
    assert decode.framework.tolist() == ["vllm", "trtllm", ""]
    np.testing.assert_array_equal(decode.shape["batch"], [8, 4, 1])
    np.testing.assert_array_equal(decode.shape["heads"], [32, 16, 8])


def test_two_devices_in_one_row_leave_it_out_and_what_else_differs_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, "h100,a100,vllm,,8,,64,32,,8,128", "h100,GPU,vllm,trtllm,8,4,64,32,16,8,128")
    decode = found.table("attention_decode")
    assert decode is not None
    assert decode.row.tolist() == [1]
    assert (decode.device.tolist(), decode.framework.tolist()) == (["h100-sxm"], ["vllm"])
    assert (decode.shape["batch"].tolist(), decode.shape["heads"].tolist()) == ([8], [32])
    said = [found.located(problem).partition("t.csv, ")[2] for problem in found.problems]
    assert said[0] == "line 2, column 'gpu': names another device than 'device'; they mean the same, remove one."
    assert sorted(said[1:]) == [
        "line 3, column 'b': is not read where 'batch' says something else.",
        "line 3, column 'backend': is not read where 'framework' says something else.",
        "line 3, column 'num_heads': is not read where 'heads' says something else.",
    ]
