"""Why an empty replica does not take a request, with the numbers of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxperf.serving.simulator.settings import RESERVING, USED_BY, Scheduler
from jaxperf.serving.simulator.state import Status


def refusals(scheduler: Scheduler, requests: Mapping[str, Any], brought: np.ndarray | None = None) -> dict[int, str]:
    """What each request that replicas with one scheduler never admitted would need, by its number: see `refusal`.

    **Arguments:** `requests`: `status` as in `Status`, `scheduled` [R] s (-1: never), `prompt` and `output` [R] tokens;
    `brought` [R]: tokens of the prompts that come with them, None for none.
    """
    never = np.flatnonzero((requests["status"] == Status.REJECTED) & (requests["scheduled"] < 0.0))
    lengths = np.stack([requests["prompt"][never], requests["output"][never]], axis=1).tolist()
    whole = [False] * len(never) if brought is None else (brought >= requests["prompt"])[never].tolist()
    listed = zip(never.tolist(), lengths, whole, strict=True)
    return {number: refusal(scheduler, prompt, output, every) for number, (prompt, output), every in listed}


def refusal(scheduler: Scheduler, prompt: int, output: int, whole: bool = False) -> str:
    """What a request that an empty replica does not admit would need, and the setting that is less, in a few words; ""
    where its blocks and its tokens fit.

    **Arguments:** `prompt`, `output` of the request [tokens]; `whole`: all of the prompt comes with it, so that it is a
    decode, whose next token is to fit too.
    """
    numbers, name = scheduler.numbers, scheduler.name
    size, blocks, most = numbers["block_size"], numbers["blocks"], numbers["batch_tokens"]
    spare = numbers["watermark"] if name in USED_BY["watermark_blocks"] else 0
    if name in RESERVING:
        need, words = numbers["reserved"], "blocks reserved for each request"
    elif name == "lightllm":  # its peak to come stays below the cache
        need, words = max(prompt + output, prompt + 2), "tokens with its output"
    else:
        need, words = -(-(prompt + whole) // size), f"blocks of {size:,} tokens for its prompt"
        words += " and the next token" if whole else ""
    beside = f" and a watermark of {spare:,}" if spare else ""
    if whole and not spare and name in USED_BY["watermark_blocks"]:  # these look for a free block before any decode
        spare, beside = 1, " and one left free"
    if need + spare > blocks:
        return f"{need:,} {words}{beside}, num_blocks is {blocks:,}"
    if not whole and name in USED_BY["max_tokens_in_batch"] and name != "vllm_v1" and prompt > most:
        return f"a prompt of {prompt:,} tokens, max_tokens_in_batch is {most:,}"
    return ""
