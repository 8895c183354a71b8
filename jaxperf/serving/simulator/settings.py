"""A scheduler's settings as people write them: the keys of Vidur's files, checked, with the scheduler's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from hwspecs.errors import InputError, did_you_mean
from jaxperf.models.checks import show
from jaxperf.serving.simulator.policies import POLICIES, Policy
from jaxperf.serving.simulator.state import Settings

LARGEST = 2**30  # of counts and of tokens in the cache: sums of them stay inside 32 bits
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
)
# Of a run and of the machine it models; they change nothing here.
IGNORED = (
    *("setup_s", "sim_s", "iters", "sim_time", "network", "memory_margin_fraction"),
    *("model", "device", "sched", "watermark_fraction", "enable_prefix_caching"),
)
RESERVING = ("orca", "faster_transformer")  # `max_batch_size` is theirs; the others go by blocks
CHUNKED = ("sarathi", "sarathi_fixed", "vllm_v1")  # a step is limited to `chunk` tokens


@dataclass(frozen=True)
class Scheduler:
    """A scheduler with its numbers, and what it serves where the file says so.

    `numbers`: the fields of `Settings`; `tokens_per_hash` of a trace's hashes, 0 where prefixes are not cached;
    `notes`: what was assumed or not used, in sentences.
    """

    name: str
    numbers: Mapping[str, int]
    model: str | None = None
    device: str | None = None
    tensor_parallel: int = 1
    tokens_per_hash: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def policy(self) -> Policy:
        """The function that plans its steps."""
        return POLICIES[self.name]

    def most_tokens(self, longest: int) -> int:
        """What one step may compute at most, with requests of up to `longest` tokens."""
        if self.name in RESERVING:
            return self.numbers["cap"] * longest
        limit = self.numbers["chunk" if self.name in CHUNKED else "batch_tokens"]
        return max(limit, self.numbers["cap"])

    def arrays(self, lanes: int = 1) -> Settings:
        """The numbers as arrays with a leading axis of lanes."""
        return Settings(**{name: jnp.full(lanes, value, jnp.int32) for name, value in self.numbers.items()})


def parse_scheduler(data: Mapping[str, Any], where: str = "settings") -> Scheduler:
    """The scheduler that a settings file describes; null means the scheduler's default.

    **Arguments:** `data`: keys as in Vidur's settings files; `where`: the file, for error messages.
    **Raises:** `InputError` for an unknown scheduler, a number out of range, and blocks that cannot be known.
    """
    name = _scheduler_name(data, where)
    defaults = DEFAULTS | DEFAULTS_OF.get(name, {})
    given = {key: _count(data, key, where) for key in COUNTS}

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
        },
        model=_text(data, "model", where),
        device=_text(data, "device", where),
        tensor_parallel=given["tp"] or 1,
        tokens_per_hash=number("tokens_per_hash") if _caches(data, name, where) else 0,
        notes=_notes(data),
    )


def _scheduler_name(data: Mapping[str, Any], where: str) -> str:
    name = data.get("sched")
    if name is None:
        raise InputError(f"{where}: no key 'sched'; it names the scheduler: {', '.join(POLICIES)}.")
    if not isinstance(name, str) or name not in POLICIES:
        hint = did_you_mean(str(name), POLICIES)
        raise InputError(f"{where}: sched: '{name}' is not a scheduler.{hint} Known: {', '.join(POLICIES)}.")
    return name


def _count(data: Mapping[str, Any], key: str, where: str) -> int | None:
    """A whole number, also written 7424.0; None where the file has none."""
    value = data.get(key)
    if value is None:
        return None
    smallest = 0 if key == "watermark_blocks" else 1
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not smallest <= value <= LARGEST or value != int(value):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a whole number from {smallest} to {LARGEST:,}.")
    return int(value)


def _blocks(given: Mapping[str, int | None], reserved: int, where: str) -> int:
    """The blocks stated, or those of as many longest sequences as fit, as Vidur's memory planner counts them."""
    if given["num_blocks"] is not None:
        return given["num_blocks"]
    if given["max_batch_size"] is None:
        raise InputError(f"{where}: no num_blocks, and no max_batch_size to count them from; state one of the two.")
    return given["max_batch_size"] * reserved


def _watermark(
    data: Mapping[str, Any], given: Mapping[str, int | None], blocks: int, default: float, where: str
) -> int:
    if given["watermark_blocks"] is not None:
        return given["watermark_blocks"]
    share = data.get("watermark_fraction")
    share = default if share is None else share
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share < 1.0:
        raise InputError(f"{where}: watermark_fraction is {show(share)}; it must be a number from 0 to below 1.")
    return int(share * blocks)


def _check_budget(name: str, chunk: int, cap: int, block_size: int, where: str) -> None:
    if name == "vllm_v1" and chunk < cap:
        raise InputError(
            f"{where}: max_tokens_in_batch is {chunk}, less than batch_size_cap {cap}; vLLM v1 needs a token for every "
            "running request."
        )
    if name == "lightllm" and block_size != 1:
        raise InputError(f"{where}: block_size is {block_size}; lightllm manages single tokens, so it must be 1.")


def _caches(data: Mapping[str, Any], name: str, where: str) -> bool:
    """vLLM v1 caches prefixes unless it is told not to; the others do not know how."""
    wanted = data.get("enable_prefix_caching")
    if not isinstance(wanted, bool | None):
        raise InputError(f"{where}: enable_prefix_caching is {show(wanted)}; it must be true or false.")
    if wanted and name != "vllm_v1":
        raise InputError(f"{where}: enable_prefix_caching is true, but only vllm_v1 caches prefixes, not {name}.")
    return name == "vllm_v1" and wanted is not False


def _text(data: Mapping[str, Any], key: str, where: str) -> str | None:
    value = data.get(key)
    if value is not None and not (isinstance(value, str) and value):
        raise InputError(f"{where}: {key} is {show(value)}; it must be a name.")
    return value


def _notes(data: Mapping[str, Any]) -> tuple[str, ...]:
    known = {*COUNTS, *IGNORED}
    return tuple(f"{key} is not a setting{did_you_mean(key, known)}" for key in data if key not in known)
