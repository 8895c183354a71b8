"""What benchmark campaigns do, from their documents, that a table does not state: the lengths that a client draws where
the most is stated, and the tokens that a step of their engines has room for.

InferenceMAX, later InferenceX (its README, "Benchmark Client Configuration"), has three scenarios of lengths and draws
both lengths of each request uniformly between RANDOM_RANGE_RATIO = 0.8 of what is stated and all of it.

aiconfigurator writes the settings of the engines that it measures (its generator, `max_num_tokens` of an aggregated
worker): a step has room for one prompt, a fixed number of tokens beside it, and a token of each running request. Its
sources of 2025 have 1,500 beside; its measurements on TensorRT-LLM have fewer than 1,024 and more than 896, for 1, 2, 4
and 8 prompts of 1,024, 512, 256 and 128 tokens pass in a step there (by the time that prefills take of runs that differ
in the output alone). Its clients send requests of one length.
"""

from __future__ import annotations

import re

DRAWING = re.compile(r"inference(?:max|x)", re.IGNORECASE)  # sources whose client draws lengths
SCENARIOS = frozenset({(1024.0, 1024.0), (1024.0, 8192.0), (8192.0, 1024.0)})
SMALLEST = 0.8  # of the stated length, of the lengths drawn
GENERATING = re.compile(r"aiconfigurator", re.IGNORECASE)  # sources whose engines are set up by it
GENERATED = frozenset({"trtllm", "vllm"})  # engines whose `max_num_tokens` it sets
BESIDE = 1000.0  # tokens of a step beside one prompt and those that decode
BUDGET = 8192.0  # tokens a prefill may have in one step where nothing else is known: vLLM's and TensorRT-LLM's default
ROOM = "steps of engines that this source set up are taken to have room for one prompt and 1,000 tokens more"
DRAWN = "the client of this source draws lengths from 80 % of the stated ones up to these: priced at the means"


def draws_lengths(source: str, prompt: float, output: float) -> bool:
    """Whether the client of a source draws the lengths of requests stated as `prompt` and `output` tokens."""
    return bool(DRAWING.search(source)) and (prompt, output) in SCENARIOS


def mean_length(stated: float) -> float:
    """Mean of lengths drawn uniformly up to the stated one [tokens]."""
    return round(0.5 * (SMALLEST + 1.0) * stated)


def set_up(source: str, engine: str, drawn: bool) -> bool:
    """Whether a source gives a step of its engine room for one prompt and `BESIDE`; campaigns of a client that draws
    lengths have settings of their own."""
    return not drawn and engine in GENERATED and bool(GENERATING.search(source))


def prompts_room(source: str, engine: str, drawn: bool, prompt: float) -> float:
    """Tokens of prompts that a step has room for [1]."""
    return prompt + BESIDE if set_up(source, engine, drawn) else BUDGET
