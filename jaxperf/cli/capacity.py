"""`jaxperf capacity REQUESTS --settings S.json --slo ttft=1s,tpot=50ms`: the largest request rate that meets an SLO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError
from hwspecs.whole import whole_number
from jaxperf.cli.engines import FusedAttention, ServedDevice, ServedModel, SettingsFile, StepTimes
from jaxperf.cli.option_checks import check_name
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    Electricity,
    KvCache,
    OutputFile,
    Price,
    Quiet,
    SustainedRates,
    Weights,
    parse_slo,
)

if TYPE_CHECKING:
    from jaxperf.serving.fleet.slo import Slo

SHARE = 0.9
ONE, BY_LOAD = "1", "least_outstanding"
WORDS = {"requests_per_second": "requests/s", "fails_at": "fails at", "requests_per_second_per_device": "per device"}
WORDS |= {"limited_by": "by", "speedup": "x file"}
WORDS |= {"output_tokens_per_second": "tokens/s out"}
WORDS |= {"requests_per_second_lower": "from", "requests_per_second_upper": "to"}  # its interval
WORDS |= {"kwh_per_million_tokens": "kWh/Mtoken", "dollars_per_million_tokens": "$/Mtoken"}


def capacity(
    requests: Annotated[
        Path,
        typer.Argument(metavar="REQUESTS", help="Rows of arrived_at, prefill_tokens, decode_tokens, or a workload."),
    ],
    settings: SettingsFile,
    slo: Annotated[str, typer.Option("--slo", metavar="LIMITS", help="Such as ttft=1s,tpot=50ms.")],
    share: Annotated[
        float | None,
        typer.Option("--share", metavar="X", help="Share of requests that must be within all limits (default: 0.9)."),
    ] = None,
    quantile: Annotated[
        str | None, typer.Option("--quantile", metavar="pNN", help="Instead: this quantile within each limit.")
    ] = None,
    replicas: Annotated[
        str, typer.Option("--replicas", metavar="N,N", help="Numbers of replicas to try (without pools).")
    ] = ONE,
    routing: Annotated[
        str,
        typer.Option(
            "--routing",
            metavar="NAME",
            help="How replicas get requests (without pools): round_robin, least_outstanding or prefix_aware.",
        ),
    ] = BY_LOAD,
    devices: Annotated[
        int | None, typer.Option("--devices", metavar="N", help="With pools: try every division of so many devices.")
    ] = None,
    precision: Annotated[
        float, typer.Option("--precision", metavar="X", help="How far apart the two rates may be, relatively.")
    ] = 0.02,
    step_time: StepTimes = None,
    model: ServedModel = None,
    device: ServedDevice = None,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    fused_attention: FusedAttention = False,
    price: Price = None,
    electricity: Electricity = None,
    out: OutputFile = None,
    params: SustainedRates = None,
    devices_dir: DevicesDirectory = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the largest request rate at which an SLO is met. For replicas of an engine, or pools of them."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    from jaxperf.cli.capacities import Asked, rates_of_pools, rates_of_replicas
    from jaxperf.cli.engines import Served, context_of, read_settings
    from jaxperf.cli.logged import left_out_notes
    from jaxperf.io.request_options import with_options, within_context
    from jaxperf.io.session_traces import read_sessions
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.serving.fleet.capacity import check_precision

    check_output(out)
    check_precision(precision)
    wanted = _slo(slo, share, quantile)
    data = read_settings(settings)
    served = Served(model, device, weights, kv_cache, params, tuple(devices_dir or ()), fused=fused_attention)
    trace, columns = within_context(*with_options(read_sessions(requests)), context_of(data, served, str(settings)))
    if not len(trace.row):
        raise InputError(f"{requests}: none of the rows is a request: {next(iter(trace.reasons.values()))}.")
    if len(trace.row) == 1:
        besides = "".join(f" ({note})" for note in left_out_notes(trace))
        raise InputError(f"{requests} has one request{besides}; a rate needs several, one after another.")
    paid = (price, electricity)
    asked = Asked(data, str(settings), trace, columns, served, step_time, wanted, precision, paid)
    if "pools" in data:
        if (replicas, routing) != (ONE, BY_LOAD) or columns:
            raise InputError("--replicas, --routing, priorities and prefilled tokens do not go with pools in settings.")
        rows, said = rates_of_pools(asked, devices)
    else:
        if devices is not None:
            raise InputError("--devices divides devices between pools, and the settings have none; give --replicas.")
        rows, said = rates_of_replicas(asked, _counts(replicas), routing)
    notes = [*said, *left_out_notes(trace)]
    record = {"requests": str(requests), "settings": str(settings), "slo": _slo_words(wanted), "notes": notes}
    if as_json:
        typer.echo(json_text({**record, "rows": rows}))
    else:
        _print(rows, record, quiet)
    if out is not None:
        write_rows(rows, out, {"jaxperf": json_text(record)})
    if not any(row["requests_per_second"] for row in rows):
        raise typer.Exit(EXIT_INFEASIBLE)


def _slo(text: str, share: float | None, quantile: str | None) -> Slo:
    from jaxperf.serving.fleet.slo import Slo
    from jaxperf.serving.simulator.metrics import QUANTILES, SLO_METRICS

    limits = parse_slo(text, SLO_METRICS)
    if quantile is None:
        return Slo(limits, SHARE if share is None else share)
    if share is not None:
        raise InputError(
            "--share and --quantile: a quantile is a share of its own, for each limit; give one of the two."
        )
    check_name("--quantile", quantile, tuple(QUANTILES))
    return Slo(limits, QUANTILES[quantile], each=True)


def _counts(text: str) -> list[int]:
    """`1,2,4` as numbers of replicas."""
    from jaxperf.serving.fleet.settings import MOST_REPLICAS

    counts = [whole_number(part.strip()) for part in text.split(",")]
    found = [count for count in counts if count is not None and 1 <= count <= MOST_REPLICAS]
    if len(found) < len(counts):
        raise InputError(f"--replicas: '{text}' is not a list of whole numbers from 1 to {MOST_REPLICAS:,}, as 1,2,4.")
    return found


def _slo_words(slo: Slo) -> str:
    limits = ", ".join(f"{name} <= {limit * 1e3:g} ms" for name, limit in slo.limits.items())
    what = "each for" if slo.each else "together for"
    return f"{limits}, {what} {slo.share:.3g} of the requests"


def _print(rows: list[dict[str, Any]], record: dict[str, Any], quiet: bool) -> None:
    from jaxperf.report.text import console, number, print_notes, table

    out = console()
    columns = [name for name in rows[0] if name != "monotone"]
    cells = [
        [str(row[name]) if isinstance(row[name], int | str) else number(row[name]) for name in columns] for row in rows
    ]
    title = f"largest rate with {record['slo']}"
    out.print(table(title, [WORDS.get(name, name.replace("_", " ")) for name in columns], cells))
    if not any(row["requests_per_second"] for row in rows):
        out.print("no rate meets the SLO: it fails even for requests that are served alone")
    for row in rows:
        if not row["monotone"]:
            said = ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in columns[: columns.index("devices")])
            again = f"above {number(row['fails_at'])} requests/s, which fail, some rate meets the SLO again"
            out.print(f"{said}: {again}; the lowest range of rates that do is given")
    print_notes(out, record["notes"], quiet)
