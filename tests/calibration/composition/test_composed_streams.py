"""Eager code moves what its elementary operations do; a fused kernel of the same shape reads and writes once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.datasets import read_table
from calibration.kernels.inputs import prepare

HEADER = "device,framework,op,dtype,rows,elements_in,elements_out,latency_us"
# Of an element of a rotary embedding (apply_rotary_pos_emb in transformers): times the cosine, half of it negated,
# joined, times the sine, added.
ROTATED = (1 + 1) + (0.5 + 0.5) + (1 + 1) + (1 + 1) + (2 + 1)
GATED = (1 + 1) + (2 + 1)  # an activation of one projection, times the other


@pytest.mark.parametrize(
    ("op", "framework", "inputs", "accesses"),
    [
        ("rope", "hf_torch", 1, ROTATED),
        ("rope", "vllm", 1, 2),
        ("act_fn", "hf_torch", 2, GATED),
        ("act_fn", "hf_torch", 1, 2),
        ("act_fn", "vllm", 2, 3),
        ("add", "hf_torch", 2, 3),
    ],
)
def test_bytes_of_an_element(op: str, framework: str, inputs: int, accesses: float, tmp_path: Path) -> None:
    path, elements = tmp_path / "streams.csv", 2**20
    path.write_text(f"{HEADER}\nh100,{framework},{op},bf16,256,{inputs * elements},{elements},9\n")
    (table,) = read_table(path).tables
    np.testing.assert_allclose(prepare(table).demand.moved, [accesses * elements * 2.0], rtol=1e-6)
