"""What the simulator carries from event to event: one replica's clock, its slots, its queue, and what is recorded."""

from __future__ import annotations

import enum
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float64, Int32

from jaxperf.core.numerics import ceil_div
from jaxperf.serving.simulator.ahead import Ahead, nothing_ahead
from jaxperf.serving.simulator.pipeline import Pipeline, empty_pipeline
from jaxperf.serving.simulator.prefix import PrefixCache, empty_cache
from jaxperf.serving.simulator.swap import SwapSpace, empty_swap_space
from jaxperf.serving.simulator.trace import Trace

EMPTY = -1  # the request of a slot that holds none


class Status(enum.IntEnum):
    """Where a request is. `REJECTED`: it does not fit even into an empty replica, so it would wait forever. `SWAPPED`:
    it waits with its blocks in host memory."""

    WAITING = 0
    RUNNING = 1
    COMPLETED = 2
    REJECTED = 3
    SWAPPED = 4


class Settings(eqx.Module):
    """The numbers of a scheduler; each policy reads those it knows.

    `blocks` of the KV cache, of `block_size` tokens; `watermark` blocks kept free at admission; `cap` requests that
    run at once; `batch_tokens`: padded tokens of a prefill batch; `chunk`: tokens of a step with chunked prefill;
    `reserved` blocks a request takes where they are reserved at once; `waiting_steps` between admissions (LightLLM);
    `swap_blocks` of host memory for evicted requests, each copied in `swap_seconds`, None where they are recomputed.
    """

    blocks: Int32[Array, "*lanes"]
    block_size: Int32[Array, "*lanes"]
    watermark: Int32[Array, "*lanes"]
    cap: Int32[Array, "*lanes"]
    batch_tokens: Int32[Array, "*lanes"]
    chunk: Int32[Array, "*lanes"]
    reserved: Int32[Array, "*lanes"]
    waiting_steps: Int32[Array, "*lanes"]
    swap_blocks: Int32[Array, "*lanes"] | None = None
    swap_seconds: Float64[Array, "*lanes"] | None = None


class Slots(eqx.Module):
    """The S requests that may run at once, in no order; their numbers are those of the trace, so the largest is the
    latest arrival.

    `processed`: tokens known and, but for a last one made by the step before, in the cache; `prompt`: tokens that are
    prefilled, those made before an eviction included; `total`: `processed` at completion; `blocks` held; `chunk`:
    prompt tokens of a request admitted to the step that is being formed, else 0; `first_token`: s, -1 before.
    """

    request: Int32[Array, "*lanes S"]
    processed: Int32[Array, "*lanes S"]
    prompt: Int32[Array, "*lanes S"]
    total: Int32[Array, "*lanes S"]
    blocks: Int32[Array, "*lanes S"]
    chunk: Int32[Array, "*lanes S"]
    first_token: Float64[Array, "*lanes S"]


class Order(eqx.Module):
    """With priorities: when the request of each slot was `admitted`, counted in events; tokens of the
    step being formed that are `spent` on requests evicted since."""

    admitted: Int32[Array, "*lanes S"]
    spent: Int32[Array, "*lanes"]


class Requests(eqx.Module):
    """What is known of every request: `status` as in `Status`, `prompt` it has to prefill next, times in seconds (-1
    before they happen) of which `arrived` is when the client sent it, evictions (`restarts`), what it still brings (see
    `Trace`), and how often it was swapped out.
    """

    status: Int32[Array, "*lanes R"]
    prompt: Int32[Array, "*lanes R"]
    arrived: Float64[Array, "*lanes R"]
    scheduled: Float64[Array, "*lanes R"]
    first_token: Float64[Array, "*lanes R"]
    completed: Float64[Array, "*lanes R"]
    restarts: Int32[Array, "*lanes R"]
    brought: Int32[Array, "*lanes R"] | None = None
    swaps: Int32[Array, "*lanes R"] | None = None


class Totals(eqx.Module):
    """Sums over all steps: `steps`; `busy` s; `sequence_seconds` and `block_seconds`: requests in the batch and blocks
    held times the step's length; `most_blocks` ever held; `beyond`: steps that the table of step times did not reach.
    """

    steps: Int32[Array, "*lanes"]
    busy: Float64[Array, "*lanes"]
    sequence_seconds: Float64[Array, "*lanes"]
    block_seconds: Float64[Array, "*lanes"]
    most_blocks: Int32[Array, "*lanes"]
    beyond: Int32[Array, "*lanes"]


