"""`jaxperf capacity REQUESTS --settings S.json --slo ttft=1s,tpot=50ms`: the largest request rate that meets an SLO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    KvCache,
    OutputFile,
    Quiet,
    SustainedRates,
    Weights,
    parse_assignments,
)

if TYPE_CHECKING:
    import numpy as np

    from jaxperf.cli.engines import Served
    from jaxperf.io.request_traces import RequestTrace
    from jaxperf.serving.fleet.capacity import Capacity
    from jaxperf.serving.fleet.slo import Slo

ONE, BY_LOAD = "1", "least_outstanding"
LASTING = 10  # times a request's latency: requests that come within less are a burst
WORDS = {"requests_per_second": "requests/s", "fails_at": "fails at", "requests_per_second_per_device": "per device"}


def capacity(
    requests: Annotated[
        Path,
        typer.Argument(metavar="REQUESTS", help="Rows of arrived_at, prefill_tokens, decode_tokens, or a workload."),
    ],
    settings: Annotated[Path, typer.Option("--settings", metavar="S.json", help="The scheduler and its numbers.")],
    slo: Annotated[str, typer.Option("--slo", metavar="LIMITS", help="Such as ttft=1s,tpot=50ms.")],
    share: Annotated[
        float, typer.Option("--share", metavar="X", help="Share of requests that must be within all limits.")
    ] = 0.9,
    quantile: Annotated[
        str | None, typer.Option("--quantile", metavar="pNN", help="Instead: this quantile within each limit.")
    ] = None,
    replicas: Annotated[
        str, typer.Option("--replicas", metavar="N,N", help="Numbers of replicas to try (without pools).")
    ] = ONE,
    routing: Annotated[
        str, typer.Option("--routing", metavar="NAME", help="How requests are given to replicas (without pools).")
    ] = BY_LOAD,
    devices: Annotated[
        int | None, typer.Option("--devices", metavar="N", help="With pools: try every division of so many devices.")
    ] = None,
    precision: Annotated[
        float, typer.Option("--precision", metavar="X", help="How far apart the two rates may be, relatively.")
    ] = 0.02,
    step_time: Annotated[
        Path | None, typer.Option("--step-time", metavar="T.npz", help="Table of step times (default: our own model).")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="The model served (default: the settings').")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Device of our own model (default: the settings').")
    ] = None,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    out: OutputFile = None,
    params: SustainedRates = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """The largest rate at which these requests may come while an SLO is met, for replicas or pools of them."""
    from jaxperf.cli.compute import start_jax

    start_jax()
    from jaxperf.cli.engines import Served, read_settings
    from jaxperf.io.request_options import with_options
    from jaxperf.io.session_traces import read_sessions
    from jaxperf.io.tables import check_output, json_text, write_rows

    check_output(out)
    wanted = _slo(slo, share, quantile)
    data = read_settings(settings)
    trace, columns = with_options(read_sessions(requests))
    if not len(trace.row):
        raise InputError(f"{requests}: none of the rows is a request: {next(iter(trace.reasons.values()))}.")
    served = Served(model, device, weights, kv_cache, params, tuple(devices_dir or ()))
    if "pools" in data:
        if (replicas, routing) != (ONE, BY_LOAD) or columns:
            raise InputError("--replicas, --routing, priorities and prefilled tokens do not go with pools in settings.")
        found = _of_pools(data, str(settings), trace, served, step_time, devices, wanted, precision)
    else:
        if devices is not None:
            raise InputError("--devices divides devices between pools, and the settings have none; give --replicas.")
        rest = (_counts(replicas), routing, wanted, precision)
        found = _of_replicas(data, str(settings), trace, columns, served, step_time, *rest)
    rows, notes = found
    record = {"requests": str(requests), "settings": str(settings), "slo": _slo_words(wanted), "notes": notes}
    if as_json:
        typer.echo(json_text({**record, "rows": rows}))
    else:
        _print(rows, record, quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})
    if not any(row["requests_per_second"] for row in rows):
        raise typer.Exit(EXIT_INFEASIBLE)


def _slo(text: str, share: float, quantile: str | None) -> Slo:
    from jaxperf.serving.fleet.slo import Slo
    from jaxperf.serving.simulator.metrics import QUANTILES, SLO_METRICS

    limits = parse_assignments("--slo", text, SLO_METRICS, "s")
    if quantile is None:
        return Slo(limits, share)
    if quantile not in QUANTILES:
        raise InputError(
            f"--quantile: '{quantile}' is none of {', '.join(QUANTILES)}.{did_you_mean(quantile, QUANTILES)}"
        )
    return Slo(limits, QUANTILES[quantile], each=True)


def _counts(text: str) -> list[int]:
    """`1,2,4` as numbers of replicas."""
    from jaxperf.serving.fleet.settings import MOST_REPLICAS

    counts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= MOST_REPLICAS for part in counts):
        raise InputError(f"--replicas: '{text}' is not a list of whole numbers from 1 to {MOST_REPLICAS:,}, as 1,2,4.")
    return [int(part) for part in counts]


def _of_replicas(
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
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each number of replicas, and notes; `columns` of the requests besides."""
    from jaxperf.cli.engines import scheduler_of, step_times_of
    from jaxperf.cli.fleets import requests_of
    from jaxperf.cli.simulated import used_options
    from jaxperf.serving.fleet.build import load_of, pool_of, router_of
    from jaxperf.serving.fleet.capacity import fleet_capacity

    router_of(routing)
    scheduler = scheduler_of(data, served, where)
    used, said = used_options(scheduler, columns)
    times, source = step_times_of(table, scheduler, trace, served)
    load = load_of([requests_of(trace, scheduler, used)] * len(counts))
    found = fleet_capacity(pool_of(scheduler, times, counts, routing, load), load, slo, precision=precision)
    sizes = [number * scheduler.tensor_parallel for number in counts]
    names = [{"replicas": number} for number in counts]
    notes = [*scheduler.notes, *said, *trace.notes, *_burst_notes(found, len(trace.row)), f"step times: {source}"]
    return _rows(names, sizes, found), notes


