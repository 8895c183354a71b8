"""What commands on fleets and pools have in common: from options and settings to what is simulated, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hwspecs.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.cli.engines import Served
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.fleet.pools import PoolsRun, ServedPool
    from jaxperf.serving.fleet.settings import PoolSettings, PoolsSettings
    from jaxperf.serving.simulator.settings import Scheduler
    from jaxperf.serving.workloads.drawn import Stage

OF_DECODE = "busy, batch, cache and evictions are those of the decode pool; no single gaps between tokens are told"


@dataclass(frozen=True)
class Answer:
    """A simulated fleet: `columns` of its requests as `cli.simulate_said` has them, `figures`, what to print of the
    scheduler, its numbers and the step times, and sentences; `refused`: what each request that was never admitted would
    need, by its number, in a few words or none."""

    columns: Mapping[str, np.ndarray]
    figures: dict[str, Any]
    scheduler: str
    numbers: Mapping[str, Any]
    source: str
    notes: list[str]
    refused: Mapping[int, str]


def requests_of(
    trace: RequestTrace, scheduler: Scheduler, options: Mapping[str, np.ndarray] | None = None
) -> SimpleNamespace:
    """The requests of a trace as fleets take them: with their paths in a prefix cache, and what they follow."""
    from jaxperf.cli.engines import prefix_paths_of
    from jaxperf.io.session_traces import SessionTrace
    from jaxperf.serving.workloads.drawn import text_paths

    own: dict[str, Any] = {"arrived": trace.arrived, "prompt": trace.prompt, "output": trace.output, **(options or {})}
    if not isinstance(trace, SessionTrace):
        return SimpleNamespace(**own, path=prefix_paths_of(trace, scheduler))
    cached = scheduler.tokens_per_hash > 0
    path = text_paths(trace.texts, scheduler.numbers["block_size"]) if cached else None
    return SimpleNamespace(**own, path=path, after=trace.after, delay=trace.delay)


def as_asked(trace: RequestTrace, requests: SimpleNamespace) -> tuple[SimpleNamespace, Sequence[Stage]]:
    """The requests of a trace as they are asked, before the stages that they go through, and those stages."""
    import numpy as np

    from jaxperf.io.session_traces import SessionTrace
    from jaxperf.serving.workloads.drawn import Stage

    if not isinstance(trace, SessionTrace) or trace.asked is None:
        return requests, ()
    order = np.argsort(trace.asked, kind="stable")
    own = {name: values if values is None else values[order] for name, values in vars(requests).items()}
    stages = [Stage(stage.seconds[order], stage.servers) for stage in trace.stages]
    return SimpleNamespace(**{**own, "arrived": trace.asked[order]}), stages


def pools_of(
    data: Mapping[str, Any], where: str, served: Served, trace: RequestTrace, table: Path | None
) -> PoolsSettings:
    """The pools of a settings file; blocks that a pool does not state are counted from the memory of its device.

    **Arguments:** `table`: as in `scheduler_of`.
    **Raises:** `InputError` as `parse_pools` does, and for pools that serve different models.
    """
    from jaxperf.cli.engines import scheduler_of
    from jaxperf.serving.fleet.settings import parse_pools

    tokens = trace.prompt + trace.output
    pools = parse_pools(data, where, lambda keys, place: scheduler_of(keys, served, place, tokens, table))
    first, second = (served.config(pool.scheduler.model).name for pool in (pools.prefill, pools.decode))
    if first != second:
        raise InputError(f"{where}: pools: prefill serves {first}, decode {second}; a cache is of one model.")
    return pools


def notes_of(pools: PoolsSettings, trace: RequestTrace) -> list[str]:
    """What was counted, assumed or not used in the settings of each pool, in sentences."""
    from jaxperf.cli.simulate_said import reservation_notes, used_options

    first, second = pools.prefill.scheduler, pools.decode.scheduler
    both = {"prefill": (first, trace.prompt), "decode": (second, trace.prompt + trace.output - 1)}
    return [
        f"{name}: {note}"
        for name, (one, tokens) in both.items()
        for note in (*one.notes, *used_options(one, {})[1], *reservation_notes(one, tokens))
    ]


def served_pool(pool: PoolSettings, trace: RequestTrace, served: Served, table: Path | None) -> ServedPool:
    """A pool with its replicas' step times and what they are deployed as."""
    from jaxperf.cli.engines import step_times_of
    from jaxperf.serving.fleet.pools import ServedPool
    from jaxperf.serving.simulator.composed import deployment_for

    times, source = step_times_of(table, pool.scheduler, trace, served)
    config, (_, device) = served.config(pool.scheduler.model), served.calibrated(pool.scheduler.device)
    ranks, formats = pool.scheduler.tensor_parallel, (served.weights, served.kv_cache)
    deployment = deployment_for(config, device, ranks, *formats, level=served.level)
    return ServedPool(pool, deployment, times, source)


