"""How a scheduler works beyond its numbers: preemption, order of the queue, pipelines, scheduling ahead, prefixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hwspecs.errors import InputError
from jaxperf.models.checks import show
from jaxperf.serving.simulator.cells import choice_of, positive_of

ONE_BY_ONE = "async_scheduling is not stated: each step is formed after the one before it, as before vLLM 0.14"
AS_THEY_COME = (
    "pipeline_batches is not stated: a batch is formed as soon as requests come and a stage is free; vllm_queue looks "
    "for them when a batch ends, as vLLM's engine does"
)
PREEMPTIONS = ("recompute", "swap")
QUEUES = ("fcfs", "priority")
BATCHES = ("as_they_come", "vllm_queue")
# What they decide when a batch begins rests on all of it being there: no pipeline, no prompts computed elsewhere.
WHOLE_BATCHES = ("faster_transformer", "lightllm")
MOST_STAGES = 64
SWAP_KEYS = ("swap_blocks", "swap_bandwidth", "block_bytes")


class Modes(NamedTuple):
    """Seconds to copy a block where requests are preempted by swap, None where they are computed again; whether the
    queue goes by priorities; stages of the pipeline; whether each step is formed while the one before it is computed;
    whether the batches of a pipeline are formed by vLLM's own queue of them; whether prefixes are cached; `notes`: what
    was assumed, in sentences."""

    swap_seconds: float | None
    by_priority: bool
    stages: int
    ahead: bool
    queues: bool
    caches: bool
    notes: tuple[str, ...]


def modes_of(data: Mapping[str, Any], name: str, given: Mapping[str, int | None], where: str) -> Modes:
    """The modes that a settings file states for the scheduler `name`; `given`: its counts.

    **Raises:** `InputError` for what that scheduler does not do, or not together.
    """
    swap_seconds = _swap_seconds(data, name, given["swap_blocks"], where)
    by_priority = _by_priority(data, name, where)
    stages = _stages(data, name, given["pp"], swap_seconds is not None or by_priority, where)
    ahead, queues = _ahead(data, name, stages, where), _queues(data, name, where)
    caches = _caches(data, name, stages, where)
    notes = (*_assumed(data, name, stages), *_in_vain(data, stages, swap_seconds is not None, queues))
    return Modes(swap_seconds, by_priority, stages, ahead, queues, caches, notes)


def _in_vain(data: Mapping[str, Any], stages: int, swaps: bool, queues: bool) -> tuple[str, ...]:
    """A sentence for each key that goes with a mode that is off."""
    of_swap = () if swaps else tuple(key for key in SWAP_KEYS if data.get(key) is not None)
    found = tuple(f"{key} is not used: preemption is recompute" for key in of_swap)
    return (*found, "pipeline_batches is not used: pp is 1") if queues and stages == 1 else found


def _assumed(data: Mapping[str, Any], name: str, stages: int) -> tuple[str, ...]:
    if name != "vllm_v1":
        return ()
    if stages == 1:
        return () if data.get("async_scheduling") is not None else (ONE_BY_ONE,)
    stated = data.get("pipeline_batches") is not None
    return ("prefixes are not cached with pp above 1", *(() if stated else (AS_THEY_COME,)))


def _swap_seconds(data: Mapping[str, Any], name: str, blocks: int | None, where: str) -> float | None:
    """Seconds to copy one block where requests are preempted by swap, None where they are computed again."""
    if choice_of(data, "preemption", PREEMPTIONS, where) != "swap":
        return None
    if name != "vllm":
        raise InputError(f"{where}: preemption is swap, but only vllm (v0) swaps, not {name}.")
    bandwidth, size = (positive_of(data, key, where) for key in ("swap_bandwidth", "block_bytes"))
    if blocks is None or bandwidth is None or size is None:
        wanted = {"swap_blocks": blocks, "swap_bandwidth": bandwidth, "block_bytes": size}
        missing = ", ".join(key for key, value in wanted.items() if value is None)
        raise InputError(f"{where}: preemption is swap, but there is no {missing}.")
    return size / bandwidth


def _by_priority(data: Mapping[str, Any], name: str, where: str) -> bool:
    wanted = choice_of(data, "scheduling_policy", QUEUES, where) == "priority"
    if wanted and name != "vllm_v1":
        raise InputError(f"{where}: scheduling_policy is priority, but only vllm_v1 knows priorities, not {name}.")
    return wanted


def _ahead(data: Mapping[str, Any], name: str, stages: int, where: str) -> bool:
    """Whether each step is formed while the one before it is computed."""
    wanted = data.get("async_scheduling")
    if not isinstance(wanted, bool | None):
        raise InputError(f"{where}: async_scheduling is {show(wanted)}; it must be true or false.")
    if wanted and name != "vllm_v1":
        raise InputError(f"{where}: async_scheduling is true, but only vllm_v1 schedules ahead, not {name}.")
    if wanted and stages > 1:
        raise InputError(f"{where}: async_scheduling is true and pp {stages}; steps are formed ahead with pp 1 only.")
    return bool(wanted)


def _queues(data: Mapping[str, Any], name: str, where: str) -> bool:
    """Whether the batches of a pipeline are formed by vLLM's own queue of them."""
    wanted = choice_of(data, "pipeline_batches", BATCHES, where) == "vllm_queue"
    if wanted and name != "vllm_v1":
        raise InputError(f"{where}: pipeline_batches is vllm_queue, but only vllm_v1 has that queue, not {name}.")
    return wanted


def _stages(data: Mapping[str, Any], name: str, given: int | None, extras: bool, where: str) -> int:
    """Stages of the pipeline; several need every request to be evicted and admitted in order of arrival."""
    stages = given or 1
    if stages == 1:
        return 1
    if stages > MOST_STAGES:
        raise InputError(f"{where}: pp is {stages}; it is at most {MOST_STAGES}.")
    if name in WHOLE_BATCHES:
        raise InputError(f"{where}: pp is {stages}, but {name} has no batch under way beside another; it must be 1.")
    if extras:
        raise InputError(f"{where}: pp is {stages}; with preemption swap or scheduling_policy priority it must be 1.")
    if data.get("enable_prefix_caching"):
        raise InputError(f"{where}: pp is {stages} and enable_prefix_caching true; prefixes are cached with pp 1 only.")
    return stages


def _caches(data: Mapping[str, Any], name: str, stages: int, where: str) -> bool:
    """vLLM v1 caches prefixes unless it is told not to; the others do not know how."""
    wanted = data.get("enable_prefix_caching")
    if not isinstance(wanted, bool | None):
        raise InputError(f"{where}: enable_prefix_caching is {show(wanted)}; it must be true or false.")
    if wanted and name != "vllm_v1":
        raise InputError(f"{where}: enable_prefix_caching is true, but only vllm_v1 caches prefixes, not {name}.")
    return name == "vllm_v1" and wanted is not False and stages == 1
