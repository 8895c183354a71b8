"""A number format is spelled alike in tables of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.datasets.names import dtype_name
from calibration.datasets.serving import read_serving
from calibration.datasets.training import read_training
from calibration.kernels.formats import FORMATS as OF_KERNELS
from jaxperf.core.formats import FORMAT_ALIASES, FORMATS, format_name

SPELLINGS = (*FORMATS, *FORMAT_ALIASES, "int4_g32", "int4_asym_g64s32")


def test_kernels_have_every_format_in_its_arithmetic() -> None:
    for spelling in SPELLINGS:
        dtype, wrong = dtype_name(spelling)
        assert not wrong and FORMATS[OF_KERNELS[dtype][0]].compute == FORMATS[format_name(spelling)].compute, spelling


def test_kernels_of_other_bits_are_not_those_of_4() -> None:
    assert dtype_name("int4_g32")[0] == "int4_weight_only"
    assert "'int3' is not a known number format" in dtype_name("int3")[1]


@pytest.mark.parametrize(("stated", "own"), [(SPELLINGS, False), (("", "auto", "default"), True)])
def test_serving_and_training_have_every_format(tmp_path: Path, stated: tuple[str, ...], own: bool) -> None:
    serving, training = tmp_path / "s.csv", tmp_path / "t.csv"
    serving.write_text("model,gpu,dtype\n" + "".join(f"gpt-oss-20b,h100-sxm,{each}\n" for each in stated))
    header = "model,gpu,n_gpus,seq,global_batch,dtype\n"
    training.write_text(header + "".join(f"llama-3-8b,h100-sxm,8,4096,64,{each}\n" for each in stated))
    served, trained = read_serving(serving), read_training(training)
    assert not served.reasons and not trained.reasons
    weights = {row: each.weights for each in served.configurations for row in each.rows}
    assert [weights[row] for row in range(len(stated))] == ["" if own else format_name(each) for each in stated]
    assert [run.dtype for run in trained.runs] == ["bf16" if own else format_name(each) for each in stated]
    assert {run.dtype_stated for run in trained.runs} == {not own}
