"""A scheduler's settings as people write them: the keys of Vidur's files, checked, with the scheduler's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show
from jaxperf.serving.simulator.cells import LARGEST, count_of, share_of, text_of
from jaxperf.serving.simulator.modes import modes_of
from jaxperf.serving.simulator.names import in_our_words, unknown_keys
from jaxperf.serving.simulator.policies import POLICIES, Policy
from jaxperf.serving.simulator.policies.vllm_v1 import VLLM_V1_QUEUE
from jaxperf.serving.simulator.state import Settings
from jaxperf.serving.simulator.waste import fragmentation

# What a scheduler takes where its file says null or nothing: Vidur's configuration classes; vLLM v1's engine arguments
# (max_num_seqs, max_num_batched_tokens; no watermark).
DEFAULTS = {
    "block_size": 16,
    "batch_size_cap": 128,
    "watermark_fraction": 0.01,
    "chunk_size": 512,
    "max_tokens_in_batch": 4096,
    "max_waiting_iters": 10,
    "pred_max_tokens": 4096,
    "tokens_per_hash": 512,
}
DEFAULTS_OF = {
    "lightllm": {"block_size": 1},
    "vllm_v1": {"batch_size_cap": 256, "watermark_fraction": 0.0, "max_tokens_in_batch": 2048},
}
COUNTS = (
    *("num_blocks", "block_size", "batch_size_cap", "watermark_blocks", "max_batch_size", "max_blocks_per_seq"),
    *("chunk_size", "max_tokens_in_batch", "max_waiting_iters", "pred_max_tokens", "tp", "tokens_per_hash"),
    *("pp", "swap_blocks"),
)
FROM_ZERO = ("watermark_blocks", "swap_blocks")
# Read one by one, or of a run and of the machine it models; these change nothing here.
OTHERS = (
    *("model", "device", "sched", "watermark_fraction", "enable_prefix_caching", "gpu_memory_utilization"),
    *("preemption", "swap_bandwidth", "block_bytes", "scheduling_policy", "async_scheduling", "pipeline_batches"),
    *("setup_s", "sim_s", "iters", "sim_time", "network", "memory_margin_fraction"),
)
KEYS = (*COUNTS, *OTHERS)
# What some schedulers have no use for. Blocks may be counted from the others, and Vidur's files state all of those.
USED_BY = {
    "chunk_size": ("sarathi", "sarathi_fixed"),
    **dict.fromkeys(("watermark_blocks", "watermark_fraction"), ("vllm", "sarathi", "sarathi_fixed")),
    "max_tokens_in_batch": ("vllm", "vllm_v1", "lightllm"),
    "max_waiting_iters": ("lightllm",),
}
RESERVING = ("orca", "faster_transformer")  # `max_batch_size` is theirs; the others go by blocks
CHUNKED = ("sarathi", "sarathi_fixed", "vllm_v1")  # a step is limited to `chunk` tokens
FREEING = ("vllm_v1",)  # caches give back what windows have left; earlier ones keep all tokens of all layers


@dataclass(frozen=True)
class Scheduler:
    """A scheduler with its numbers, and what it serves where the file says so.

    `numbers`: the fields of `Settings` that count; `swap_seconds`: as there; `by_priority`: the queue goes by the
    requests' priorities; `ahead`: a step is formed while the one before it is computed; `queues`: batches of a pipeline
    are formed by vLLM's own queue of them; `tokens_per_hash` of a trace's hashes, 0 where prefixes are not cached;
    `notes`: what was assumed or not used, in sentences.
    """

    name: str
    numbers: Mapping[str, int]
    model: str | None = None
    device: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    swap_seconds: float | None = None
    by_priority: bool = False
    ahead: bool = False
    queues: bool = False
    tokens_per_hash: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def policy(self) -> Policy:
        """The function that plans its steps."""
        return VLLM_V1_QUEUE if self.queues else POLICIES[self.name]

    def most_tokens(self, longest: int | None = None) -> int:
        """What one step may compute at most, with requests of up to `longest` tokens: as blocks are reserved for, if it
        is not told."""
        if self.name in RESERVING:
            longest = self.numbers["reserved"] * self.numbers["block_size"] if longest is None else longest
            return self.numbers["cap"] * longest
        limit = self.numbers["chunk" if self.name in CHUNKED else "batch_tokens"]
        return max(limit, self.numbers["cap"])

    @property
    def step_setting(self) -> str:
        """The setting to lower for fewer tokens in a step, another name of it in brackets: see `most_tokens`."""
        if self.name in RESERVING:
            return "batch_size_cap (or max_batch_size)"
        limit = "chunk_size" if self.name in USED_BY["chunk_size"] else "max_tokens_in_batch"
        return limit if self.most_tokens() > self.numbers["cap"] else "batch_size_cap"

    def fragmentation(self, requests: Mapping[str, np.ndarray]) -> dict[str, float]:
        """How much of the blocks that these requests hold is empty: see `waste.fragmentation`."""
        reserved = 0 if self.policy.paged else self.numbers["reserved"]
        return fragmentation(requests, self.numbers["block_size"], reserved)

    def arrays(self, lanes: int = 1) -> Settings:
        """The numbers as arrays with a leading axis of lanes."""
        swap_seconds = None if self.swap_seconds is None else jnp.full(lanes, self.swap_seconds, jnp.float64)
        counts = {name: jnp.full(lanes, value, jnp.int32) for name, value in self.numbers.items()}
        return Settings(**counts, swap_seconds=swap_seconds)


def parse_scheduler(data: Mapping[str, Any], where: str = "settings") -> Scheduler:
    """The scheduler that a settings file describes; null means the scheduler's default.

    **Arguments:** `data`: keys as in Vidur's settings files, or vLLM's arguments; `where`: the file, for messages.
    **Raises:** `InputError` for an unknown scheduler, a number out of range, and blocks that cannot be known.
    """
    data = in_our_words(data, where)
    name = _scheduler_name(data, where)
    defaults = DEFAULTS | DEFAULTS_OF.get(name, {})
    given = {key: count_of(data, key, where, 0 if key in FROM_ZERO else 1) for key in COUNTS}

    def number(key: str) -> int:
        value = given[key]
        return int(defaults[key]) if value is None else value

    block_size, longest = number("block_size"), number("pred_max_tokens")
    reserved = given["max_blocks_per_seq"] or max(1, longest // block_size)
    blocks = _blocks(given, reserved, where)
    if blocks * block_size > LARGEST:
        raise InputError(f"{where}: num_blocks x block_size is {blocks * block_size:,} tokens; at most {LARGEST:,}.")
    cap = number("batch_size_cap")
    if name in RESERVING and given["max_batch_size"] is not None:
        cap = min(cap, given["max_batch_size"])
    chunk = number("max_tokens_in_batch") if name == "vllm_v1" else number("chunk_size")
    _check_budget(name, chunk, cap, block_size, where)
    modes = modes_of(data, name, given, where)
    return Scheduler(
        name=name,
        numbers={
            "blocks": blocks,
            "block_size": block_size,
            "watermark": _watermark(data, given, blocks, float(defaults["watermark_fraction"]), where),
            "cap": cap,
            "batch_tokens": number("max_tokens_in_batch"),
            "chunk": chunk,
            "reserved": reserved,
            "waiting_steps": number("max_waiting_iters"),
            **({} if modes.swap_seconds is None else {"swap_blocks": number("swap_blocks")}),
        },
        model=text_of(data, "model", where),
        device=text_of(data, "device", where),
        tensor_parallel=given["tp"] or 1,
        pipeline_parallel=modes.stages,
        swap_seconds=modes.swap_seconds,
        by_priority=modes.by_priority,
        ahead=modes.ahead,
        queues=modes.queues,
        tokens_per_hash=number("tokens_per_hash") if modes.caches else 0,
        notes=(*_notes(data, name), *modes.notes),
    )


def _scheduler_name(data: Mapping[str, Any], where: str) -> str:
    name = data.get("sched")
    if name is None:
        raise InputError(f"{where}: no key 'sched'; it names the scheduler: {', '.join(POLICIES)}.")
    if not isinstance(name, str) or name not in POLICIES:
        shown, hint = (f"'{name}'", did_you_mean(name, POLICIES)) if isinstance(name, str) else (show(name), "")
        raise InputError(f"{where}: sched: {shown} is not a scheduler.{hint} Known: {', '.join(POLICIES)}.")
    return name


def _blocks(given: Mapping[str, int | None], reserved: int, where: str) -> int:
    """The blocks stated, or those of as many longest sequences as fit, as Vidur's memory planner counts them."""
    if given["num_blocks"] is not None:
        return given["num_blocks"]
    if given["max_batch_size"] is None:
        raise InputError(f"{where}: no num_blocks, and no max_batch_size to count them from; state one of the two.")
    return given["max_batch_size"] * reserved