def answer_of_replicas(
    scheduler: Scheduler,
    trace: RequestTrace,
    options: Mapping[str, np.ndarray],
    times: Any,
    source: str,
    replicas: int,
    routing: str,
    limits: Mapping[str, float],
    warm_up: float,
) -> Answer:
    """A trace on replicas behind a router.

    **Arguments:** `options`: columns of the requests besides; `times`, `source`: step times and where they are from.
    """
    from jaxperf.cli.simulate_said import UNSENT, step_notes
    from jaxperf.serving.fleet.build import simulate_fleet
    from jaxperf.serving.fleet.metrics import columns_of, summarize_fleet
    from jaxperf.serving.simulator.metrics import after_warm_up
    from jaxperf.serving.simulator.refusals import refusals

    run = simulate_fleet(scheduler, times, requests_of(trace, scheduler, options), replicas, routing)
    columns, found, figures = columns_of(run.requests, trace), run.found.replicas, {}
    if (columns["completed"] >= 0.0).any():
        figures = summarize_fleet(columns, run.shares, found, scheduler.numbers["blocks"], limits, warm_up)
        figures |= scheduler.fragmentation(after_warm_up(columns, warm_up))
    unsent = int((run.found.routed[: len(trace.row)] < 0).sum())
    notes = [*step_notes(found), *([f"{unsent} requests were {UNSENT}"] if unsent else [])]
    refused = refusals(scheduler, columns, options.get("brought"))
    return Answer(columns, figures, scheduler.name, scheduler.numbers, source, notes, refused)


def answer_of_pools(
    pools: PoolsSettings,
    trace: RequestTrace,
    served: Served,
    table: Path | None,
    limits: Mapping[str, float],
    warm_up: float,
) -> Answer:
    """A trace on a pool for prefill and one for decode."""
    from jaxperf.cli.simulate_said import step_notes
    from jaxperf.models.layers import transformer
    from jaxperf.serving.fleet.metrics import columns_of, summarize_pools
    from jaxperf.serving.fleet.pools import simulate_pools

    both = (pools.prefill, pools.decode)
    names = " + ".join(f"{pool.replicas} x {pool.scheduler.name}" for pool in both)
    numbers = {"prefill": dict(pools.prefill.scheduler.numbers), "decode": dict(pools.decode.scheduler.numbers)}
    notes = notes_of(pools, trace)
    if not len(trace.row):
        return Answer({}, {}, names, numbers, "none", notes, {})
    first, second = (served_pool(pool, trace, served, table) for pool in both)
    model = transformer(served.config(pools.prefill.scheduler.model))
    run = simulate_pools(pools, first, second, model, requests_of(trace, pools.prefill.scheduler))
    columns, figures = columns_of(run.requests, trace), {}
    notes += [*served.notes(table, [pool.scheduler for pool in both]), OF_DECODE]
    for name, found in (("prefill", run.found.prefill), ("decode", run.found.decode)):
        notes += [f"{name}: {note}" for note in step_notes(found.replicas)]
    if (columns["completed"] >= 0.0).any():
        blocks = (pools.prefill.scheduler.numbers["blocks"], pools.decode.scheduler.numbers["blocks"])
        figures = summarize_pools(columns, run, blocks, limits, warm_up)
        own = figures["prefill"]
        notes.append(f"the prefill pool is busy {own['utilization']:.1%}, with {own['preemptions']} evictions")
    source = f"prefill {first.source}, decode {second.source}"
    return Answer(columns, figures, names, numbers, source, notes, _refused_by_pools(pools, columns, run))


def _refused_by_pools(pools: PoolsSettings, columns: Mapping[str, np.ndarray], run: PoolsRun) -> dict[int, str]:
    """As `refused` of an `Answer`, with the pool: that for prefill makes one token, that for decode is brought all of a
    prompt, or all but the token that it computes again."""
    import numpy as np

    from jaxperf.serving.simulator.refusals import refusals

    prompt, order = columns["prompt"], run.found.order
    decoded = np.empty(len(order))
    decoded[order] = run.found.decode.requests.scheduled
    here = {**columns, "output": np.ones_like(prompt)}
    there = {**columns, "scheduled": np.where(np.isfinite(run.there), decoded[: len(prompt)], 0.0)}
    brought = prompt - (pools.first_token == "decode")
    both = {
        "prefill": refusals(pools.prefill.scheduler, here),
        "decode": refusals(pools.decode.scheduler, there, brought),
    }
    return {number: lacks and f"{pool}: {lacks}" for pool, found in both.items() for number, lacks in found.items()}
