"""`jaxperf colocate REQUESTS... --settings A.json --settings B.json`: several engines on one device, with queueing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwspecs.errors import InputError, did_you_mean
from jaxperf.cli.engines import ServedDevice
from jaxperf.cli.options import (
    EXIT_INFEASIBLE,
    AsJson,
    DevicesDirectory,
    KvCache,
    OutputFile,
    Quiet,
    SustainedRates,
    Weights,
    parse_slo,
)

if TYPE_CHECKING:
    from jaxperf.cli.engines import Served
    from jaxperf.cli.neighbors import Question

SHARINGS = ("mps", "time_slice", "mig")
MOST_ENGINES = 7  # as many as a device can be cut into


def colocate(
    requests: Annotated[
        list[Path],
        typer.Argument(metavar="REQUESTS", help="Requests as simulate reads them: a file an engine, or one for all."),
    ],
    settings: Annotated[
        list[Path], typer.Option("--settings", metavar="S.json", help="An engine as for simulate; give it for each.")
    ],
    sharing: Annotated[
        str, typer.Option("--sharing", metavar="WAYS", help="mps, time_slice or mig, several with commas.")
    ] = ",".join(SHARINGS),
    slo: Annotated[
        str | None, typer.Option("--slo", metavar="LIMITS", help="Such as ttft=1s,tpot=30ms, for the goodput.")
    ] = None,
    device: ServedDevice = None,
    weights: Weights = None,
    kv_cache: KvCache = "bf16",
    params: SustainedRates = None,
    devices_dir: DevicesDirectory = None,
    out: OutputFile = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate several engines that share one device. Each alone, and together under MPS, in time slices or on MIG
    slices."""
    from jaxperf.cli.compute import start_jax

    start_jax(quick=True)
    from jaxperf.cli.colocated import answer_of, print_colocated
    from jaxperf.cli.engines import Served
    from jaxperf.io.tables import check_output, json_text, write_rows
    from jaxperf.serving.simulator.metrics import SLO_METRICS

    check_output(out)
    limits = parse_slo(slo, SLO_METRICS) if slo else {}
    ways = _ways(sharing)
    served = Served(None, device, weights, kv_cache, params, tuple(devices_dir or ()))
    record = answer_of(_questions(requests, settings, served), served, ways, limits)
    if as_json:
        typer.echo(json_text(record))
    else:
        print_colocated(record, quiet)
    if out is not None:
        write_rows(record["rows"], out, {"jaxperf": json_text({**record, "rows": len(record["rows"])})})
    if not any(row["completed"] for row in record["rows"] if row["sharing"] != "alone"):
        raise typer.Exit(EXIT_INFEASIBLE)


def _ways(text: str) -> list[str]:
    """`mps,mig` as ways of sharing. Raises `InputError` for one that is none."""
    ways = [part.strip() for part in text.split(",")]
    for way in ways:
        if way not in SHARINGS:
            hint = did_you_mean(way, SHARINGS)
            raise InputError(f"--sharing: '{way}' is no way to share a device; known: {', '.join(SHARINGS)}.{hint}")
    return list(dict.fromkeys(ways))


def _questions(requests: Sequence[Path], settings: Sequence[Path], served: Served) -> list[Question]:
    """Every engine with its requests.

    **Raises:** `InputError` for files that are wrong, whose numbers do not match, or that are not one engine each.
    """
    from jaxperf.cli.engines import context_of, read_settings
    from jaxperf.cli.neighbors import Question
    from jaxperf.io.request_options import with_options, within_context
    from jaxperf.io.session_traces import read_sessions

    _check_numbers(len(requests), len(settings))
    engines = [_engine(read_settings(path), str(path)) for path in settings]
    found = []
    for data, where, path in zip(engines, settings, _for_each(requests, len(settings)), strict=True):
        trace, options = within_context(*with_options(read_sessions(path)), context_of(data, served, str(where)))
        if not len(trace.row):
            raise InputError(f"{path}: none of the rows is a request: {next(iter(trace.reasons.values()))}.")
        if getattr(trace, "after", None) is not None:
            raise InputError(f"{path}: its requests follow one another, which engines that share a device cannot take.")
        name = served.config(data["model"]).name
        found.append(Question(name, data, str(where), str(path), trace, options))
    names = [each.name for each in found]
    if len(set(names)) == len(names):
        return found
    return [_renamed(each, f"{each.name} #{place}") for place, each in enumerate(found, 1)]


def _renamed(question: Question, name: str) -> Question:
    import dataclasses

    return dataclasses.replace(question, name=name)


def _check_numbers(requests: int, settings: int) -> None:
    if settings < 2:
        raise InputError("--settings: one engine has the device to itself; give --settings for each of two or more.")
    if settings > MOST_ENGINES:
        raise InputError(f"--settings: {settings} engines are too many for one device; {MOST_ENGINES} at most.")
    if requests not in (1, settings):
        raise InputError(f"{requests} files of requests for {settings} engines; give one for each, or one for all.")


def _for_each(requests: Sequence[Path], engines: int) -> list[Path]:
    return list(requests) if len(requests) == engines else list(requests) * engines


def _engine(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Settings of one engine that has no other replicas. Raises `InputError` for others."""
    if "pools" in data:
        raise InputError(f"{where}: pools are several engines, each on devices of its own; leave them out here.")
    if not isinstance(data.get("model"), str):
        raise InputError(f"{where}: no key 'model'; each engine names the model that it serves.")
    return data