def _of_pools(
    data: dict[str, Any],
    where: str,
    trace: RequestTrace,
    served: Served,
    table: Path | None,
    devices: int | None,
    slo: Slo,
    precision: float,
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each division of the devices, or the one of the settings, and notes."""
    import numpy as np

    from jaxperf.cli.fleets import pools_of, requests_of, served_pool
    from jaxperf.models.layers import transformer
    from jaxperf.serving.fleet.build import load_of
    from jaxperf.serving.fleet.pools import one_pool, transfer_of
    from jaxperf.serving.fleet.ratio import Divisions, disaggregated_capacity, divided, divisions

    pools = pools_of(data, where, served)
    sizes = [pool.scheduler.tensor_parallel for pool in (pools.prefill, pools.decode)]
    among = Divisions(np.array([pools.prefill.replicas]), np.array([pools.decode.replicas]))
    if devices is not None:
        among = divisions(devices, *sizes)
    prefill, decode = (served_pool(pool, trace, served, table) for pool in (pools.prefill, pools.decode))
    load = load_of([requests_of(trace, pools.prefill.scheduler)] * len(among.prefill))
    first, second = divided(one_pool(prefill, load), one_pool(decode, load), among)
    sent = transfer_of(pools, prefill, decode, transformer(served.config(pools.prefill.scheduler.model)), load)
    from_decode = pools.first_token == "decode"
    found = disaggregated_capacity(first, second, sent, load, slo, from_decode, precision=precision)
    pairs = list(zip(among.prefill.tolist(), among.decode.tolist(), strict=True))
    names = [{"prefill_replicas": one, "decode_replicas": other} for one, other in pairs]
    notes = [
        *pools.prefill.scheduler.notes,
        *_burst_notes(found, len(trace.row)),
        *trace.notes,
        f"prefill: {prefill.source}",
        f"decode: {decode.source}",
    ]
    return _rows(names, [one * sizes[0] + other * sizes[1] for one, other in pairs], found), notes


def _rows(names: list[dict[str, int]], devices: list[int], found: Capacity) -> list[dict[str, Any]]:
    """The answers as plain data; a rate of zero means that no rate meets the SLO."""
    rows = []
    for lane, (name, size) in enumerate(zip(names, devices, strict=True)):
        rate, fails = float(found.meets[lane]), float(found.fails[lane])
        rows.append(
            {
                **name,
                "devices": size,
                "requests_per_second": rate,
                "fails_at": fails,
                "requests_per_second_per_device": rate / size,
                "monotone": bool(found.monotone[lane]),
            }
        )
    return rows


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


def _slo_words(slo: Slo) -> str:
    limits = ", ".join(f"{name} <= {limit * 1e3:g} ms" for name, limit in slo.limits.items())
    what = "each for" if slo.each else "together for"
    return f"{limits}, {what} {slo.share:.3g} of the requests"


def _print(rows: list[dict[str, Any]], record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, number, table

    out = console()
    columns = [name for name in rows[0] if name != "monotone"]
    cells = [[str(row[name]) if isinstance(row[name], int) else number(row[name]) for name in columns] for row in rows]
    title = f"largest rate with {record['slo']}"
    out.print(table(title, [WORDS.get(name, name.replace("_", " ")) for name in columns], cells))
    if not any(row["requests_per_second"] for row in rows):
        out.print("no rate meets the SLO: it fails even for requests that are served alone")
    for row in rows:
        if not row["monotone"]:
            said = ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in columns[:-4])
            out.print(f"{said}: above the rate that fails, others met the SLO again; the lowest interval is given")
    if not quiet:
        for note in record["notes"]:
            out.print(f"note: {note}", soft_wrap=True, markup=False)
