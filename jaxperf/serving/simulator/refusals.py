"""Why an empty replica does not take a request, with the numbers of both."""

from __future__ import annotations

from jaxperf.serving.simulator.settings import RESERVING, USED_BY, Scheduler


def refusal(scheduler: Scheduler, prompt: int, output: int) -> str:
    """What a request that an empty replica does not admit would need, and the setting that is less, in a few words; ""
    where its blocks and its tokens fit.

    **Arguments:** `prompt`, `output` of the request [tokens].
    """
    numbers, name = scheduler.numbers, scheduler.name
    size, blocks, most = numbers["block_size"], numbers["blocks"], numbers["batch_tokens"]
    spare = numbers["watermark"] if name in USED_BY["watermark_blocks"] else 0
    if name in RESERVING:
        need, words = numbers["reserved"], "blocks reserved for each request"
    elif name == "lightllm":  # its peak to come stays below the cache
        need, words = max(prompt + output, prompt + 2), "tokens with its output"
    else:
        need, words = -(-prompt // size), f"blocks of {size:,} tokens for its prompt"
    if need + spare > blocks:
        watermark = f" and a watermark of {spare:,}" if spare else ""
        return f"{need:,} {words}{watermark}, num_blocks is {blocks:,}"
    if name in USED_BY["max_tokens_in_batch"] and name != "vllm_v1" and prompt > most:
        return f"a prompt of {prompt:,} tokens, max_tokens_in_batch is {most:,}"
    return ""
