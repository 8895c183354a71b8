"""What benchmark campaigns do, from their documents, that a table does not state: the lengths that a client draws where
the most is stated, and how their engines are set up.

InferenceMAX, later InferenceX (its README, "Benchmark Client Configuration"), has three scenarios of lengths and draws
both lengths of each request uniformly between RANDOM_RANGE_RATIO = 0.8 of what is stated and all of it; it sends ten
requests of each concurrency (`--num-prompts`).

aiconfigurator writes the settings of the engines that it measures (its generator, `max_num_tokens` of an aggregated
worker): a step has room for one prompt, a fixed number of tokens beside it, and a token of each running request. Its
sources of 2025 have 1,500 beside; its measurements on TensorRT-LLM have fewer than 1,024 and more than 896, for 1, 2, 4
and 8 prompts of 1,024, 512, 256 and 128 tokens pass in a step there (by the time that prefills take of runs that differ
in the output alone). On vLLM, whose template of 0.12.0 passes no `max_num_tokens` on, its measurements have one prompt
a step: first tokens after 1,024 tokens take 2.6 prefills with 8 requests in flight, where two prompts a step make 3.5.
SGLang decodes in the steps that prefill (`agg enable_mixed_chunk = true` of its benchmark rule, `max_prefill_tokens` as
above) where the template spells the option: that of 0.5.3.post2 does, that of 0.5.1.post1 has `--enable-mix-chunk`,
which SGLang does not know. Its clients send requests of one length, ten of each concurrency (`--request-count` of its
`genai_perf_runner`; later scripts send 50).

Splitwise (ISCA 2024, written in November 2023) ran a vLLM that launched the kernels of a decode step one by one.
"""

from __future__ import annotations

import math
import re

from calibration.serving.engines import release_of, replays_graphs

# Of a closed loop that states no source: the campaigns whose closed loops the fit saw.
MEASURED = "aiconfigurator, InferenceX"
UNSTATED = (
    f"source is not stated: engine and client are taken to be set up as in the runs that were measured ({MEASURED})"
)
DRAWING = re.compile(r"inference(?:max|x)", re.IGNORECASE)  # sources whose client draws lengths
SCENARIOS = frozenset({(1024.0, 1024.0), (1024.0, 8192.0), (8192.0, 1024.0)})
SMALLEST = 0.8  # of the stated length, of the lengths drawn
GENERATING = re.compile(r"aiconfigurator", re.IGNORECASE)  # sources whose engines are set up by it
LAUNCHING = re.compile(r"splitwise", re.IGNORECASE)  # of an engine without graphs, where no release is stated
BESIDE = {"trtllm": 1000.0, "sglang": 1000.0, "vllm": 0.0}  # tokens of a step beside one prompt and those that decode
MIXING_SINCE = {"sglang": (0, 5, 3)}  # the first release that it has decode in prefill steps; older ones as they come
BUDGET = 8192.0  # tokens a prefill may have in one step where nothing else is known: vLLM's and TensorRT-LLM's default
ROOM = "steps of engines that this source set up are taken to have room for one prompt and {beside:,.0f} tokens more"
MIXED = "SGLang is taken to decode in the steps that prefill, as this source set it up"
DRAWN = "the client of this source draws lengths from 80 % of the stated ones up to these: priced at the means"


def source_of(stated: str, closed: bool) -> tuple[str, str]:
    """Who set up engine and client, and what was assumed: `stated`, or for a `closed` loop that states nobody those who
    measured what the fit saw."""
    return (MEASURED, UNSTATED) if closed and not stated else (stated, "")


def draws_lengths(source: str, prompt: float, output: float) -> bool:
    """Whether the client of a source draws the lengths of requests stated as `prompt` and `output` tokens."""
    return bool(DRAWING.search(source)) and (prompt, output) in SCENARIOS


def mean_length(stated: float) -> float:
    """Mean of lengths drawn uniformly up to the stated one [tokens]."""
    return round(0.5 * (SMALLEST + 1.0) * stated)


def set_up(source: str, engine: str, version: str, drawn: bool) -> bool:
    """Whether a source gives a step of its engine room for one prompt and `BESIDE`, in a release that is not stated as
    in the last one; campaigns of a client that draws lengths have settings of their own."""
    known = release_of(version, 3) or MIXING_SINCE.get(engine, ())
    return not drawn and engine in BESIDE and bool(GENERATING.search(source)) and known >= MIXING_SINCE.get(engine, ())


def prompts_room(engine: str, prompt: float) -> float:
    """Tokens of the whole prompts that a step of an engine that is `set_up` has room for [1]."""
    return prompt * math.floor(1.0 + BESIDE[engine] / prompt)


def mixes(engine: str) -> bool:
    """Whether an engine that is `set_up` is told to decode in the steps that prefill."""
    return engine in MIXING_SINCE


def launches_alone(source: str, engine: str, version: str) -> bool:
    """Whether the host launched every kernel of a decode step by itself, as before engines replayed graphs."""
    return not replays_graphs(engine, version) or (not version and bool(LAUNCHING.search(source)))
