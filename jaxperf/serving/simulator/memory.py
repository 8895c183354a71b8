"""How many blocks of KV cache a device holds beside the weights, as vLLM finds it out when it starts."""

from __future__ import annotations

from typing import NamedTuple

from hwspecs.errors import InputError
from jaxperf.core.numerics import as_float, ceil_div, floor_div
from jaxperf.models.deployment import Deployment
from jaxperf.models.layers import Transformer
from jaxperf.models.memory import activation_bytes, kv_cache_bytes, weight_bytes

GIGABYTE, MEGABYTE = 1e9, 1e6


class Placement(NamedTuple):
    """One replica where it runs: its `deployment` and `model`; tokens of a block of its cache, the most tokens and
    sequences of one step, and tokens of a request in the mean, None where an engine frees nothing (`length`) [1]."""

    deployment: Deployment
    model: Transformer
    block_size: int
    step_tokens: int
    sequences: int
    length: float | None


class CacheMemory(NamedTuple):
    """`blocks` that fit, the bytes of one of them on each device, and in a sentence where the number is from."""

    blocks: int
    block_bytes: float
    note: str


class Footprint(NamedTuple):
    """What an engine keeps on its fullest device [byte]: `weights`, `activations` of the largest step, and one `block`
    of the cache in the mean of a request, 0 where the model caches nothing; of the first, which no window has left, it
    is the part `held` [1], without the `states` that a request keeps whatever its length."""

    weights: float
    activations: float
    block: float
    held: float
    states: float


class _Room(NamedTuple):
    """What a device has [byte], 0 bytes of a block where the model caches nothing; `activations` of the largest step;
    `words`: the same in words."""

    capacity: float
    weights: float
    activations: float
    left: float
    block: float
    words: str

    @property
    def blocks(self) -> int:
        """Blocks in what is left."""
        return int(floor_div(max(self.left, 0.0), self.block))

    def full(self, setting: str = "") -> InputError:
        """That there is no block in it; where there is one beside a smaller step, the `setting` to lower."""
        fits = self.left + self.activations >= self.block
        lower = f"; a smaller step has room: lower {setting}" if fits and setting else ""
        return InputError(f"no memory is left for a block of KV cache: {self.words}{lower}.")


def cache_memory(placed: Placement, utilization: float, setting: str = "") -> CacheMemory:
    """Blocks on the fullest device: floor((u C - weights - activations) / bytes of a block), with capacity C.

    A block holds `block_size` tokens of all layers of the stage. Its bytes are the mean over the blocks of a request of
    `length` tokens: layers with windows keep the latest only, so that a long request has fewer bytes a block, and the
    states of recurrent layers are its too (both are vLLM's hybrid KV cache manager). Without a `length` windows keep
    all, and states are left out, which is said. Each sequence of a step has one row of logits.

    **Arguments:** `utilization` u: the share of the memory that the engine takes (vLLM's `gpu_memory_utilization`) [1];
    `setting`: by which `step_tokens` can be lowered.
    **Raises:** `InputError` where nothing is left for a block, or the model caches nothing.
    """
    room = _room(placed, utilization)
    if not room.block > 0.0:
        raise InputError("the model keeps no keys and values, so num_blocks cannot be counted; state it.")
    if not room.blocks:
        raise room.full(setting)
    return CacheMemory(room.blocks, room.block, f"num_blocks is {room.blocks:,}, of {room.words}")


def check_blocks(blocks: int, placed: Placement, utilization: float) -> tuple[str, ...]:
    """That there is no room for so many blocks, in a sentence; nothing where there is. The rest as in `cache_memory`.

    **Raises:** `InputError` for weights that are more than the memory: no engine starts with these, whatever its cache.
    """
    room = _room(placed, utilization)
    if room.weights > room.capacity:
        raise room.full()
    if not room.block > 0.0 or blocks <= room.blocks:
        return ()
    return (f"num_blocks is {blocks:,}, but there is room for {room.blocks:,}, of {room.words}",)


def footprint(placed: Placement) -> Footprint:
    """What an engine keeps, whatever the memory is."""
    deployment, model, block_size, step_tokens, sequences, length = placed
    one = as_float(1.0)
    states = float(kv_cache_bytes(deployment, model, one, as_float(0.0)))

    def cached(blocks: float) -> float:
        return float(kv_cache_bytes(deployment, model, one, as_float(blocks * block_size))) - states

    blocks = 1.0 if length is None else max(float(ceil_div(length, block_size)), 1.0)
    first, block = cached(1.0), cached(blocks) / blocks
    rows = as_float(min(sequences, step_tokens))
    activations = float(activation_bytes(deployment, model, as_float(step_tokens), rows))
    held = block / first if first > 0.0 else 1.0
    block += 0.0 if length is None or not first > 0.0 else states / blocks
    return Footprint(float(weight_bytes(deployment, model)), activations, block, held, states)


def _room(placed: Placement, utilization: float) -> _Room:
    weights, activations, block, held, states = footprint(placed)
    capacity = float(placed.deployment.device.memory_capacity)
    left = capacity * utilization - weights - activations
    gigabytes = [each / GIGABYTE for each in (capacity, weights, activations)]
    words = "{:.4g} GB of memory, {:.4g} GB of weights, {:.3g} GB of activations".format(*gigabytes)
    used = f"{words} (a step of {placed.step_tokens:,} tokens), {utilization:g} of the memory used"
    if held < 1.0:
        used += f", and {100.0 * held:.0f} % of a request of {placed.length:,.0f} tokens kept (windows)"
    if states > 0.0:
        left_out = ", which is left out" if placed.length is None else ""
        used += f", and {states / MEGABYTE:.3g} MB of states a request{left_out}"
    return _Room(capacity, weights, activations, left, block, used)
