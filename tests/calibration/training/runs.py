"""Rows of training runs for tests: a good one, and files of changed copies of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

GOOD = {
    "source": "llama-herd",
    "model": "llama-3.1-8b",
    "gpu": "H100-SXM-80GB",
    "n_gpus": 8,
    "tp": 2,
    "pp": 2,
    "dp": 2,
    "vp": 2,
    "micro_batch": 1,
    "global_batch": 16,
    "zero": 1,
    "recompute": "none",
    "seq": 4096,
    "dtype": "bf16",
    "task": "pretrain",
    "step_time_s": 1.5,
}
SHAPE = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 14336,
    "gated": 1,
    "vocab": 128256,
}


def write(folder: Path, *changes: Mapping[str, object], drop: tuple[str, ...] = ()) -> Path:
    """A table of one row a change of `GOOD`, without the columns `drop`."""
    path = folder / "runs.json"
    rows = [{name: value for name, value in {**GOOD, **change}.items() if name not in drop} for change in changes]
    path.write_text(json.dumps(rows))
    return path
