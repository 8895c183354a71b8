"""What `jaxperf capacity` is asked, and the search that answers it: numbers of replicas, or divisions between pools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxperf.cli.kernel_intervals import at_ends, intervals
from jaxperf.serving.unit_costs import ENERGY_NOTE, unit_costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from jaxperf.cli.engines import Paid, Placed, Served
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.fleet.capacity import Capacity
    from jaxperf.serving.fleet.slo import Slo
    from jaxperf.serving.fleet.state import Load
    from jaxperf.serving.unit_costs import Prices

LASTING = 10  # times a request's latency: requests that come within less are a burst


def rates_of_replicas(
    data: dict[str, Any],
    where: str,
    trace: RequestTrace,
    columns: dict[str, np.ndarray],
    served: Served,
    table: Path | None,
    counts: list[int],
    routing: str,
    slo: Slo,
    precision: float,
    paid: Paid,
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each number of replicas, and notes; `columns` of the requests besides."""
    from jaxperf.cli.engines import placed, priced, scheduler_of, step_times_of
    from jaxperf.cli.fleets import as_asked, requests_of
    from jaxperf.cli.simulate_said import reservation_notes, used_options
    from jaxperf.serving.fleet.build import load_of, pool_of, router_of
    from jaxperf.serving.fleet.capacity import fleet_capacity
    from jaxperf.serving.fleet.settings import check_stages

    router_of(routing)
    scheduler = scheduler_of(data, served, where, trace.prompt + trace.output, table)
    check_stages(scheduler, where)
    devices = [placed(served, [(scheduler, number)]) for number in counts]
    prices = priced(devices[0], *paid)
    used, said = used_options(scheduler, columns)
    requests, stages = as_asked(trace, requests_of(trace, scheduler, used))
    load = load_of([requests] * len(counts))

    def search(served: Served) -> tuple[Capacity, str]:
        times, source = step_times_of(table, scheduler, trace, served)
        pool = pool_of(scheduler, times, counts, routing, load)
        return fleet_capacity(pool, load, slo, precision=precision, stages=stages), source

    found, source = search(served)
    ends = [] if table else at_ends(lambda end: search(end)[0].meets, served)
    sizes = [number * scheduler.tensor_parallel for number in counts]
    costs = _costs(found, devices, prices)
    names = [{"replicas": number} for number in counts]
    notes = [
        *scheduler.notes,
        *said,
        *reservation_notes(scheduler, trace.prompt + trace.output - 1),
        *trace.notes,
        *_burst_notes(found, len(trace.row)),
        *_step_notes(found),
        *served.notes(table, [scheduler]),
        f"step times: {source}",
    ]
    return _rows(names, sizes, found, ends, costs, _own_rate(load)), [*notes, *([ENERGY_NOTE] if devices[0] else [])]


def rates_of_pools(
    data: dict[str, Any],
    where: str,
    trace: RequestTrace,
    served: Served,
    table: Path | None,
    devices: int | None,
    slo: Slo,
    precision: float,
    paid: Paid,
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each division of the devices, or the one of the settings, and notes."""
    import numpy as np

    from jaxperf.cli.engines import placed, priced
    from jaxperf.cli.fleets import as_asked, notes_of, pools_of, requests_of, served_pool
    from jaxperf.models.layers import transformer
    from jaxperf.serving.fleet.build import load_of
    from jaxperf.serving.fleet.pools import one_pool, transfer_of
    from jaxperf.serving.fleet.ratio import Divisions, disaggregated_capacity, divided, divisions

    pools = pools_of(data, where, served, trace, table)
    schedulers = (pools.prefill.scheduler, pools.decode.scheduler)
    prices = priced(placed(served, [(each, 1) for each in schedulers]), *paid)
    sizes = [each.tensor_parallel for each in schedulers]
    among = Divisions(np.array([pools.prefill.replicas]), np.array([pools.decode.replicas]))
    if devices is not None:
        among = divisions(devices, *sizes)
    requests, stages = as_asked(trace, requests_of(trace, pools.prefill.scheduler))
    load = load_of([requests] * len(among.prefill))
    model, from_decode = transformer(served.config(pools.prefill.scheduler.model)), pools.first_token == "decode"

    def search(served: Served) -> tuple[Capacity, list[str]]:
        prefill, decode = (served_pool(pool, trace, served, table) for pool in (pools.prefill, pools.decode))
        first, second = divided(one_pool(prefill, load), one_pool(decode, load), among)
        sent = transfer_of(pools, prefill, decode, model, load)
        found = disaggregated_capacity(first, second, sent, load, slo, from_decode, precision=precision, stages=stages)
        return found, [prefill.source, decode.source]

    found, sources = search(served)
    ends = [] if table else at_ends(lambda end: search(end)[0].meets, served)
    pairs = list(zip(among.prefill.tolist(), among.decode.tolist(), strict=True))
    placings = [placed(served, list(zip(schedulers, pair, strict=True))) for pair in pairs]
    costs = _costs(found, placings, prices)
    names = [{"prefill_replicas": one, "decode_replicas": other} for one, other in pairs]
    notes = [
        *notes_of(pools, trace),
        *_burst_notes(found, len(trace.row)),
        *_step_notes(found),
        *trace.notes,
        *served.notes(table, schedulers),
        *(f"{name}: {source}" for name, source in zip(("prefill", "decode"), sources, strict=True)),
    ]
    totals = [one * sizes[0] + other * sizes[1] for one, other in pairs]
    return _rows(names, totals, found, ends, costs, _own_rate(load)), [*notes, *([ENERGY_NOTE] if placings[0] else [])]


def _costs(found: Capacity, placings: list[Placed], prices: Prices) -> list[dict[str, float]]:
    """Energy and dollars of a million output tokens at each rate; nothing where the devices are not known."""
    rates = zip(found.tokens_per_second.tolist(), placings, strict=True)
    return [unit_costs(rate, placing, prices) if placing else {} for rate, placing in rates]


def _rows(
    names: list[dict[str, int]],
    devices: list[int],
    found: Capacity,
    ends: Sequence[np.ndarray],
    costs: list[dict[str, float]],
    own: float,
) -> list[dict[str, Any]]:
    """The answers as plain data; a rate of zero means that no rate meets the SLO. `ends`: the rates of the slowest and
    of the fastest kernels, none where steps are not of our kernels; `own`: the rate of the trace as it is [1/s]."""
    rows = []
    for lane, (name, size) in enumerate(zip(names, devices, strict=True)):
        rate, fails = float(found.meets[lane]), float(found.fails[lane])
        lower, upper = intervals(rate, [float(end[lane]) for end in ends])
        rows.append(
            {
                **name,
                "devices": size,
                "requests_per_second": rate,
                **({"requests_per_second_lower": lower, "requests_per_second_upper": upper} if ends else {}),
                "fails_at": fails,
                "limited_by": str(found.limited_by[lane]),
                "speedup": rate / own,
                "requests_per_second_per_device": rate / size,
                "output_tokens_per_second": float(found.tokens_per_second[lane]),
                **costs[lane],
                "monotone": bool(found.monotone[lane]),
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