class Log(eqx.Module):
    """The first L runs of steps: `count` there were, each of `steps` alike steps that began at `start` and took
    `seconds` each, with `sequences` and `tokens` in the batch, of which `decodes` were decodes; a stage was `busy` [s]
    with all of them, while `blocks` were held at most, and `mean_blocks` in the mean."""

    count: Int32[Array, "*lanes"]
    start: Float64[Array, "*lanes L"]
    seconds: Float64[Array, "*lanes L"]
    steps: Int32[Array, "*lanes L"]
    sequences: Int32[Array, "*lanes L"]
    tokens: Int32[Array, "*lanes L"]
    decodes: Int32[Array, "*lanes L"]
    busy: Float64[Array, "*lanes L"]
    blocks: Int32[Array, "*lanes L"]
    mean_blocks: Float64[Array, "*lanes L"]


class State(eqx.Module):
    """One replica between two events. `head`: the request at the front of the queue; `free` blocks; `ended`: requests
    completed or rejected; `evicted`: whether a request was evicted since the last step; `joined`: whether a decode was
    admitted since then; `waited`: decode steps since admission was last tried; `events` so far."""

    clock: Float64[Array, "*lanes"]
    head: Int32[Array, "*lanes"]
    free: Int32[Array, "*lanes"]
    ended: Int32[Array, "*lanes"]
    evicted: Bool[Array, "*lanes"]
    joined: Bool[Array, "*lanes"]
    waited: Int32[Array, "*lanes"]
    events: Int32[Array, "*lanes"]
    slots: Slots
    requests: Requests
    totals: Totals
    log: Log
    cache: PrefixCache | None = None
    swap: SwapSpace | None = None
    order: Order | None = None
    pipeline: Pipeline | None = None
    ahead: Ahead | None = None


class Sizes(NamedTuple):
    """Lengths of arrays, which are structure: `slots` for running requests, at least every `cap`; runs of steps in the
    `log`; with prefix caching `nodes` of all paths, and `groups` of blocks given back, one for each completion and
    eviction; `stages` of the pipeline; `ahead`: whether a step is formed while the one before it is computed."""

    slots: int
    log: int = 0
    nodes: int = 0
    groups: int = 0
    stages: int = 1
    ahead: bool = False


def initial_state(settings: Settings, trace: Trace, sizes: Sizes) -> State:
    """An empty replica before the first arrival."""
    requests, slots, log = trace.arrived.shape[0], sizes.slots, sizes.log
    zero, none, never = jnp.int32(0), jnp.float64(0.0), jnp.float64(-1.0)

    def whole(value: Array, size: int) -> Array:
        return jnp.full(size, value)

    swaps = settings.swap_blocks is not None
    brought = whole(zero, requests) if swaps and trace.brought is None else trace.brought
    cache = None
    if trace.path is not None:
        cache = empty_cache(settings.blocks, sizes.nodes, 1 + sizes.groups, requests)
    return State(
        clock=none,
        head=zero,
        free=settings.blocks,
        ended=zero,
        evicted=jnp.bool_(False),
        joined=jnp.bool_(False),
        waited=zero,
        events=zero,
        slots=Slots(
            request=whole(jnp.int32(EMPTY), slots),
            **dict.fromkeys(("processed", "prompt", "total", "blocks", "chunk"), whole(zero, slots)),
            first_token=whole(never, slots),
        ),
        requests=Requests(
            status=whole(jnp.int32(Status.WAITING), requests),
            prompt=trace.prompt,
            arrived=trace.arrived,
            **dict.fromkeys(("scheduled", "first_token", "completed"), whole(never, requests)),
            restarts=whole(zero, requests),
            brought=brought,
            swaps=whole(zero, requests) if swaps else None,
        ),
        totals=Totals(
            steps=zero,
            busy=none,
            sequence_seconds=none,
            block_seconds=none,
            most_blocks=zero,
            beyond=zero,
        ),
        log=Log(
            count=zero,
            **dict.fromkeys(("start", "seconds", "busy", "mean_blocks"), whole(never, log)),
            **dict.fromkeys(("steps", "sequences", "tokens", "decodes", "blocks"), whole(zero, log)),
        ),
        cache=cache,
        swap=empty_swap_space() if swaps else None,
        order=None if trace.priority is None else Order(whole(zero, slots), zero),
        pipeline=empty_pipeline(sizes.stages, slots) if sizes.stages > 1 else None,
        ahead=nothing_ahead(slots) if sizes.ahead else None,
    )


def blocks_of(tokens: Int32[Array, "*shape"], block_size: Int32[Array, ""]) -> Int32[Array, "*shape"]:
    """ceil(tokens / block_size): blocks that hold so many tokens."""
    return ceil_div(tokens.astype(jnp.float64), block_size.astype(jnp.float64)).astype(jnp.int32)
