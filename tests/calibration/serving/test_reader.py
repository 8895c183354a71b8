"""Tables of serving: rows of one configuration together, labels as labels only, mistakes said with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.datasets.serving import engine_name, read_serving, release_in
from hwspecs.errors import InputError

HEADER = "model,gpu,n_gpu,tp,dtype,framework,mode,input_len,output_len,concurrency,metric,value,unit"
ROW = "Qwen/Qwen3-32B,h100_sxm,2,2.0,fp8,vllm,agg,1024,128,8"


def written(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "in.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def test_rows_that_differ_in_the_metric_only_are_one_configuration(tmp_path: Path):
    path = written(
        tmp_path, f"{ROW},ttft,250,ms", f"{ROW},tpot,10,ms", f"{ROW},ttft_mean,350,ms", f"{ROW},ttft_p99,9,ms"
    )
    (found,) = read_serving(path).configurations
    assert found.rows == (0, 1, 2, 3)
    assert found.measured == pytest.approx({"ttft": 0.3, "tpot": 0.01})
    assert (found.weights, found.engine, found.mode) == ("fp8", "vllm", "agg")
    assert found.counts["tp"] == 2.0 and found.load["concurrency"] == 8.0


def test_a_table_without_labels_is_read_the_same(tmp_path: Path):
    header = HEADER.rpartition(",metric")[0]
    (found,) = read_serving(written(tmp_path, ROW, header=header)).configurations
    assert found.measured == {}
    assert found.load["input_len"] == 1024.0


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("vllm,static,1024,128,,8,,", ""),
        ("vllm,static,1024,128,,8,mine,", "mine"),
        ('"vLLM (Splitwise, 2023)",static,1024,128,,1,,', "splitwise-sim data/perf_model.csv"),
        ('"vLLM (Splitwise, 2023)",static,1024,128,,1,mine,', "mine"),
        ("vllm,agg,,,,,,Offline", "MLPerf Inference"),
        ("vllm,agg,1024,128,8,,,Server", ""),
        ("vllm,agg,,,8,,,chat", ""),
    ],
)
def test_without_a_source_framework_or_scenario_tell_who_measured(tmp_path: Path, cells: str, told: str):
    header = "model,gpu,framework,mode,input_len,output_len,concurrency,batch,source,scenario"
    (found,) = read_serving(written(tmp_path, f"m,h100,{cells}", header=header)).configurations
    assert found.source == told


@pytest.mark.parametrize("cell", ["", "nan", "-3", "fast", "inf"])
def test_a_label_that_is_no_time_is_no_label_and_no_mistake(tmp_path: Path, cell: str):
    (found,) = read_serving(written(tmp_path, f"{ROW},tpot,{cell},ms")).configurations
    assert found.measured == {}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW.replace(",2.0,", ",two,"), "tp: 'two'"),
        (ROW.replace("fp8", "fp9"), "dtype: "),
        (ROW.replace("agg", "aggr"), "mode: 'aggr' is not one of agg, disagg, static"),
        (ROW.replace("Qwen/Qwen3-32B", ""), "model: "),
        (ROW.replace("1024", "-5"), "input_len: '-5' must be a number from 1 to 1e+09; leave it empty"),
        (ROW.replace(",2.0,", ",-2,"), "tp: '-2' must be a whole number from 1 to 1e+09; leave it empty"),
        (ROW[:-1] + "-8", "concurrency: '-8' must be a number above 0, at most 1e+09; leave it empty"),
    ],
)
def test_a_bad_cell_costs_its_own_rows_only(tmp_path: Path, row: str, said: str):
    table = read_serving(written(tmp_path, f"{row},tpot,1,ms", f"{ROW},tpot,1,ms"))
    assert said in table.reasons[0]
    assert [each.rows for each in table.configurations] == [(1,)]


def test_two_spellings_of_one_column_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="the columns 'tp' and 'TP' mean the same; remove one"):
        read_serving(written(tmp_path, f"{ROW},tpot,1,ms,4", header=f"{HEADER},TP"))


def test_missing_columns_are_named(tmp_path: Path):
    with pytest.raises(InputError, match="column 'gpu' is missing"):
        read_serving(written(tmp_path, f"{ROW},tpot,1,ms", header=HEADER.replace("gpu,n_gpu", "chip,n_gpu")))
    with pytest.raises(InputError, match="has no rows"):
        read_serving(written(tmp_path))


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("NIM/TRT-LLM", "trtllm"),
        ("TensorRT 10.2.0, CUDA 12.4", "trtllm"),
        ("vLLM (Splitwise, 2023)", "vllm"),
        ("SGLang", "sglang"),
        ("Foo Serve", "foo serve"),
        ("", ""),
    ],
)
def test_engines_by_what_tables_call_them(text: str, engine: str):
    assert engine_name(text) == engine


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("vLLM 0.10.0, RHEL 9.6", "0.10.0"),
        ("Mango LLMBoost, vllm-0.9.0.2.dev108+g71faa1880", "0.9.0.2"),
        ("SGLang v0.5.6", "0.5.6"),
        ("TensorRT 10.2.0, CUDA 12.4", ""),  # not of TensorRT-LLM
        ("TRT-LLM 1.0, CUDA 12.4", "1.0"),
        ("vLLM (Splitwise, 2023)", ""),
        ("", ""),
    ],
)
def test_a_release_can_stand_in_the_name_of_the_framework(text: str, release: str):
    assert release_in(text) == release


def test_two_columns_of_one_meaning_agree_or_the_row_is_none(tmp_path: Path):
    header = HEADER + ",tensor_parallel,isl"
    rows = [f"{ROW},ttft,250,ms,{tensor},{length}" for tensor, length in ((2, ""), (4, ""), ("", 512), ("", 1024.0))]
    table = read_serving(written(tmp_path, *rows, header=header))
    assert [found.rows for found in table.configurations] == [(0, 3)]
    assert table.reasons == {
        1: "tp: 'tp' says 2.0 and 'tensor_parallel' 4; they mean the same, remove one.",
        2: "input_len: 'input_len' says 1024 and 'isl' 512; they mean the same, remove one.",
    }
