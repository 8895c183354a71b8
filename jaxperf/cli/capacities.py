"""What `jaxperf capacity` is asked, and the search that answers it: numbers of replicas, or divisions between pools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxperf.cli.kernel_intervals import at_ends, intervals
from jaxperf.serving.unit_costs import ENERGY_NOTE, unit_costs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from jaxperf.cli.engines import Paid, Placed, Served
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.fleet.capacity import Capacity
    from jaxperf.serving.fleet.slo import Slo
    from jaxperf.serving.fleet.state import Load
    from jaxperf.serving.simulator.settings import Scheduler
    from jaxperf.serving.unit_costs import Prices

LASTING = 10  # times a request's latency: requests that come within less are a burst


@dataclass(frozen=True)
class Asked:
    """The requests of a `trace`, with `columns` besides, at the largest rate that meets `slo`, found to `precision`:
    on engines that the settings `data`, from the file `where`, describe; `table`: of step times; `paid`: --price and
    --electricity."""

    data: dict[str, Any]
    where: str
    trace: RequestTrace
    columns: dict[str, np.ndarray]
    served: Served
    table: Path | None
    slo: Slo
    precision: float
    paid: Paid


class Lane(NamedTuple):
    """One system searched: its replicas by name, devices, and where these are known what `unit_costs` needs of them."""

    name: dict[str, int]
    devices: int
    placed: Placed


Answer = tuple[list[dict[str, Any]], list[str]]  # rows, and notes


def rates_of_replicas(asked: Asked, counts: list[int], routing: str) -> Answer:
    """A row for each number of replicas."""
    from jaxperf.cli.engines import placed, scheduler_of, step_times_of
    from jaxperf.cli.fleets import as_asked, requests_of
    from jaxperf.cli.simulate_said import prefix_notes, reservation_notes, used_options
    from jaxperf.serving.fleet.build import load_of, pool_of, router_of
    from jaxperf.serving.fleet.capacity import fleet_capacity
    from jaxperf.serving.fleet.settings import check_stages

    router_of(routing)
    trace, served, tokens = asked.trace, asked.served, asked.trace.prompt + asked.trace.output
    scheduler = scheduler_of(asked.data, served, asked.where, tokens, asked.table)
    check_stages(scheduler, asked.where)
    ranks = scheduler.tensor_parallel
    lanes = [Lane({"replicas": each}, each * ranks, placed(served, [(scheduler, each)])) for each in counts]
    used, said = used_options(scheduler, asked.columns)
    requests, stages = as_asked(trace, requests_of(trace, scheduler, used))
    load = load_of([requests] * len(counts))

    def search(served: Served) -> tuple[Capacity, list[str]]:
        times, source = step_times_of(asked.table, scheduler, trace, served)
        pool = pool_of(scheduler, times, counts, routing, load)
        found = fleet_capacity(pool, load, asked.slo, precision=asked.precision, stages=stages)
        return found, [f"step times: {source}"]

    said += prefix_notes(asked.data, scheduler, trace, routing)
    notes = [*scheduler.notes, *said, *reservation_notes(scheduler, tokens - 1)]
    return _answer(asked, [scheduler], lanes, load, search, notes)


def rates_of_pools(asked: Asked, devices: int | None) -> Answer:
    """A row for each division of the devices, or the one of the settings."""
    import numpy as np

    from jaxperf.cli.engines import placed
    from jaxperf.cli.fleets import as_asked, notes_of, pools_of, requests_of, served_pool
    from jaxperf.models.layers import transformer
    from jaxperf.serving.fleet.build import load_of
    from jaxperf.serving.fleet.pools import one_pool, transfer_of
    from jaxperf.serving.fleet.ratio import Divisions, disaggregated_capacity, divided, divisions

    trace, served = asked.trace, asked.served
    pools = pools_of(asked.data, asked.where, served, trace, asked.table)
    schedulers = [pools.prefill.scheduler, pools.decode.scheduler]
    sizes = [each.tensor_parallel for each in schedulers]
    among = Divisions(np.array([pools.prefill.replicas]), np.array([pools.decode.replicas]))
    if devices is not None:
        among = divisions(devices, *sizes)
    lanes = [
        Lane(
            {"prefill_replicas": one, "decode_replicas": other},
            one * sizes[0] + other * sizes[1],
            placed(served, list(zip(schedulers, (one, other), strict=True))),
        )
        for one, other in zip(among.prefill.tolist(), among.decode.tolist(), strict=True)
    ]
    requests, stages = as_asked(trace, requests_of(trace, schedulers[0]))
    load = load_of([requests] * len(lanes))
    model, from_decode = transformer(served.config(schedulers[0].model)), pools.first_token == "decode"

    def search(served: Served) -> tuple[Capacity, list[str]]:
        prefill, decode = (served_pool(pool, trace, served, asked.table) for pool in (pools.prefill, pools.decode))
        first, second = divided(one_pool(prefill, load), one_pool(decode, load), among)
        sent = transfer_of(pools, prefill, decode, model, load)
        how = {"precision": asked.precision, "stages": stages}
        found = disaggregated_capacity(first, second, sent, load, asked.slo, from_decode, **how)
        return found, [f"prefill: {prefill.source}", f"decode: {decode.source}"]

    return _answer(asked, schedulers, lanes, load, search, notes_of(pools, trace))


def _answer(
    asked: Asked,
    schedulers: Sequence[Scheduler],
    lanes: Sequence[Lane],
    load: Load,
    search: Callable[[Served], tuple[Capacity, list[str]]],
    notes: Sequence[str],
) -> Answer:
    """What `search` finds of every lane, with intervals where its steps are of our kernels, costs and notes."""
    from jaxperf.cli.engines import priced

    prices = priced(lanes[0].placed, *asked.paid)
    found, sources = search(asked.served)
    ends = [] if asked.table else at_ends(lambda end: search(end)[0].meets, asked.served)
    said = [
        *notes,
        *asked.trace.notes,
        *_burst_notes(found, len(asked.trace.row)),
        *_step_notes(found),
        *asked.served.notes(asked.table, schedulers),
        *sources,
        *([ENERGY_NOTE] if lanes[0].placed else []),
    ]
    return _rows(lanes, found, ends, prices, _own_rate(load)), said


def _rows(
    lanes: Sequence[Lane], found: Capacity, ends: Sequence[np.ndarray], prices: Prices, own: float
) -> list[dict[str, Any]]:
    """The answers as plain data; a rate of zero means that no rate meets the SLO. `ends`: the rates of the slowest and
    of the fastest kernels, none where steps are not of our kernels; `own`: the rate of the trace as it is [1/s]."""
    rows = []
    for at, (name, size, placed) in enumerate(lanes):
        rate, tokens = float(found.meets[at]), float(found.tokens_per_second[at])
        lower, upper = intervals(rate, [float(end[at]) for end in ends])
        rows.append(
            {
                **name,
                "devices": size,
                "requests_per_second": rate,
                **({"requests_per_second_lower": lower, "requests_per_second_upper": upper} if ends else {}),
                "fails_at": float(found.fails[at]),
                "limited_by": str(found.limited_by[at]),
                "speedup": rate / own,
                "requests_per_second_per_device": rate / size,
                "output_tokens_per_second": tokens,
                **(unit_costs(tokens, placed, prices) if placed else {}),
                "monotone": bool(found.monotone[at]),
            }
        )
    return rows


def _own_rate(load: Load) -> float:
    """The rate at which the requests of a load come, as `fleet.capacity.unit_arrivals` counts it [1/s]."""
    arrived, count = load.requests.arrived[0], int(load.requests.count[0])
    return (count - 1) / float(arrived[count - 1] - arrived[0])


def _burst_notes(found: Capacity, requests: int) -> list[str]:
    """Whether there are enough requests for a rate that lasts, in a sentence."""
    import numpy as np

    with np.errstate(divide="ignore"):
        short = (requests - 1) / found.meets < LASTING * found.e2e
    if not short.any():
        return []
    rate, e2e = found.meets[short].min(), found.e2e[short].max()
    return [
        f"from {rate:.3g} requests/s on, all {requests:,} come within {LASTING} times the {e2e:.3g} s that one takes: "
        "such a rate is that of a burst; give more requests for one that lasts"
    ]


def _step_notes(found: Capacity) -> list[str]:
    """Whether the table of step times reached all steps at the rates found, in a sentence."""
    most = float(found.beyond.max())
    if not most:
        return []
    return [
        f"at these rates up to {most:.1%} of the steps lie beyond the table of step times; its last entries are used"
    ]
