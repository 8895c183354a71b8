"""What serving engines do by default with the memory of the cache and the order of the work, from their documents.

TensorRT-LLM starts a request only with room for its last token (GUARANTEED_NO_EVICT, the default of its
SchedulerConfig); vLLM (PagedAttention, SOSP 2023) and SGLang take blocks as tokens come and put a request back where
they run out, so that a running one holds half of its output in the mean. vLLM and SGLang keep the cache in the type of
the activations (`kv_cache_dtype` auto). TensorRT-LLM follows the checkpoint (`KvCacheConfig.dtype` auto): those that
Model Optimizer quantized have the cache in FP8, those that the authors of a model trained in FP8 say nothing of it
(recalled of both; as many requests run together as that leaves room for). A checkpoint that NVIDIA published names its
format for the cache itself (`kv_cache_quant_algo` FP8 in `hf_quant_config.json`), which vLLM follows as well (its pull
request 29980; 0.12.0 has more in its cache at 80 requests of 9,000 tokens than 16 bits could be read in a step); of
other engines it is assumed.

A step has prefill and decode tokens alike in vLLM (chunked prefill, its default since V1) and TensorRT-LLM (in-flight
batching); SGLang prefills in steps of their own unless told otherwise (`enable_mixed_chunk`). vLLM splits a prompt that
a step has no room for, TensorRT-LLM does not (`enable_chunked_prefill` is off by default). The host prepares the
next step while the device works on this one in vLLM since 0.14.0 (its release notes: asynchronous scheduling by
default), in SGLang (`disable_overlap_schedule` turns it off) and in TensorRT-LLM (`disable_overlap_scheduler`); of
other engines both are assumed, as most do today. vLLM replays the kernels of a decode step as one graph since 0.2.6
(its pull request 1926 of December 2023); before it the host launched them one by one.

At most so many requests run together, where memory holds more: 2,048 in TensorRT-LLM (`max_batch_size`, recalled),
1,024 in vLLM on devices of 70 GiB and more and 256 on others (`EngineArgs.get_batch_defaults`, which counts A100 among
the others; here it is not), 4,096 in SGLang (recalled of its pool of requests; its `max_running_requests` is half of
the cache's tokens).
"""

from __future__ import annotations

import math
import re

from hwspecs.whole import whole_number
from jaxperf.core.formats import FORMATS

RESERVING = frozenset({"trtllm"})  # engines that hold memory for the whole output from the start
FOLLOWING = frozenset({"trtllm"})  # engines that read the cache's format from the checkpoint
NAMING = "nvidia/"  # publisher whose quantized checkpoints state the cache's format
WHOLE = frozenset({"trtllm"})  # engines that prefill whole prompts unless told otherwise
SEPARATING = frozenset({"sglang"})  # engines that do not decode in the steps that prefill
GRAPHS_SINCE = {"vllm": (0, 2, 6)}  # the first release that replays the kernels of a decode step as a graph
WAITING_BEFORE = {"vllm": (0, 14)}  # the first release whose device does not wait for the host
MOST_RUNNING = {"trtllm": 2048.0, "vllm": 1024.0, "sglang": 4096.0}
MOST_RUNNING_SMALL = {"vllm": 256.0}  # on devices with less than `LARGE` memory
LARGE = 70.0 * 2.0**30  # [byte]
RELEASE = re.compile(r"v?(\d+(?:\.\d+)+)")


def held_share(engine: str) -> float:
    """Share of its output that a running request holds memory for in the mean [1]."""
    return 1.0 if engine in RESERVING else 0.5


def cache_format(engine: str, weights: str, own: str, checkpoint: str = "") -> str:
    """Format of the cache with weights in the format `weights` of a model whose authors gave it in `own`.

    **Arguments:** `checkpoint`: its name, "publisher/model" where it is stated.
    """
    quantized = FORMATS[weights].itemsize < FORMATS[own].itemsize
    follows = engine in FOLLOWING or checkpoint.lower().startswith(NAMING)
    return "fp8" if quantized and follows else "bf16"


def most_running(engine: str, memory: float) -> float:
    """Requests that one rank runs together where its cache has room for more [1], on a device with `memory` [byte]; of
    other engines as many as vLLM's."""
    limits = MOST_RUNNING if memory >= LARGE else MOST_RUNNING | MOST_RUNNING_SMALL
    return limits.get(engine, limits["vllm"])


def mixing_share(engine: str) -> float:
    """Share of the prefill steps of an engine that decode too [1]."""
    return 0.0 if engine in SEPARATING else 1.0


def prompts_together(engine: str, room: float, prompt: float) -> float:
    """Prompts that are prefilled in a step with `room` for so many tokens of them [1]; at least one."""
    fitting = room / prompt
    return max(1.0, math.floor(fitting) if engine in WHOLE else fitting)


def works_ahead(engine: str, version: str) -> bool:
    """Whether the host prepares a step while the device works on the one before; a release that is not stated does what
    the last one does."""
    release = release_of(version, 2)
    return engine not in WAITING_BEFORE or not release or release >= WAITING_BEFORE[engine]


def replays_graphs(engine: str, version: str) -> bool:
    """Whether the kernels of a decode step are replayed as a graph; a release that is not stated does what the last one
    does."""
    release = release_of(version, 3)
    return engine not in GRAPHS_SINCE or not release or release >= GRAPHS_SINCE[engine]


def release_of(version: str, numbers: int) -> tuple[int, ...]:
    """The first `numbers` numbers of a release, () where none is stated."""
    found = RELEASE.match(version)
    stated = [whole_number(number) for number in found[1].split(".")[:numbers]] if found else []
    return () if None in stated else tuple(number for number in stated if number is not None)