def without_blocks(data: Mapping[str, Any]) -> bool:
    """Whether the blocks of the cache have to be counted from the memory of a device."""
    return data.get("num_blocks") is None and data.get("max_batch_size") is None


def _watermark(
    data: Mapping[str, Any], given: Mapping[str, int | None], blocks: int, default: float, where: str
) -> int:
    if given["watermark_blocks"] is not None:
        return given["watermark_blocks"]
    return int(share_of(data, "watermark_fraction", default, where) * blocks)


def _check_budget(name: str, chunk: int, cap: int, block_size: int, where: str) -> None:
    if name == "vllm_v1" and chunk < cap:
        raise InputError(
            f"{where}: max_tokens_in_batch is {chunk}, less than batch_size_cap {cap}; vLLM v1 needs a token for every "
            "running request."
        )
    if name == "lightllm" and block_size != 1:
        raise InputError(f"{where}: block_size is {block_size}; lightllm manages single tokens, so it must be 1.")


def _notes(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Keys that change nothing: those of no scheduler, and those of others than `name`."""
    unused = tuple(
        f"{key} is not used by {name}, but by {' and '.join(users)}"
        for key, users in USED_BY.items()
        if data.get(key) is not None and name not in users
    )
    return (*unknown_keys(data, (*KEYS, "pools")), *unused)
