"""Parameters belong to the law that they were fitted with: what they predict moves with a new fit alone.

A step's formulas serve the law of single kernels as well, so that a change of one may reach the other unseen. After a
new fit the record is to be made again: `python -m tests.calibration.kernels.test_recorded`.
"""

from __future__ import annotations

import json

import numpy as np

from calibration.kernels.parameters import load_parameters
from calibration.kernels.predict import predict_table
from tests.calibration.tables import blank_table

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


def predicted() -> dict[str, list[float]]:
    """Times by family, of each of `DEVICES` [us]."""
    parameters = load_parameters(None)
    found = {}
    for family, shape in SHAPES.items():
        sides = {name: np.full(len(DEVICES), value, float) for name, value in shape.items()}
        dtype = "fp32" if family in ("bmm", "convolution") else "bf16"
        table = blank_table(family, sides, np.array(DEVICES, object), dtype)
        found[family] = [round(float(each), 6) for each in predict_table(table, parameters)["predicted_us"]]
    return found


FITTED = "9e3d8d92026254fe"
RECORD: dict[str, list[float]] = {
    "gemm": [173.166519, 52.893612, 193.75502, 40.875896],
    "bmm": [742.187012, 252.024063, 409.763214, 168.232193],
    "attention_prefill": [883.286621, 337.493866, 758.586731, 306.119324],
    "attention_decode": [559.649902, 312.861511, 1091.686401, 194.29277],
    "attention_mixed": [12983.639648, 4063.538818, 14162.335938, 2202.037109],
    "mla_decode": [78.72892, 37.560379, 77.644012, 32.125042],
    "moe": [2849.993896, 1603.509155, 7172.52832, 1087.61853],
    "convolution": [246.158249, 139.867249, 133.577866, 119.43335],
    "norm": [149.396667, 99.323845, 122.16935, 71.980042],
}


def test_what_the_shipped_parameters_predict_is_on_record() -> None:
    assert load_parameters(None).card["sha256"].startswith(FITTED), "a new fit: make the record again"
    found = predicted()
    assert found.keys() == RECORD.keys()
    for family, times in found.items():
        np.testing.assert_allclose(times, RECORD[family], rtol=1e-4, err_msg=family)


if __name__ == "__main__":
    print(load_parameters(None).card["sha256"][:16], json.dumps(predicted(), indent=1))
