"""Norms are told apart by what the model of a row computes, and rows without a known model keep their word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.datasets import read_table
from calibration.datasets.norms import kind_of
from calibration.kernels.inputs import prepare
from calibration.kernels.levels import spell

HEADER = "device,framework,op,model,dtype,rows,columns,latency_us"


def ops(folder: Path, rows: list[str], header: str = HEADER) -> list[str]:
    """The names of the operations of a table of norms, and that each kind is a stack of its own."""
    path = folder / "norms.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    (table,) = read_table(path).tables
    assert table.family == "norm"
    stacks = np.asarray(spell(table)["stack"]).astype(str)
    found = [str(word) for word in table.text["op"]]
    assert [stack.endswith(word) for stack, word in zip(stacks, found, strict=True)] == [True] * len(rows)
    return found


# LlamaRMSNorm and PhiForCausalLM's LayerNorm, as their configs say (rms_norm_eps, layer_norm_eps).
@pytest.mark.parametrize(
    ("model", "kind"),
    [("Llama-3.1-8B", "rms_norm"), ("phi-2", "layer_norm"), ("nobody-7b", ""), ("", ""), ("/no/such\x00", "")],
)
def test_a_model_says_which_norm_it_has(model: str, kind: str) -> None:
    assert kind_of(model) == kind


def test_a_path_in_place_of_a_model_is_not_opened(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"architectures": ["LlamaForCausalLM"]')
    assert [kind_of(str(path)) for path in (config, tmp_path)] == ["", ""]
    assert ops(tmp_path, [f"h100,hf,ln,{config},bf16,64,4096,9", "h100,hf,ln,7,bf16,64,4096,9"]) == ["ln", "ln"]


def test_one_word_for_two_norms_is_two_kernels(tmp_path: Path) -> None:
    rows = [f"h100,hf,layernorm,{model},bf16,64,4096,9" for model in ("Llama-3.1-8B", "phi-2", "nobody-7b")]
    assert ops(tmp_path, rows) == ["layernorm/rms_norm", "layernorm/layer_norm", "layernorm"]


def test_rows_without_a_model_keep_their_word(tmp_path: Path) -> None:
    rows = ["h100,hf,ln,,bf16,64,4096,9", "h100,hf,rmsnorm,,bf16,64,4096,9"]
    assert ops(tmp_path, rows) == ["ln", "rmsnorm"]
    bare = [row.replace(",,", ",") for row in rows]
    assert ops(tmp_path, bare, HEADER.replace("model,", "")) == ["ln", "rmsnorm"]


# Bytes an element of LlamaRMSNorm.forward (transformers), operation by operation: to fp32, square, mean, scale, from
# fp32, weight; of fp32 the conversions are none.
COMPOSED = {"bf16": (2 + 4) + (4 + 4) + 4 + (4 + 4) + (4 + 2) + (2 + 2), "fp32": (4 + 4) + 4 + (4 + 4) + (4 + 4)}


@pytest.mark.parametrize("dtype", COMPOSED)
def test_an_eager_rms_norm_moves_what_its_operations_do(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "norms.csv"
    kinds = [("hf_torch", "Llama-3.1-8B"), ("vllm", "Llama-3.1-8B"), ("hf_torch", "phi-2")]
    rows = [f"h100,{framework},layernorm,{model},{dtype},64,4096,9" for framework, model in kinds]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    moved = prepare(read_table(path).tables[0]).demand.moved / (64 * 4096)
    itemsize = 2 if dtype == "bf16" else 4
    np.testing.assert_allclose(moved, [COMPOSED[dtype], 2 * itemsize, 2 * itemsize], rtol=1e-6)
