"""How full the KV blocks of requests are: places for tokens that they hold open (internal fragmentation). In NumPy.

Paged blocks leave the last one of a sequence partly empty, (B - 1) / 2 places in the mean; blocks reserved for the
longest sequence leave all that it does not reach (Kwon et al., PagedAttention, SOSP 2023, section 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def fragmentation(requests: Mapping[str, np.ndarray], block_size: int, reserved: int = 0) -> dict[str, float]:
    """Means over the steps that make a token of a completed request, whose blocks are its own or full: `kv_waste`, the
    share of the places in them that is empty, and `kv_empty_tokens`, how many are; NaN where none was completed.

    A step leaves all tokens in the cache but the one it makes: prompt, prompt + 1, ..., prompt + output - 1 of them.

    **Arguments:** `requests`: `completed` [R] s (-1: never), `prompt` and `output` [R] tokens; `block_size` [token];
    `reserved` blocks that each has from the beginning.
    """
    done = requests["completed"] >= 0.0
    prompt, output = (np.asarray(requests[name][done], np.int64) for name in ("prompt", "output"))
    within = np.clip(reserved * block_size - prompt + 1, 0, output)  # steps that need no block beyond the reserved ones
    inside = within * (reserved * block_size - prompt) - _sum_below(within)
    beyond = _empty_below(prompt + output, block_size) - _empty_below(prompt + within, block_size)
    empty, tokens = float((inside + beyond).sum()), float((output * prompt + _sum_below(output)).sum())
    steps = float(output.sum()) or float("nan")
    return {"kv_waste": empty / (empty + tokens) if done.any() else float("nan"), "kv_empty_tokens": empty / steps}


def _sum_below(number: np.ndarray) -> np.ndarray:
    """0 + 1 + ... + (number - 1)."""
    return number * (number - 1) // 2


def _empty_below(tokens: np.ndarray, size: int) -> np.ndarray:
    """Empty places of the last block, (-t) mod `size`, summed over t = 0 ... `tokens` - 1."""
    whole, rest = np.divmod(tokens, size)
    return whole * (size * (size - 1) // 2) + np.maximum(rest - 1, 0) * size - _sum_below(rest)
