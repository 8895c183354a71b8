"""An engine whose steps take 10 us for each token rounded up to eight, and five requests: what `simulate` is asked."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

REQUESTS = """note,req,arrived_at,prefill_tokens,decode_tokens
"a, b",0,0.010,100,3
late,1,0.000,50,2
none,2,0.020,0,2
huge,3,0.030,900,2
last,4,9.000,20,1
"""
SETTINGS = {
    **{"sched": "vllm", "num_blocks": 40, "block_size": 16, "batch_size_cap": 4, "max_tokens_in_batch": 512},
    **{"watermark_blocks": None, "model": "gpt2", "tp": 1, "device": "a100"},
}
ROUNDED = (
    *("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "mlp_act", "attn_rope"),
    *("input_layernorm", "post_attention_layernorm", "add", "attn_kv_cache_save"),
)


def step_time_arrays() -> dict[str, np.ndarray]:
    """A table of one layer: 10 us for each token rounded up to eight in one operator, attention for nothing."""
    linear = np.arange(513) * 0.01
    contexts = np.arange(0, 1025, 64)
    return {
        **{name: np.zeros(513) for name in ROUNDED},
        "mlp_up_proj": linear,
        "attn_decode": np.zeros((4, len(contexts))),
        "attn_decode_bs": np.arange(1, 5),
        "attn_decode_kv": contexts,
        "attn_prefill": np.zeros((len(contexts), 512)),
        "attn_prefill_kv": contexts,
    }


def write_case(folder: Path, arrays: dict[str, np.ndarray]) -> tuple[str, ...]:
    """The arguments of the command for the files in a folder."""
    (folder / "requests.csv").write_text(REQUESTS)
    (folder / "s.json").write_text(json.dumps(SETTINGS))
    np.savez(folder / "t.npz", **arrays)
    return ("requests.csv", "--settings", "s.json", "--step-time", "t.npz")
