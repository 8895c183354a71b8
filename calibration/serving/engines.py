"""What serving engines do by default with the memory of the cache, from their documents.

TensorRT-LLM starts a request only with room for its last token (GUARANTEED_NO_EVICT, the default of its
SchedulerConfig); vLLM (PagedAttention, SOSP 2023) and SGLang take blocks as tokens come and put a request back where
they run out, so that a running one holds half of its output in the mean. vLLM and SGLang keep the cache in the type of
the activations (`kv_cache_dtype` auto). TensorRT-LLM follows the checkpoint (`KvCacheConfig.dtype` auto): those that
Model Optimizer quantized have the cache in FP8, those that the authors of a model trained in FP8 say nothing of it
(recalled of both; as many requests run together as that leaves room for).
"""

from __future__ import annotations

from jaxperf.core.formats import FORMATS

RESERVING = frozenset({"trtllm"})  # engines that hold memory for the whole output from the start
FOLLOWING = frozenset({"trtllm"})  # engines that read the cache's format from the checkpoint


def held_share(engine: str) -> float:
    """Share of its output that a running request holds memory for in the mean [1]."""
    return 1.0 if engine in RESERVING else 0.5


def cache_format(engine: str, weights: str, own: str) -> str:
    """Format of the cache with weights in the format `weights` of a model whose authors gave it in `own`."""
    quantized = FORMATS[weights].itemsize < FORMATS[own].itemsize
    return "fp8" if engine in FOLLOWING and quantized else "bf16"
