"""From hashes of prompts to the nodes of a prefix cache, on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwspecs.errors import InputError


def prefix_paths(
    hashes: Sequence[Sequence[int]], prompt: np.ndarray, output: np.ndarray, block_size: int, tokens_per_hash: int
) -> np.ndarray:
    """The node of every full block of every request [R, P], -1 behind the last.

    Two requests have the same node where their hashes up to the end of the block are the same. Blocks behind the
    prompt's hashes, those of the output among them, are the request's own.

    **Arguments:** `hashes`: of each request's prompt, one for every `tokens_per_hash` tokens, the last perhaps for
    fewer; `prompt`, `output` [R] tokens.
    **Raises:** `InputError` where blocks do not divide what a hash stands for.
    """
    if tokens_per_hash % block_size:
        raise InputError(f"a hash stands for {tokens_per_hash} tokens, which blocks of {block_size} do not divide.")
    known: dict[tuple[int, int, int], int] = {}
    blocks = (prompt + output) // block_size
    paths = np.full((len(prompt), max(1, int(blocks.max()))), -1)
    nodes = 0
    for request, own in enumerate(hashes):
        shared = min(int(prompt[request]) // block_size, len(own) * tokens_per_hash // block_size)
        above = -1
        for block in range(int(blocks[request])):
            place, offset = divmod(block * block_size, tokens_per_hash)
            if block < shared:
                above = known.setdefault((above, own[place], offset), nodes)
            else:
                above = nodes
            nodes += above == nodes
            paths[request, block] = above
    return paths
