"""Parameters belong to the law that they were fitted with: what they predict moves with a new fit alone.

A step's formulas serve the law of single kernels as well, so that a change of one may reach the other unseen. After a
new fit the record is to be made again: `python -m tests.calibration.kernels.test_recorded`.
"""

from __future__ import annotations

import json

import numpy as np

from calibration.datasets.schema import KernelTable
from calibration.kernels.parameters import load_parameters
from calibration.kernels.predict import predict_table
from tests.calibration.tables import blank_table, in_stack

DEVICES = ("a100-sxm-80gb", "h100-sxm", "l40s", "mi300x")
HEADS = {"heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}
SHAPES = {
    "gemm": {"batch": 1, "m": 129, "n": 7168, "k": 8192},
    "bmm": {"batch": 48, "m": 257, "n": 640, "k": 512},
    "attention_prefill": HEADS | {"batch": 2, "q_len": 3000, "prefix": 0},
    "attention_decode": HEADS | {"batch": 34, "kv_len": 5000},
    "attention_mixed": HEADS | {"prefill_q": 512, "prefill_kv": 512, "n_decode": 34, "kv_decode": 34 * 1500},
    "mla_decode": {"heads": 128, "batch": 9, "q_len": 1, "kv_len": 4000},
    "moe": {"tokens": 129, "hidden": 4096, "inter": 1536, "topk": 8, "experts": 128, "tp": 1, "ep": 1},
    "convolution": {
        "batch": 8,
        "input_channels": 64,
        "output_channels": 96,
        "input_size": 56,
        "kernel_size": 3,
        "stride": 1,
        "padding": 1,
    },
    "norm": {"rows": 3000, "columns": 8192},
}


# Products whose libraries leave reductions whole, or have small or tall tiles alone: (dtype, framework, version, rows).
SOFTWARE = {
    "gemm of TensorRT-LLM, blocks of fp8": ("fp8_block", "trtllm", "1.3.0rc20", 129),
    "gemm of TensorRT-LLM, int8": ("sq", "trtllm", "1.0.0", 16),
    "gemm of vLLM, fp8": ("fp8", "vllm", "0.24.0", 257),
    "gemm of SGLang, fp8": ("fp8", "sglang", "0.5.6", 16),
}


def predicted() -> dict[str, list[float]]:
    """Times by family, or product of a software, of each of `DEVICES` [us]."""
    found = {}
    for family, shape in SHAPES.items():
        dtype = "fp32" if family in ("bmm", "convolution") else "bf16"
        found[family] = _times(_table(family, shape, dtype))
    for name, (dtype, framework, version, rows) in SOFTWARE.items():
        table = _table("gemm", SHAPES["gemm"] | {"m": rows}, dtype)
        found[name] = _times(in_stack(table, framework, version, ""))
    return found


def _table(family: str, shape: dict[str, int], dtype: str) -> KernelTable:
    sides = {name: np.full(len(DEVICES), value, float) for name, value in shape.items()}
    return blank_table(family, sides, np.array(DEVICES, object), dtype)


def _times(table: KernelTable) -> list[float]:
    return [round(float(each), 6) for each in predict_table(table, load_parameters(None))["predicted_us"]]


FITTED = "08fa18640372716d"
RECORD: dict[str, list[float]] = {
    "gemm": [121.577759, 44.591206, 211.658997, 39.06794],
    "bmm": [742.187012, 252.024063, 409.763214, 168.232193],
    "attention_prefill": [974.931274, 371.669434, 864.83374, 287.744507],
    "attention_decode": [534.501587, 333.511078, 1028.559326, 199.841431],
    "attention_mixed": [12004.389648, 4709.918457, 13328.805664, 2077.855957],
    "mla_decode": [79.073532, 37.507648, 76.059662, 30.645653],
    "moe": [2816.869873, 1635.922607, 6742.472168, 1036.328369],
    "convolution": [246.158447, 139.867249, 133.577866, 119.43335],
    "norm": [149.801422, 98.921135, 122.16935, 71.980042],
    "gemm of TensorRT-LLM, blocks of fp8": [153.825943, 55.111176, 115.003815, 22.286875],
    "gemm of TensorRT-LLM, int8": [49.753578, 31.627441, 91.465027, 17.526148],
    "gemm of vLLM, fp8": [189.912186, 65.643044, 165.646103, 34.760902],
    "gemm of SGLang, fp8": [43.186314, 29.730021, 100.45372, 18.062668],
}


def test_what_the_shipped_parameters_predict_is_on_record() -> None:
    assert load_parameters(None).card["sha256"].startswith(FITTED), "a new fit: make the record again"
    found = predicted()
    assert found.keys() == RECORD.keys()
    for family, times in found.items():
        np.testing.assert_allclose(times, RECORD[family], rtol=1e-4, err_msg=family)


if __name__ == "__main__":
    print(load_parameters(None).card["sha256"][:16], json.dumps(predicted(), indent=1))
