"""The shared tables, where they are: every row accounted for, every name known. Skipped where the data is absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.datasets import Read, read_table
from calibration.datasets.schema import FLAG_BROKEN_SOURCE

COUNTS = {
    "kernels/attention_mixed.parquet": {"attention_mixed": 105_685},
    "kernels/collectives.parquet": {"collective": 43_645},
    "kernels/mla.parquet": {"mla_prefill": 17_371, "mla_decode": 29_229, "mla_pre": 4_294, "mla_post": 4_772},
    "kernels/quantize.parquet": {"quantize": 22_070},
    "kernels/vidur_ops.parquet": {
        **{"gemm": 89_277, "norm": 43_581, "embedding": 20_822},
        **{"elementwise": 36_851, "rope": 21_494},
    },
    "neusight/ops.parquet": {
        **{"gemm": 36_809, "bmm": 95_868, "norm": 10_094},
        **{"softmax": 12_544, "elementwise": 137_417},
    },
    "neusight/label_ops.parquet": {"gemm": 365, "bmm": 110, "norm": 171, "softmax": 55, "elementwise": 579},
    "neusight/ops_conv.parquet": {"convolution": 24_662},
    "llmcompass/llmcompass_measured.csv": {"gemm": 42, "norm": 44, "softmax": 44, "elementwise": 40, "collective": 32},
    "static_batch/gemm_fp8.parquet": {"gemm": 16_818},
    "static_batch/all_reduce.parquet": {"collective": 19_422},
}


def opened(directory: Path, name: str) -> Read:
    path = directory / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return read_table(path)


@pytest.mark.parametrize("name", COUNTS)
def test_rows_of_each_family(data_directory: Path, name: str) -> None:
    read = opened(data_directory, name)
    assert {table.family: len(table) for table in read.tables} == COUNTS[name]
    left_out = sum(problem.count for problem in read.problems if problem.excluded)
    assert sum(map(len, read.tables)) + left_out == read.rows
    # Two blocks of GPT-3 and the nodes that move data are no kernels.
    assert left_out == {"llmcompass_measured.csv": 26, "label_ops.parquet": 3_777 + 970}.get(name.split("/")[1], 0)
    for table in read.tables:
        assert (table.device != "").all()
        assert np.isfinite(table.latency).all() and (table.latency > 0.0).all()  # type: ignore[operator]


@pytest.mark.parametrize("name", ["gemm", "attention_prefill", "attention_decode", "moe"])
def test_every_name_in_the_large_tables_is_known(data_directory: Path, name: str) -> None:
    """A piece of each large table, and every distinct name of the whole."""
    import pyarrow.parquet as pq

    from calibration.datasets import iterate_table, names
    from calibration.datasets.columns import parse_text

    path = data_directory / "kernels" / f"{name}.parquet"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    (table,) = next(iterate_table(path, chunk=20_000)).tables
    assert (table.family, len(table)) == (name, 20_000)
    columns = [name for name in ("gpu", "dtype", "kv_dtype") if name in pq.read_schema(path).names]
    written = pq.read_table(path, columns=columns)
    for column in columns:
        meaning = names.device_name if column == "gpu" else names.dtype_name
        text = parse_text(written[column])
        assert [meaning(value) for value in np.unique(text.values[text.codes]) if meaning(value)[1]] == []


def test_the_a100_of_the_kernel_tables_is_the_sxm_card(data_directory: Path) -> None:
    table = opened(data_directory, "kernels/collectives.parquet").tables[0]
    assert not {"a100-pcie-80gb", "a100-sxm-40gb"} & set(table.device.tolist())


def test_neusight_parts_are_pcie_cards_and_their_broken_rows_marked(data_directory: Path) -> None:
    read = opened(data_directory, "neusight/ops.parquet")
    gemm = read.table("gemm")
    assert gemm is not None and gemm.latency is not None
    assert {"a100-pcie-40gb", "v100-pcie-32gb", "p100-pcie-16gb"} <= set(gemm.device.tolist())
    broken = gemm.flag == FLAG_BROKEN_SOURCE
    assert set(gemm.device[broken].tolist()) == {"p4"} and set(gemm.text["split"][broken].tolist()) == {"train"}
    assert all((table.flag == 0).all() for table in read.tables if table.family != "gemm")
    # Large products stay below the peak only if N is the reduction; and the marked rows are indeed far below it.
    work = 2.0 * gemm.shape["m"] * gemm.shape["n"] * gemm.shape["k"] * gemm.shape["batch"]
    large = (gemm.device == "p4") & (work > 1e11)
    rates = work / gemm.latency / 5.5e12  # P4: 5.5 TFLOP/s fp32 (NVIDIA Tesla P4 datasheet)
    assert np.median(rates[large & broken]) < 0.25 < 0.5 < np.median(rates[large & ~broken])
